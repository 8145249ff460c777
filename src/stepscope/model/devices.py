"""One process with several GPUs (JAX, DataParallel): each device is a timeline of its own (semantics §1).

Compute on one GPU hides nothing of another's, so a device is what everything else calls a rank. Ops are those of the
device. What the host did is of the process: each device has the threads that launched for it, and those that launched
for none; where one thread drives them all, each has all of it.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from stepscope.intervals.arrays import I64, Mask
from stepscope.model.columns import Part
from stepscope.model.link import NO_CALL, link
from stepscope.model.note import noted
from stepscope.model.schema import TABLES
from stepscope.model.source import Chunk, Quality, Source, SourceInfo
from stepscope.model.threshold import Threshold

LEAST_SHARE = Threshold(
    1.0,
    "% of the busiest device's kernels",
    "a device with fewer is not a timeline: every rank of torch leaves some on GPU 0",
    ("tests/model/test_devices.py",),
)

_NO_DEVICE = -1
#: No machine has GPUs of a larger number: such a record is damaged.
_MOST_DEVICES = 1023


def several(kernels: pl.DataFrame) -> dict[int, str]:
    """By process that computes on several GPUs, their ordinals as `schema.PROCESSES` has them.

    `kernels` counts them: `proc`, `device`, `len`.
    """
    share = pl.col("len") / pl.col("len").max().over("proc")
    there = pl.col("device").is_between(0, _MOST_DEVICES)
    busy = kernels.filter(there).filter(share >= LEAST_SHARE.share).sort("proc", "device")
    on_several = busy.group_by("proc", maintain_order=True).agg("device").filter(pl.col("device").list.len() > 1)
    return {proc: ",".join(map(str, devices)) for proc, devices in on_several.iter_rows()}


class _Timeline(NamedTuple):
    """A process of the source, or one of its devices."""

    proc: int
    device: int = _NO_DEVICE


class _OfOthers(NamedTuple):
    """Threads that launch for other devices of the process only; correlation ids of their calls and of those ops."""

    threads: I64
    ids: I64


class DevicesApart:
    """A source whose processes compute on one GPU each: those with several are as many."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.path: Path = source.path
        #: By table of a source that has such processes: which rows its timelines have, in order.
        self._rows: dict[str, tuple[I64, I64]] = {}

    @property
    def info(self) -> SourceInfo:
        return self.source.info

    @property
    def quality(self) -> Quality:
        return self.source.quality

    def tables(self) -> frozenset[str]:
        return self.source.tables()

    def check(self) -> None:
        self.source.check()

    def processes(self) -> pl.DataFrame:
        """A row per timeline; the ranks are the processes' (`ranks.assign` numbers devices)."""
        processes = self.source.processes()
        if not self._split:
            return processes
        rows = [t.proc for t in self._timelines]
        own = pl.Series("own", [t.device for t in self._timelines], dtype=pl.Int32)
        frame = processes[rows].with_columns(pl.Series("proc", range(len(rows)), dtype=pl.Int32))
        other = (own != _NO_DEVICE) & (own != frame["device"]).fill_null(True)
        return frame.with_columns(
            pl.when(own != _NO_DEVICE).then(own).otherwise("device").alias("device"),
            pl.when(~other).then("gpu_id").alias("gpu_id"),
            pl.when(own == _NO_DEVICE).then("setup").alias("setup"),  # it speaks of the process, not of a device
        )

    def read(self, table: str, part: Part = "core") -> Chunk:
        chunk = self.source.read(table, part)
        if not self._split or not TABLES[table].ranked or chunk.frame.height == 0:
            return chunk
        if table not in self._rows:
            core = chunk if part == "core" else self.source.read(table)
            self._rows[table] = self._placed(table, core.frame)
        rows, proc = self._rows[table]
        frame = chunk.frame[rows]
        if "proc" in frame.columns:
            frame = frame.with_columns(pl.Series("proc", proc, dtype=pl.Int32))
        return Chunk(frame, chunk.names)

    # -- which rows ----------------------------------------------------------------------------------------------

    @cached_property
    def _devices(self) -> dict[int, list[int]]:
        """By process with several GPUs, their ordinals."""
        listed = self.source.processes().drop_nulls("devices").select("proc", "devices")
        devices_of = {proc: [int(d) for d in text.split(",")] for proc, text in listed.iter_rows()}
        for devices in devices_of.values():
            self.quality.note(noted("several-gpus", number=len(devices)))
        return devices_of

    @property
    def _split(self) -> bool:
        return bool(self._devices)

    @cached_property
    def _timelines(self) -> list[_Timeline]:
        lines = []
        for proc in range(self.source.processes().height):
            lines += [_Timeline(proc, d) for d in self._devices[proc]] if proc in self._devices else [_Timeline(proc)]
        return lines

    def _placed(self, table: str, frame: pl.DataFrame) -> tuple[I64, I64]:
        """Rows of each timeline, one after the other, and the timeline of each."""
        rows, number = [], []
        bounds = np.searchsorted(frame["proc"].to_numpy(), np.arange(self.source.processes().height + 1))
        for at, timeline in enumerate(self._timelines):
            first, last = int(bounds[timeline.proc]), int(bounds[timeline.proc + 1])
            mine = np.arange(first, last, dtype=np.int64)
            if timeline.device != _NO_DEVICE:
                mine = mine[self._is_of(table, frame[first:last], timeline)]
            rows.append(mine)
            number.append(np.full(len(mine), at, dtype=np.int64))
        return np.concatenate(rows), np.concatenate(number)

    def _is_of(self, table: str, frame: pl.DataFrame, timeline: _Timeline) -> Mask:
        """Which rows of the process are of one of its devices."""
        if "device" in frame.columns:
            devices, main = self._devices[timeline.proc], self._main(timeline.proc)
            device = frame["device"].fill_null(main if table == "ops" else timeline.device)
            device = device.replace({d: main for d in device.unique() if d not in devices})
            return (device == timeline.device).to_numpy()
        others = self._of_others[timeline]
        kept = np.ones(frame.height, dtype=bool)
        if "tid" in frame.columns:
            kept &= ~np.isin(frame["tid"].to_numpy(), others.threads)
        if table in ("syncs", "comms"):
            kept &= ~np.isin(frame["correlation"].fill_null(0).to_numpy(), others.ids)
        return kept

    def _main(self, proc: int) -> int:
        """The device of what says none, or is of one that is not a timeline."""
        main = self.source.processes()["device"][proc]
        return int(main) if main in self._devices[proc] else self._devices[proc][0]

    @cached_property
    def _of_others(self) -> dict[_Timeline, _OfOthers]:
        """By device: what is of the other devices of its process alone."""
        ops, calls = (self.source.read(t).frame for t in ("ops", "calls"))
        by_timeline: dict[_Timeline, _OfOthers] = {}
        for proc, devices in self._devices.items():
            of_proc, made = ops.filter(pl.col("proc") == proc), calls.filter(pl.col("proc") == proc)
            ids, call_ids = (f["correlation"].fill_null(0).to_numpy() for f in (of_proc, made))
            launch, tid = link(ids, call_ids), made["tid"].to_numpy()
            linked = launch != NO_CALL
            on = {d: (of_proc["device"] == d).fill_null(False).to_numpy() for d in devices}
            threads = {d: np.unique(tid[launch[linked & mine]]) for d, mine in on.items()}
            for device in devices:
                apart = np.setdiff1d(np.concatenate([threads[d] for d in devices]), threads[device])
                elsewhere = np.concatenate([ids[mine] for d, mine in on.items() if d != device])
                called = call_ids[np.isin(tid, apart)]
                by_timeline[_Timeline(proc, device)] = _OfOthers(apart, np.union1d(elsewhere, called))
        return by_timeline
