"""A torch.profiler trace cut to a window: the events as torch wrote them, so that every tool still reads it."""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from stepscope.derive.windows.window import Window
from stepscope.errors import BadInput
from stepscope.intervals.arrays import I64, Mask
from stepscope.sources.kineto.bytestream import ByteStream


class _Args(msgspec.Struct):
    correlation: int | None = None


class _Event(msgspec.Struct):
    ph: str = ""
    cat: str = ""
    ts: float | None = None
    dur: float | None = None
    id: Any = None
    args: _Args | None = None


class _Events(msgspec.Struct):
    traceEvents: list[_Event]


class _Trace(msgspec.Struct):
    traceEvents: list[msgspec.Raw]


def write(source: Path, windows: Iterable[Window] | None, path: Path, *, compressed: bool) -> int:
    """The events of one file that touch the windows; how many."""
    with ByteStream(source) as stream:
        parts = []
        while part := stream.read(1 << 24):
            parts.append(part)
    text = b"".join(parts)
    try:
        rest = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        raw = msgspec.json.decode(text, type=_Trace).traceEvents
        events = msgspec.json.decode(text, type=_Events).traceEvents
    except msgspec.MsgspecError as error:
        raise BadInput(f"{source}: cannot be cut ({error})", "export it with --to chrome") from None
    kept = np.ones(len(raw), dtype=bool) if windows is None else _kept(events, list(windows))
    lines = b",\n".join(raw[i] for i in np.flatnonzero(kept).tolist())
    head = b"".join(b"%s: %s,\n" % (msgspec.json.encode(k), v) for k, v in rest.items() if k != "traceEvents")
    data = b"{" + head + b'"traceEvents": [\n' + lines + b"\n]}\n"
    path.write_bytes(gzip.compress(data, mtime=0) if compressed else data)
    return int(kept.sum())


def _kept(events: list[_Event], windows: list[Window]) -> Mask:
    """Metadata; what touches the windows; what a kept call launched, and arrows between events that are kept."""
    moments = [
        t for w in windows for t in (w.cpu_start_ns, w.cpu_end_ns, w.gpu_start_ns, w.gpu_end_ns) if t is not None
    ]
    first, last = min(moments), max(moments)
    start = np.array([np.nan if e.ts is None else e.ts for e in events]) * 1000
    end = start + np.array([e.dur or 0.0 for e in events]) * 1000
    phase = np.array([e.ph for e in events])
    correlation: I64 = np.array([(e.args.correlation if e.args else None) or -1 for e in events], np.int64)
    kept = (phase == "M") | ((start <= last) & (end >= first) & ~np.isin(phase, ["s", "t", "f"]))
    tied = np.isin(correlation, np.unique(correlation[kept & (correlation > 0)])) & (phase == "X")
    kept |= tied
    arrows = np.isin(phase, ["s", "t", "f"])
    ids = [str(e.id) + e.cat if arrow else "" for e, arrow in zip(events, arrows.tolist(), strict=True)]
    inside = {i for i, a, t in zip(ids, arrows, start, strict=True) if a and first <= t <= last}
    kept |= arrows & np.array([i in inside for i in ids])
    mask: Mask = kept
    return mask
