"""What the threads of the host ran, as rows: torch ops, Python functions, calls of the OS and of libraries.

One stack per thread, a row per depth, as a profiler's flame chart has it: what a function called lies below it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from stepscope.derive.rank.data import RankData, ranks_of
from stepscope.intervals.arrays import I64
from stepscope.model.nesting import nest
from stepscope.model.profile import Profile
from stepscope.timeline.kinds import MARKS
from stepscope.timeline.messages import Group
from stepscope.timeline.track import Track
from stepscope.web.rows import Reading

GROUP: Group = "functions"
#: By kind of the host's table: how it is drawn, and what it is called; the others are calls.
_KINDS = {"cpu_op": ("torch", "torch ops"), "python": ("python", "Python functions")}
_OTHERS = ("call", "calls of the OS and libraries")
#: Facts of a torch op that are read when somebody asks.
_FACTS = (("shapes", "shapes"), ("types", "types"), ("inputs", "inputs"), ("autograd sequence number", "sequence"))
_CALLED = {"cpu_op": "torch op", "python": "Python function", "osrt": "call of the OS"}


def functions(of: Reading) -> Iterator[Track]:
    """Rows of every thread, the outermost first."""
    if not of.profile.has("host"):
        return
    for data in ranks_of(of.profile):
        if data.rank in of.making.lines and data.host.height:
            yield from _of_rank(of, data)


def _of_rank(of: Reading, data: RankData) -> Iterator[Track]:
    host, line = data.host, of.making.lines[data.rank]
    start, end = (line.at(host[name].to_numpy()) for name in ("start_ns", "end_ns"))
    tid, kind = host["tid"].cast(pl.Int64).to_numpy(), host["kind"].cast(pl.String)
    name = of.numbering(host["name"].unique())[host["name"].to_numpy()]
    drawn = list(dict.fromkeys(_KINDS.get(k, _OTHERS) for k in kind.unique().sort()))
    number = {k: drawn.index(_KINDS.get(k, _OTHERS)) for k in kind.unique()}
    family = kind.replace_strict(number, return_dtype=pl.UInt8).to_numpy()
    marks = np.array([MARKS.index(mark) for mark, _ in drawn], np.uint8)
    families = of.making.families.ids([title for _, title in drawn])
    depth = nest(tid, start, end).depth()
    for thread in np.unique(tid).tolist():
        mine = np.flatnonzero(tid == thread)
        mine = mine[np.argsort(start[mine], kind="stable")]
        what = ", ".join(drawn[k][1] for k in np.unique(family[mine]).tolist())
        for level in np.unique(depth[mine]).tolist():
            rows = mine[depth[mine] == level]  # of one depth no two run at once: the later would lie in the earlier
            yield Track(
                data.rank,
                GROUP,
                thread,
                f"thread {thread}: {what}" if level == 0 else "",
                start[rows],
                end[rows],
                name[rows],
                family[rows],
                marks,
                families,
                rows,
            )


def launched(data: RankData, row: int) -> I64:
    """Ops whose launch lies within a function's time, on its thread: it, or what it called, launched them."""
    tid, start, end = (data.host[name][row] for name in ("tid", "start_ns", "end_ns"))
    inside = (data.calls["tid"] == tid) & data.calls["start_ns"].is_between(start, end, closed="left")
    ops: I64 = np.flatnonzero(np.isin(data.launch, np.flatnonzero(inside.to_numpy())))
    return ops


def facts(profile: Profile, data: RankData, row: int) -> list[tuple[str, str, str]]:
    """What was recorded of a function beside its name."""
    kind = str(data.host["kind"][row])
    facts = [("what", f"{_CALLED.get(kind, kind)}, thread {data.host['tid'][row]}", "text")]
    detail = next(frame for rank, frame in profile.by_rank("host", detail=True) if rank == data.rank)
    (known,) = detail[row].to_dicts()
    for title, key in _FACTS:
        if known.get(key) is not None:
            text = str(known[key]) if key == "sequence" else profile.names[known[key]]
            facts += [(title, text, "text")] if text.strip("[] ,") else []
    return facts
