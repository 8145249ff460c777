"""Communication that could run beside compute, and does not, because of how it was issued.

Three ways to do it, each told by what is recorded:

- `waited`: the compute stream waits for an op as soon as it was launched, although what needs its result waits for it
  again, later. The first wait is taken out.
- `gradients`: a reduction over data-parallel ranks is waited for at once, although nothing needs it before the
  optimizer, where the program waits for that stream anyway. The wait is taken out.
- `inline`: the op is on the compute stream itself, although the program waits for it later as if it were not. It is
  put on a stream of its own.

What it gives back is the step replayed so. Communication that is waited for at once, and never again, may be needed at
once: what it could give back is the step replayed with it taking no time, which is a bound only, and confidence is low.
The pipeline's send/recv is not counted there, since a stage needs what it receives.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.analyses._change import Change
from stepscope.analyses._comm import CommOps, comm_ops
from stepscope.analyses._commkind import ALL_REDUCE, REDUCE_SCATTER
from stepscope.analyses._members import ranks_text
from stepscope.analyses._rank import COMM, COMPUTE, NO_STAGE, RankData
from stepscope.analyses._window import Window
from stepscope.errors import CannotAnswer
from stepscope.findings.case import Case
from stepscope.findings.detectors.slow_link import places_of
from stepscope.findings.finding import Finding
from stepscope.findings.firsts import without_first_uses
from stepscope.findings.hosts import sure
from stepscope.findings.meets import reduces_gradients, sides
from stepscope.findings.parts import most_exposed, parts, said
from stepscope.findings.words import ms
from stepscope.model.nesting import NONE
from stepscope.model.profile import Profile

ID = "serialized-communication"
I64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
#: Ops of a kind are waited for at once if more than this share of them are.
_NEARLY = 0.9


@dataclass(frozen=True)
class Serialized:
    """Of one rank: ops waited for too early with the rows of those waits in `syncs`, and ops on the compute stream."""

    waits: I64
    waited: I64
    inline: I64
    lane: I64
    gradients: int  # of the ops: reductions that only the optimizer needs
    at_once: I64  # all ops that are waited for as soon as they are launched


def serialized(case: Case) -> dict[int, Serialized]:
    """What each rank serializes."""
    if not case.profile.has("syncs"):
        return {}
    group = _groups(case)
    found = {}
    for rank, mine in case.each_rank(lambda _, d, w: _of_rank(d, w, group.get(d.rank))).items():
        if mine is not None:
            found[rank] = mine
    return found


def _groups(case: Case) -> dict[int, pl.DataFrame]:
    """By rank: op, a number of its communicator and operation, and whether it is a reduction of gradients."""
    try:
        table, gradient = case.once(sides), reduces_gradients(case)
    except CannotAnswer:
        return {}
    names = [c for c, yes in gradient.items() if yes]
    table = table.select(
        "rank",
        "op",
        pl.struct("communicator", "kind").rank("dense").cast(pl.Int64).alias("lane"),
        (pl.col("kind").is_in([ALL_REDUCE, REDUCE_SCATTER]) & pl.col("communicator").is_in(names)).alias("gradient"),
    ).unique(["rank", "op"], keep="first")
    # The optimizer needs the last one of a step at once.
    key = ["rank", "lane"]
    nth, per_step = pl.col("op").rank("ordinal").over(key), pl.len().over(key) // case.steps
    table = table.with_columns(pl.col("gradient") & (per_step > 1) & (nth % per_step != 0))
    return {int(key[0]): frame for key, frame in table.partition_by("rank", as_dict=True).items()}


def _of_rank(data: RankData, window: Window, group: pl.DataFrame | None) -> Serialized | None:
    waits = _waits(data)
    inside = np.zeros(len(data.start), dtype=bool)
    inside[window.ops] = True
    gradient, lane = np.zeros(len(data.start), dtype=bool), np.zeros(len(data.start), np.int64)
    if group is not None:
        gradient[group["op"].to_numpy()] = group["gradient"].to_numpy()
        lane[group["op"].to_numpy()] = group["lane"].to_numpy()
    waits = waits.filter(pl.Series(inside[waits["op"].to_numpy()])) if waits.height else waits
    if waits.height == 0:
        return None
    computing = np.unique(data.stream[window.ops[data.role[window.ops] == COMPUTE]])
    waits = waits.filter(pl.col("by").is_in(computing.tolist()))
    op, by, of = (waits[c].to_numpy() for c in ("op", "by", "of"))
    launched = data.launched_at
    compute_at = {s: np.sort(launched[(data.role == COMPUTE) & (data.stream == s)]) for s in computing.tolist()}

    def launches(stream: I64, lo: I64, hi: I64) -> I64:
        """Compute launched on a stream between two moments."""
        found = np.zeros(len(lo), np.int64)
        for s, at in compute_at.items():
            mine = stream == s
            found[mine] = np.searchsorted(at, hi[mine]) - np.searchsorted(at, lo[mine])
        return found

    time = waits["start_ns"].to_numpy()
    other = by != of
    at_once = other & (launches(by, launched[op], time) == 0)
    # The last wait of a stream for the op is its consumer's; compute between the two is what could run beside it.
    last = waits.select(pl.col("start_ns").max().over("op", "by"))["start_ns"].to_numpy()
    again = at_once & (last > time) & (launches(by, time, last) > 0)
    # Gradients: a later wait for that stream, after more compute, is enough.
    final = waits.select(pl.col("start_ns").max().over("of", "by"))["start_ns"].to_numpy()
    grads = at_once & ~again & gradient[op] & (launches(by, time, final) > 0)
    early = again | grads
    inline = _inline(data, window, waits, gradient, computing)
    return Serialized(
        waits["row"].to_numpy()[early],
        np.unique(op[early]),
        inline,
        lane[inline],
        int(len(np.unique(op[grads])) + gradient[inline].sum()),
        np.unique(op[at_once]),
    )


def _waits(data: RankData) -> pl.DataFrame:
    """Waits of streams for events behind communication: row of `syncs`, start_ns, by, of (streams), and the op."""
    syncs = data.syncs.with_row_index("row")
    records = syncs.filter(
        (pl.col("kind") == "record") & pl.col("event").is_not_null() & pl.col("stream").is_not_null()
    )
    waits = syncs.filter(
        (pl.col("kind") == "stream_wait") & pl.col("event").is_not_null() & pl.col("stream").is_not_null()
    )
    met = (
        waits.select("row", "start_ns", "event", pl.col("stream").cast(pl.Int64).alias("by"))
        .sort("start_ns")
        .join_asof(
            records.select(
                "start_ns", "event", pl.col("stream").cast(pl.Int64).alias("of"), pl.col("start_ns").alias("at")
            ).sort("start_ns"),
            on="start_ns",
            by="event",
            strategy="backward",
            check_sortedness=False,
        )
        .drop_nulls("of")
    )
    ops = pl.DataFrame(
        {
            "op": np.arange(len(data.start)),
            "of": data.stream.astype(np.int64),
            "at": data.launched_at,
            "role": data.role,
        }
    ).sort("at")
    met = met.sort("at").join_asof(ops, on="at", by="of", strategy="backward", check_sortedness=False).drop_nulls("op")
    met = met.filter(pl.col("role") == COMM).sort("start_ns", "row")
    return met.select(pl.col("row").cast(pl.Int64), "start_ns", "by", "of", pl.col("op").cast(pl.Int64))


def _inline(
    data: RankData, window: Window, waits: pl.DataFrame, gradient: Mask, computing: npt.NDArray[np.int32]
) -> I64:
    """Ops on a compute stream that the stream itself waits for, later; and reductions of gradients like them."""
    own = waits.filter(pl.col("by") == pl.col("of"))
    if own.height == 0:
        return np.empty(0, np.int64)
    told = own["op"].to_numpy()
    mine = window.ops[data.role[window.ops] == COMM]
    mine = mine[np.isin(data.stream[mine], computing)]
    until = own.group_by("of").agg(pl.col("start_ns").max())
    last = dict(until.iter_rows())
    end = np.array([last.get(int(s), NONE) for s in data.stream[mine].tolist()], dtype=np.int64)
    grads = mine[gradient[mine] & (data.launched_at[mine] < end)]
    found: I64 = np.union1d(told, grads).astype(np.int64)
    return found


def change(case: Case) -> Change:
    """The step with nothing serialized."""
    found = case.once(serialized)
    return Change(
        unwaited={r: s.waits for r, s in found.items() if len(s.waits)},
        aside={r: (s.inline, s.lane) for r, s in found.items() if len(s.inline)},
    )


def at_once(case: Case) -> set[str]:
    """Kinds of communication (`parts`) that are waited for at once on all ranks."""
    known = case.once(serialized)
    found: dict[str, bool] = {}
    for rank, mine in case.once(parts).items():
        for key, part in mine.items():
            s = known.get(rank)
            issued = s is not None and _most(np.isin(part.ops, s.at_once))
            found[key] = found.get(key, True) and issued and 2 * int(part.exposed.sum()) > part.comm_ns
    return {key for key, yes in found.items() if yes and key != "pp_p2p"}


def _most(mask: Mask) -> bool:
    return bool(mask.mean() > _NEARLY) if len(mask) else False


def detect(case: Case) -> list[Finding]:
    found = {r: s for r, s in case.once(serialized).items() if len(s.waited) or len(s.inline)}
    return [*_bounded(case), *(_shown(case, found) if found else [])]


def _bounded(case: Case) -> list[Finding]:
    """Communication that is waited for at once, and nothing shows when its result is needed."""
    keys = sorted(case.once(at_once))
    mine = {r: [of[k] for k in keys if k in of] for r, of in case.once(parts).items()}
    wall = {r: sum(p.wall_ns for p in ps) for r, ps in mine.items()}
    if not keys or not case.material(max(wall.values())):
        return []
    joined = {r: np.unique(np.concatenate([p.ops for p in ps])) for r, ps in mine.items() if ps}
    ranks = tuple(sorted(joined))
    names = (
        said(keys[0])
        if len(keys) == 1
        else "communication of " + ", ".join(k.replace("_", "-") if not k.startswith("stage") else k for k in keys)
    )
    saved = case.saved(
        Change(instant=joined), sum(wall.values()), beside=case.once(change) & case.once(without_first_uses)
    )
    n = sum(map(len, joined.values())) // len(joined) // case.steps
    return [
        Finding(
            ID,
            f"{names} {'are' if names.endswith('s') else 'is'} waited for at once, so that nothing runs beside it",
            saved,
            "low",
            f"{n} communications per rank and step: the compute stream waits for each before anything else is launched; "
            f"up to {ms(max(wall.values()) / case.steps)} per rank and step have no compute beside them. How much of it "
            "is needed at once is not recorded",
            "if the result is not needed at once, wait where it is used (`work.wait()` just before it), and launch "
            "compute that does not need it in between",
            ("overlap", ""),
            ranks=ranks,
            stage=keys[0] if len(keys) == 1 and keys[0].startswith("stage") else None,
            where=places_of(case, most_exposed({r: p for r, ps in mine.items() for p in ps[:1]})),
        )
    ]


def _shown(case: Case, found: dict[int, Serialized]) -> list[Finding]:
    measured = case.each_rank(lambda p, d, w: _exposed(p, d, w, found.get(d.rank)))
    longest = max(ns for ns, _, _, _ in measured.values())
    if not case.material(longest):
        return []
    ops = [op for _, ops, _, _ in measured.values() for op in ops]
    stages = sorted({s for _, _, stages, _ in measured.values() for s in stages})
    waited = sum(len(s.waited) for s in found.values())
    inline = sum(len(s.inline) for s in found.values())
    gradients = sum(s.gradients for s in found.values())
    ranks = tuple(sorted(found))
    per_step = (waited + inline) // max(len(found), 1) // case.steps
    how = []
    if waited:
        how.append("the compute stream waits for them as soon as they are launched, although it waits again later")
    if inline:
        how.append("they are on the compute stream itself, although it waits for them later")
    if gradients:
        how.append(f"{gradients // max(len(found), 1) // case.steps} reduce gradients, which only the optimizer needs")
    who = "every rank" if len(ranks) == len(case.ranks) else f"rank{'s' * (len(ranks) > 1)} {ranks_text(ranks)}"
    issued = "waited for at once" if waited >= inline else "issued on the compute stream"
    name = f"communication of {stages[0]}" if len(stages) == 1 else "communication"
    return [
        Finding(
            ID,
            f"{name} is {issued}, so that nothing runs beside it",
            case.saved(case.once(change), sum(ns for ns, _, _, _ in measured.values())),
            sure(case),
            f"{per_step} communications per step on {who}: {'; '.join(how)}; {ms(longest / case.steps)} of them per "
            "step have no compute beside them",
            "wait where the result is used (`work.wait()` just before it), and launch compute that does not need it in "
            "between" + ("; give it a stream of its own (async_op=True)" if inline else ""),
            ("overlap", f"--rank {ranks_text(ranks)}" if len(ranks) < len(case.ranks) else ""),
            ranks=ranks,
            stage=stages[0] if len(stages) == 1 else None,
            where=places_of(case, [(r, o) for _, r, o in sorted(ops, reverse=True)[:10]]),
        )
    ]


def _exposed(
    profile: Profile, data: RankData, window: Window, mine: Serialized | None
) -> tuple[int, list[tuple[int, int, int]], set[str], int]:
    """Time without compute beside a rank's serialized ops, the longest of them, and their stages."""
    if mine is None:
        return 0, [], set(), 0
    comm: CommOps = comm_ops(data, window)
    chosen = np.isin(comm.ops, np.union1d(mine.waited, mine.inline))
    ops, exposed = comm.ops[chosen], comm.exposed[chosen]
    order = np.argsort(-exposed, kind="stable")[:10]
    stages = {s for s in data.stage_of(ops).unique().to_list() if s != NO_STAGE} if len(ops) else set()
    places = [(int(exposed[i]), data.rank, int(ops[i])) for i in order.tolist()]
    return int(exposed.sum()), places, stages, len(ops)
