"""The critical path, walked backwards from the last op of the step (semantics §7).

Between two communications the way back lies within one rank, and does not depend on the others: each rank says of its
communication ops which one it comes from (`links`). Over those few rows goes the walk from rank to rank, to the last
arrival at each communication; only the stretches that it visits are then spelled out, rank by rank (`stretches`).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct, field

from stepscope.derive.comm.across import Across, across
from stepscope.derive.comm.collecting import collected, facts_of
from stepscope.derive.comm.common_clock import CommonClock
from stepscope.derive.comm.ending import ending_sides
from stepscope.derive.graph.releases import nearest_comm, releases
from stepscope.derive.graph.segments import Wanted, stretches
from stepscope.derive.rank.data import COMM, RankData
from stepscope.derive.rank.graphs import graph_counts, notes_of_counts
from stepscope.derive.rank.needs import no_gpu_activity
from stepscope.derive.windows.choosing import settled, step
from stepscope.derive.windows.spec import WindowSpec
from stepscope.errors import CannotAnswer
from stepscope.intervals.arrays import I64, NONE
from stepscope.model.note import Note, noted
from stepscope.model.profile import Profile
from stepscope.model.range_names import short_range

#: Of each communication op of a rank, the one before it on its way back, NONE without.
_LINKS: dict[str, pl.DataType | type[pl.DataType]] = {
    "rank": pl.Int32,
    "op": pl.Int64,
    "before": pl.Int64,
    "end_ns": pl.Int64,
}
#: Of each rank, its step: the op that ends last in it, and how much of its dependencies is known.
_STEPS: dict[str, pl.DataType | type[pl.DataType]] = {
    **_LINKS,
    "begin_ns": pl.Int64,  # when it began on the GPU
    "cpu_start_ns": pl.Int64,  # when the host began it
    "launched_ns": pl.Int64,  # its first launch
    "pid": pl.Int64,
    "label": pl.String,
    "index": pl.Int64,
    "count": pl.Int64,
    "cpu_end_ns": pl.Int64,
    "kind": pl.String,
    "unresolved": pl.Int64,
    "inferred": pl.Int64,
    "events": pl.Boolean,
}
#: Of each rank: how many ops it has, and what CUDA graphs did to them.
_SEEN: dict[str, pl.DataType | type[pl.DataType]] = {
    "ops": pl.Int64,
    "graphs": pl.Int64,
    "replayed": pl.Int64,
    "graph_launches": pl.Int64,
}


class Links(Struct, frozen=True):
    """The `links`, the `steps` and the `seen` of one rank: facts that are derived where the rank is read."""

    spec: WindowSpec

    def __call__(self, part: Profile, data: RankData, sides: pl.DataFrame) -> dict[str, pl.DataFrame]:
        return _links(part, data, self.spec)


def _links(part: Profile, data: RankData, spec: WindowSpec) -> dict[str, pl.DataFrame]:
    by_rank = releases(data)
    comm = np.flatnonzero(data.role == COMM).astype(np.int64)
    chain = {"rank": [data.rank] * len(comm), "op": comm, "before": nearest_comm(data, comm)}
    ends = []
    for span in step(part, spec).of(data.rank):
        if span.gpu_start_ns is None or span.gpu_end_ns is None or len(span.ops) == 0:
            continue
        last = int(span.ops[np.argmax(data.end[span.ops])])
        end = int(data.end[last])
        ends.append(
            {
                "rank": data.rank,
                "op": last,
                "before": int(nearest_comm(data, np.array([last]))[0]),
                "end_ns": min(end, span.gpu_end_ns) if span.clipped else end,
                "begin_ns": span.gpu_start_ns,
                "cpu_start_ns": span.cpu_start_ns,
                "launched_ns": int(data.launched_at[span.ops].min()),
                "pid": data.pid,
                "label": span.label,
                "index": span.index,
                "count": span.count,
                "cpu_end_ns": span.cpu_end_ns,
                "kind": span.kind,
                "unresolved": by_rank.unresolved,
                "inferred": by_rank.inferred,
                "events": bool((data.syncs["kind"] == "record").any()),
            }
        )
    return {
        "links": pl.DataFrame({**chain, "end_ns": data.end[comm]}, schema=_LINKS),
        "steps": pl.DataFrame(ends, schema=_STEPS),
        "seen": pl.DataFrame([(len(data.start), *graph_counts(data))], schema=_SEEN, orient="row"),
    }


class Path(Struct):
    """The path, latest piece first: boundaries are on the common clock, `up[i]` to `down[i]`."""

    begin: int
    end: int
    label: str
    pieces: pl.DataFrame
    up: I64
    down: I64
    steps: pl.DataFrame
    met: Across | None
    begun: dict[int, int]  # when each rank began the step
    clock: CommonClock
    notes: list[Note] = field(default_factory=list)


def collect(profile: Profile, spec: WindowSpec, how: str) -> tuple[Across | None, dict[str, pl.DataFrame], list[Note]]:
    """The links and steps of all ranks, and their communication where it can be matched."""
    tables = facts_of(profile, Links(spec))
    try:
        met = across(profile, how)
    except CannotAnswer as why:
        notes = [noted("path-on-one-rank", why=why.message)] if profile.ranks.height > 1 else []
        return None, tables, [*notes, *collected(profile).notes]
    return met, tables, list(met.notes)


def walk(profile: Profile, spec: WindowSpec, how: str) -> Path:
    """The critical path of the step that `spec` chooses."""
    spec = settled(profile, spec)
    met, tables, notes = collect(profile, spec, how)
    if tables["seen"]["ops"].sum() == 0:
        raise no_gpu_activity()
    clock = CommonClock.of(met)
    steps = _same_step(tables["steps"], spec, notes)
    ends = {
        r: (clock.moment(r, e), op, b) for r, e, op, b in steps.select("rank", "end_ns", "op", "before").iter_rows()
    }
    begun = {r: clock.moment(r, t) for r, t in steps.select("rank", "begin_ns").iter_rows()}
    begin = _begin(steps, begun)
    rank = max(ends, key=lambda r: (ends[r][0], -r))
    end, op, _ = ends[rank]
    if end < begin:
        raise CannotAnswer(
            f"{short_range(str(steps['label'][0]))!r} ends before it begins: its records contradict each other",
            "choose another step with --index, or capture again",
        )
    visits = _visits(tables["links"], met, clock, rank, op, ends[rank][2], begin, end)
    wanted = _wanted(visits, clock, begin)
    pieces = pl.concat(profile.view(wanted).map(stretches, wanted)).sort("visit", maintain_order=True)
    down = np.full(pieces.height, begin, dtype=np.int64)
    for r in pieces["rank"].unique().to_list():
        mine = ((pieces["rank"] == r) & pieces["down_to"].is_not_null()).to_numpy()
        down[mine] = clock.at(int(r), pieces["down_to"].to_numpy()[mine].astype(np.int64))
    down = np.maximum(np.minimum.accumulate(np.minimum(down, end)), begin)
    up = np.r_[end, down[:-1]] if len(down) else down
    notes += notes_of_counts(tables["seen"].select("graphs", "replayed", "graph_launches").rows())
    return Path(begin, end, str(steps["label"][0]), pieces, up, down, steps, met, begun, clock, notes)


def _begin(steps: pl.DataFrame, begun: dict[int, int]) -> int:
    """When the step began: it follows the one before it, which is over when the last rank is through with it.

    The first step of a capture, and windows that follow nothing, begin with the first rank.
    """
    follows = bool(((steps["kind"] == "step") & (steps["index"] > 0)).all())
    return max(begun.values()) if follows else min(begun.values())


def _same_step(steps: pl.DataFrame, spec: WindowSpec, notes: list[Note]) -> pl.DataFrame:
    """The ranks that have the step in question: medians differ where ranks recorded different numbers of steps."""
    if steps.height == 0:
        raise CannotAnswer("no GPU work in the window on any rank", "choose another window, or --whole")
    labels = steps["label"].to_list()
    if len(set(labels)) == 1 or spec.start is not None:
        return steps
    label = max(sorted(set(labels)), key=labels.count)
    notes.append(noted("steps-differ", same=labels.count(label), all=len(labels), label=label))
    return steps.filter(pl.col("label") == label)


def _visits(
    links: pl.DataFrame, met: Across | None, clock: CommonClock, rank: int, op: int, before: int, begin: int, end: int
) -> list[tuple[int, int]]:
    """The (rank, op) from whose start each stretch of the path goes back, from the last to the first."""
    chain = links.sort("rank", "op")
    key = _key(chain["rank"].to_numpy(), chain["op"].to_numpy())
    links_before, link_end = chain["before"].to_numpy(), chain["end_ns"].to_numpy()
    holder = _Holders(met)
    visits: list[tuple[int, int]] = []
    at = end
    comm = bool(len(key)) and key[min(int(np.searchsorted(key, _one(rank, op))), len(key) - 1)] == _one(rank, op)
    while True:
        if comm:
            rank, op = holder.last(rank, op, at)
            row = int(np.searchsorted(key, _one(rank, op)))
            before = int(links_before[row])
        visits.append((rank, op))
        if before == NONE:
            return visits
        row = int(np.searchsorted(key, _one(rank, before)))
        at = clock.moment(rank, int(link_end[row]))
        if at <= begin:
            return visits
        op, comm = before, True


def _key(rank: npt.NDArray[np.int32], op: I64) -> I64:
    return (rank.astype(np.int64) << 40) | op


def _one(rank: int, op: int) -> int:
    return (rank << 40) | op


class _Holders:
    """Which rank's arrival let a communication op end."""

    def __init__(self, met: Across | None) -> None:
        self._keys = np.empty(0, np.int64)
        if met is None:
            return
        ops = met.matched.sides["op"].to_numpy()
        ended = ending_sides(met).sort("rank", "op")
        self._keys = _key(ended["rank"].to_numpy(), ended["op"].to_numpy())
        meeting = met.meeting[ended["side"].to_numpy()]
        side = met.last_side[meeting]
        self._rank, self._op, self._time = met.rank[side], ops[side], met.last[meeting]

    def last(self, rank: int, op: int, until: int) -> tuple[int, int]:
        """The rank and op that came last, or the op itself where nobody is known to have come later."""
        wanted = _one(rank, op)
        k = int(np.searchsorted(self._keys, wanted))
        if k == len(self._keys) or self._keys[k] != wanted or self._time[k] > until:
            return rank, op
        return int(self._rank[k]), int(self._op[k])


def _wanted(visits: list[tuple[int, int]], clock: CommonClock, begin: int) -> Wanted:
    """By rank: number of the visit, op, and the rank's own time of the step's beginning, about."""
    wanted: Wanted = {}
    for number, (rank, op) in enumerate(visits):
        if rank not in wanted:
            wanted[rank] = []
        wanted[rank].append((number, op, 2 * begin - clock.moment(rank, begin) - 1_000_000))
    return wanted
