"""A snapshot of PyTorch's CUDA allocator as a source: read once, from front to back, when it is first asked.

A snapshot has what the allocator did while its history was recorded (`allocations`, with `stacks`), its segments at the
end (`blocks`), and torch's annotations (`ranges`): `Optimizer.step#AdamW.step` and whatever the program marked. It
knows neither process nor GPU: the rank is that of the file's name, or the order of the files.
"""

from __future__ import annotations

import gzip
import zlib
from array import array
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from stepscope import progress
from stepscope.errors import BadInput
from stepscope.intervals.arrays import I64
from stepscope.model.columns import ALLOC_ACTION, BLOCK_STATE, Part
from stepscope.model.note import noted
from stepscope.model.schema import TABLES, empty
from stepscope.model.source import Chunk, Quality, SourceInfo, canonical, conform, process_table
from stepscope.sources.pickled.machine import Machine
from stepscope.sources.pickled.refusals import Kind
from stepscope.sources.pickled.values import Fields
from stepscope.sources.snapshot.collect import CODES, UNKNOWN, Collector, moment

_KIND = Kind(
    "snapshot",
    "write it again with torch.cuda.memory._dump_snapshot",
    "a snapshot of torch.cuda.memory._dump_snapshot",
)
_GZIP = b"\x1f\x8b"
_SETTINGS = ("expandable_segments", "max_split_size", "garbage_collection_threshold", "roundup_power2_divisions")


