"""What the GPU's memory is made of at its peak and over time, and who holds it."""

from __future__ import annotations

from typing import Any

import polars as pl

from stepscope.model.statement import STATEMENT
from stepscope.report.asker import Asker
from stepscope.report.messages.further import MemoryData, MemoryDevice, MemoryFrame, MemoryTime
from stepscope.report.messages.shared import rows_of
from stepscope.report.part import Part, part

TITLE = "Memory"
#: The parts of the ledger, from the bottom of the picture up, and the colour of each; what holds nothing comes last.
KINDS = {
    "weights": "compute-3",
    "optimizer states": "copy",
    "gradients": "chunk-w",
    "activations": "comm",
    "temporary": "hidden",
    "communication": "late",
    "KV cache": "chunk-bw",
    "unknown": "barrier",
    "cached, free": "idle",
    "fragmentation": "wait",
}
#: Ranks and frames that are shown, the largest.
_MOST_RANKS, _MOST_FRAMES = 32, 12


def make(asker: Asker) -> Part:
    """Of the profile, or of the snapshots that were given beside it."""
    asker = asker.of_memory or asker
    answer = asker.ask("memory")
    peaks = sorted(answer.summary["peak"], key=lambda peak: -peak["reserved_bytes"])
    devices = [(peak["rank"], peak["device"]) for peak in peaks]
    shown = devices[:_MOST_RANKS]
    frames = asker.ask("memory", by="frame").rows
    over_time = asker.ask("memory", by="time").rows
    there = set(
        answer.rows.filter(pl.col("bytes").fill_null(0) + pl.col("most_bytes").fill_null(0) > 0)["part"].to_list()
    )
    return part(
        "memory",
        TITLE,
        asker.command("memory"),
        answer,
        MemoryData(
            kinds=[(name, colour) for name, colour in KINDS.items() if name in there],
            devices=[
                _device(answer.rows, peak)
                for peak in sorted(peaks[:_MOST_RANKS], key=lambda p: (p["rank"], p["device"]))
            ],
            left_out=len(devices) - len(shown),
            drawn={"rank": devices[0][0], "device": devices[0][1]},
            time=_picture(_of(over_time, *devices[0])),
            frames=rows_of(MemoryFrame, _of(frames, *devices[0]).head(_MOST_FRAMES)),
            frames_left_out=max(0, _of(frames, *devices[0]).height - _MOST_FRAMES),
            frame_command=asker.command("memory", by="frame"),
            time_command=asker.command("memory", by="time"),
            statement=answer.summary[STATEMENT],
        ),
    )


def _of(rows: pl.DataFrame, rank: int, device: int) -> pl.DataFrame:
    return rows.filter((pl.col("rank") == rank) & (pl.col("device") == device))


def _device(rows: pl.DataFrame, peak: dict[str, Any]) -> MemoryDevice:
    """A device at its peak: name, colour and bytes of every part that is there."""
    held = {r["part"]: r["bytes"] for r in _of(rows, peak["rank"], peak["device"]).select("part", "bytes").to_dicts()}
    return MemoryDevice(
        rank=peak["rank"],
        device=peak["device"],
        phase=peak["phase"],
        reserved_bytes=peak["reserved_bytes"],
        allocated_bytes=peak["allocated_bytes"],
        parts=[(name, colour, held[name]) for name, colour in KINDS.items() if held.get(name)],
    )


def _picture(rows: pl.DataFrame) -> MemoryTime:
    """The parts over time: those that are ever there."""
    columns = {name: f"{name.replace(' ', '_')}_bytes" for name in KINDS}
    there = [name for name, column in columns.items() if column in rows.columns and (rows[column] > 0).any()]
    times = rows["start_ns"]
    return {
        "start_ns": None if times.null_count() else times.to_list(),
        "reserved": rows["reserved_bytes"].to_list(),
        "parts": [(name, KINDS[name], rows[columns[name]].to_list()) for name in there],
    }