class SnapshotSource:
    """One snapshot."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def processes(self) -> pl.DataFrame:
        return self._snapshot.processes

    def tables(self) -> frozenset[str]:
        return frozenset(name for name, frame in self._snapshot.tables.items() if frame.height)

    def read(self, table: str, part: Part = "core") -> Chunk:
        frame = self._snapshot.tables.get(table)
        if frame is None or not frame.height:
            return Chunk(empty(table, part))
        named = bool(TABLES[table].name_ids())
        return Chunk(conform(frame, table, part, self.quality), *([self._snapshot.texts] if named else []))

    @cached_property
    def info(self) -> SourceInfo:
        return self._snapshot.info

    @cached_property
    def quality(self) -> Quality:
        return self._snapshot.quality

    @cached_property
    def _snapshot(self) -> _Snapshot:
        return _Snapshot(self.path)


class _Snapshot:
    """Everything a file holds, in the columns of the model."""

    def __init__(self, path: Path) -> None:
        self.quality = Quality()
        collector = Collector()
        value = _read(path, collector)
        if not isinstance(value, Fields) or "segments" not in value:
            raise BadInput(f"{path}: a pickle without segments", "write it with torch.cuda.memory._dump_snapshot")
        if not len(collector.segments["bytes"]) and not len(collector.events["time"]):
            raise BadInput(f"{path}: the allocator had no segment", "take the snapshot while the program uses the GPU")
        times = _numbers(collector.events["time"])
        marks = [time for a in collector.annotations if (time := moment(a.get("time_us"))) != UNKNOWN]
        timed = times[times != UNKNOWN]
        base = min([*([int(timed.min())] if len(timed) else []), *marks], default=None)
        self._texts: dict[str, int] = {}
        stacks = self._stacks(collector)
        ranges = self._ranges(collector.annotations, base or 0)
        self.tables = {
            "allocations": self._allocations(collector, base or 0),
            "blocks": self._blocks(collector),
            "stacks": stacks,
            "ranges": ranges,
        }
        self.texts = pl.Series("name", list(self._texts), dtype=pl.String)
        devices = np.unique(_numbers(collector.segments["device"]))
        self.processes = process_table([{"proc": 0, "pid": 0, "device": int(devices[0]) if len(devices) else 0}])
        self.info = SourceInfo(
            path.name, "torch-snapshot", epoch_ns=None if base is None else base * 1000, facts=_facts(value)
        )
        self._note(collector)

    def _allocations(self, collector: Collector, base: int) -> pl.DataFrame:
        events = {name: _numbers(values) for name, values in collector.events.items()}
        device = np.zeros(len(events["time"]), dtype=np.int64)
        for number, parts in enumerate(collector.devices):
            for first, count in parts:
                device[first : first + count] = number
        names = pl.Series([*CODES, "unknown"], dtype=ALLOC_ACTION)
        action = np.where(events["action"] == UNKNOWN, len(CODES), events["action"])
        frame = pl.DataFrame(
            {
                "proc": np.zeros(len(device), dtype=np.int32),
                "row": np.arange(len(device)),
                "start_ns": _known(np.where(events["time"] == UNKNOWN, UNKNOWN, (events["time"] - base) * 1000)),
                "action": names.gather(action),
                "device": device,
                "stream": _known(events["stream"]),
                "address": _known(events["address"]),
                "bytes": _known(events["bytes"]),
                "chain": _known(events["stack"]),
                "free_bytes": _known(events["free"]),
            }
        )
        return canonical(frame, "allocations")

    def _blocks(self, collector: Collector) -> pl.DataFrame:
        blocks = {name: _numbers(values) for name, values in collector.blocks.items()}
        segments = {name: _numbers(values) for name, values in collector.segments.items()}
        segment = np.full(len(blocks["bytes"]), UNKNOWN, dtype=np.int64)
        for first, count, at in collector.placed:
            segment[first : first + count] = at
        placed = segment != UNKNOWN
        segment = segment[placed]
        # torch's dumps before 2.1 give a block no address: blocks lie one after the other.
        address, size = blocks["address"][placed], blocks["bytes"][placed]
        if len(address) and (address == UNKNOWN).any():
            ends = np.cumsum(size)
            first = np.r_[True, segment[1:] != segment[:-1]]
            begun = np.maximum.accumulate(np.where(first, ends - size, 0))
            address = segments["address"][segment] + ends - size - begun
        frame = pl.DataFrame(
            {
                "proc": np.zeros(len(segment), dtype=np.int32),
                "device": segments["device"][segment],
                "address": address,
                "bytes": size,
                "requested_bytes": _known(blocks["requested"][placed]),
                "state": pl.Series(BLOCK_STATE.categories, dtype=BLOCK_STATE).gather(blocks["state"][placed]),
                "segment": segments["address"][segment],
                "segment_bytes": segments["bytes"][segment],
                "stream": _known(segments["stream"][segment]),
                "small": segments["small"][segment] == 1,
                "expandable": segments["expandable"][segment] == 1,
                "chain": _known(blocks["stack"][placed]),
            }
        )
        return canonical(frame, "blocks")

    def _stacks(self, collector: Collector) -> pl.DataFrame:
        lines = list(collector.frames)
        name = np.array([self._text(n) for n, _, _ in lines], dtype=np.int64)
        # `??` is what torch writes for a symbol of an unknown file.
        file = np.array([self._text(f) if f and f != "??" else UNKNOWN for _, f, _ in lines], dtype=np.int64)
        line = np.array([n or UNKNOWN for _, _, n in lines], dtype=np.int64)
        stacks = list(collector.stacks.values())
        length = np.array([len(s.frames) for s in stacks], dtype=np.int64)
        frame = np.fromiter((f for s in stacks for f in s.frames), np.int64, int(length.sum()))
        chain = np.repeat(np.array([s.id for s in stacks], dtype=np.int64), length)
        depth = np.arange(len(frame)) - np.repeat(np.cumsum(length) - length, length)
        table = pl.DataFrame(
            {
                "proc": np.zeros(len(frame), dtype=np.int32),
                "chain": chain,
                "depth": depth,
                "name": name[frame] if len(frame) else frame,
                "file": _known(file[frame] if len(frame) else frame),
                "line": _known(line[frame] if len(frame) else frame),
            }
        )
        return canonical(table, "stacks")

    def _ranges(self, annotations: list[dict[str, Any]], base: int) -> pl.DataFrame:
        """Starts and ends of the same name, paired like brackets."""
        opened: dict[tuple[str, str], list[int]] = {}
        rows, lone = [], 0
        for mark in annotations:
            key, time = (str(mark.get("name")), str(mark.get("device"))), moment(mark.get("time_us"))
            if time == UNKNOWN:
                lone += 1
            elif mark.get("stage") == "START":
                opened.setdefault(key, []).append(time)
            elif opened.get(key):
                start = opened[key].pop()
                rows.append((self._text(key[0]), (start - base) * 1000, (time - base) * 1000))
            else:
                lone += 1
        if lone := lone + sum(map(len, opened.values())):
            self.quality.note(noted("rows-left-out/open", lone=lone))
        schema = {"name": pl.Int64, "start_ns": pl.Int64, "end_ns": pl.Int64}
        frame = pl.DataFrame(rows, schema=schema, orient="row").with_columns(
            proc=pl.lit(0, pl.Int32), tid=pl.lit(-1), kind=pl.lit("startend"), closed=pl.lit(True)
        )
        return canonical(frame, "ranges")

    def _text(self, text: str) -> int:
        return self._texts.setdefault(text, len(self._texts))

    def _note(self, collector: Collector) -> None:
        for action, count in collector.unknown.most_common(8):
            self.quality.note(noted("unknown-category/action", number=count, action=action))
        if collector.odd:
            self.quality.note(noted("rows-left-out/items", number=collector.odd))


def _read(path: Path, collector: Collector) -> Any:
    """The pickle, through our own reader."""
    total = path.stat().st_size
    try:
        with path.open("rb") as raw:
            packed = raw.peek(2)[:2] == _GZIP
            stream = gzip.GzipFile(fileobj=raw) if packed else raw

            def report(done: int) -> None:
                progress.report(f"reading {path.name}", raw.tell() if packed else done, total)

            return Machine(str(path), _KIND, stream.read, collector, report).run()
    except (OSError, EOFError, zlib.error) as error:
        raise BadInput(f"{path}: cannot be read ({error})", "check the file, or copy it again") from None


def _facts(value: Fields) -> dict[str, str]:
    settings = value.get("allocator_settings")
    if not isinstance(settings, Fields):
        return {}
    texts = {key: settings[key] for key in _SETTINGS if isinstance(settings.get(key), bool | int | float)}
    conf = settings.get("PYTORCH_CUDA_ALLOC_CONF")
    return {k: str(v) for k, v in texts.items()} | ({"alloc_conf": conf} if isinstance(conf, str) and conf else {})


def _numbers(values: array[int]) -> I64:
    return np.frombuffer(values, dtype=np.int64) if len(values) else np.empty(0, dtype=np.int64)


def _known(values: I64) -> pl.Series:
    """With null for what the file does not give."""
    series = pl.Series(values)
    return series.set(series == UNKNOWN, None)
