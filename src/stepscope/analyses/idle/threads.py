"""What the launching thread did while the GPU had no work: it ran, waited for something, or had no CPU (semantics §6).

Scheduling says exactly when it had a CPU, and traced calls say exactly in which it was. What it ran outside of them is
known by samples: its time is shared among them in proportion, so that parts still sum to the idle time.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from stepscope.derive.host.idle_causes import GIL, HOST, QUEUE, TAIL, UNLINKED, Pieces
from stepscope.derive.rank.data import RankData
from stepscope.intervals import distinct, union
from stepscope.intervals.arrays import I64, NONE, Mask, one_of, take
from stepscope.model.nesting import nest
from stepscope.model.profile import Profile

STATES = ("running", "blocked", "descheduled", "unknown", "launched", "tail", "unlinked")
RUNNING, BLOCKED, DESCHEDULED, UNKNOWN, LAUNCHED, AT_TAIL, OF_UNLINKED = range(len(STATES))
#: Of stretches that are nobody's fault: the launch is over, or there is none.
_NO_THREAD = {QUEUE: LAUNCHED, TAIL: AT_TAIL, UNLINKED: OF_UNLINKED}
#: Calls of the operating system and of communication, in which a thread without a CPU waits.
_CALLS_OF_SYSTEM = ("osrt", "mpi", "ucx")
#: An address that nsys found no name for.
_UNRESOLVED = r"^0x[0-9a-fA-F]+$"
_COLUMNS = {"piece": pl.Int64, "state": pl.Int64, "doing": pl.String, "samples": pl.Int64, "ns": pl.Int64}


class _Atoms(Struct, frozen=True):
    """Parts of the pieces of one thread in each of which nothing changes."""

    piece: I64
    start: I64
    end: I64
    state: I64
    doing: pl.Series  # null where only samples can tell


def thread_time(profile: Profile, data: RankData, pieces: Pieces) -> pl.DataFrame:
    """`piece`, `state`, `doing`, `samples` and `ns`: every piece in parts that sum to it.

    `piece` is null, and `samples` is how many there were, in rows whose time is shared among samples.
    """
    others = np.flatnonzero(one_of(pieces.cause, _NO_THREAD))
    state = np.array([_NO_THREAD[cause] for cause in pieces.cause[others].tolist()], dtype=np.int64)
    parts = [
        pl.DataFrame({"piece": others, "state": state, "ns": (pieces.end - pieces.start)[others]}).select(
            "piece", "state", pl.lit(None, pl.String).alias("doing"), pl.lit(None, pl.Int64).alias("samples"), "ns"
        )
    ]
    mine = np.flatnonzero(~one_of(pieces.cause, _NO_THREAD))
    for thread in np.unique(pieces.tid[mine]).tolist():
        atoms = _atoms(profile, data, pieces, mine[pieces.tid[mine] == thread], thread)
        settled = atoms.doing.is_not_null().to_numpy() | ~np.isin(atoms.state, (RUNNING, UNKNOWN))
        parts.append(
            pl.DataFrame(
                {
                    "piece": atoms.piece[settled],
                    "state": atoms.state[settled],
                    "doing": atoms.doing.filter(pl.Series(settled)),
                    "samples": pl.repeat(None, int(settled.sum()), dtype=pl.Int64, eager=True),
                    "ns": (atoms.end - atoms.start)[settled],
                },
                schema=_COLUMNS,
            )
        )
        parts += [_sampled(profile, data, atoms, ~settled & (atoms.state == s), thread, s) for s in (RUNNING, UNKNOWN)]
    return pl.concat(parts)


def thread_of(profile: Profile, data: RankData, pieces: Pieces) -> pl.Series:
    """What the launching thread was for the longest part of each piece; null where nothing says, or nobody's matter."""
    states = pl.repeat(None, len(pieces.start), dtype=pl.String, eager=True).alias("thread")
    if not profile.has("off_cpu"):
        return states
    mine = np.flatnonzero(~one_of(pieces.cause, _NO_THREAD))
    parts = [
        _atoms(profile, data, pieces, mine[pieces.tid[mine] == thread], thread)
        for thread in np.unique(pieces.tid[mine]).tolist()
    ]
    if not parts:
        return states
    table = pl.concat([pl.DataFrame({"piece": a.piece, "state": a.state, "ns": a.end - a.start}) for a in parts])
    longest = (
        table.group_by("piece", "state")
        .agg(pl.col("ns").sum())
        .sort(["piece", "ns", "state"], descending=[False, True, False])
        .unique("piece", keep="first", maintain_order=True)
    )
    return states.scatter(longest["piece"], pl.Series(STATES).gather(longest["state"]))


def _atoms(profile: Profile, data: RankData, pieces: Pieces, rows: I64, thread: int) -> _Atoms:
    wanted = union(pieces.start[rows], pieces.end[rows])
    off = data.off_cpu.filter(pl.col("tid") == thread)
    system = data.host.filter(pl.col("kind").is_in(_CALLS_OF_SYSTEM) & (pl.col("tid") == thread))
    off_start, off_end, in_start, in_end = (f[c].to_numpy() for f in (off, system) for c in ("start_ns", "end_ns"))
    cuts = np.concatenate([off_start, off_end, in_start, in_end])
    edges = distinct(pieces.start[rows], pieces.end[rows], cuts[wanted.contains(cuts)])
    at = edges[:-1]
    inside = wanted.contains(at)
    at, stop = at[inside], edges[1:][inside]
    order = rows[np.argsort(pieces.start[rows], kind="stable")]
    piece = order[np.searchsorted(pieces.start[order], at, side="right") - 1]
    zeros = np.zeros(len(at), dtype=np.int64)
    out, within = (
        nest(np.zeros(len(start), np.int64), start, end).enclosing(zeros, at)
        for start, end in ((off_start, off_end), (in_start, in_end))
    )
    call = np.where(~one_of(pieces.cause[piece], (HOST, GIL)), pieces.call[piece], NONE)
    names = profile.names
    # What it was in: the call of the system, else the CUDA call, else what the scheduler says it waits for.
    of_system = system["kind"].cast(pl.String) + ": " + names.gather(system["name"])
    doing = pl.select(
        pl.coalesce(
            _gather(of_system, within),
            _gather(names, take(data.calls["name"].cast(pl.Int64).to_numpy(), call, NONE)),
            _gather(names.gather(off["reason"]), out),
        )
    ).to_series()
    return _Atoms(piece, at, stop, _states(profile, data, off, out, within, call), doing)


def _states(profile: Profile, data: RankData, off: pl.DataFrame, out: I64, within: I64, call: I64) -> I64:
    """A thread without a CPU is blocked where the scheduler says that it waits, else where it is in a call."""
    scheduled = profile.has("off_cpu") and data.off_cpu.height > 0
    waits, pushed_off = (take((off["state"] == state).to_numpy(), out, False) for state in ("waiting", "runnable"))
    blocked = waits | ((within != NONE) | (call != NONE)) & ~pushed_off
    return np.where(out != NONE, np.where(blocked, BLOCKED, DESCHEDULED), RUNNING if scheduled else UNKNOWN)


def _gather(texts: pl.Series, rows: I64) -> pl.Series:
    """Texts by row, null for NONE."""
    if len(texts) == 0:
        return pl.repeat(None, len(rows), dtype=pl.String, eager=True)
    return texts.gather(pl.Series(rows).replace(NONE, None))


def _sampled(profile: Profile, data: RankData, atoms: _Atoms, rows: Mask, thread: int, state: int) -> pl.DataFrame:
    """The time of some atoms, shared among the samples that fall into them.

    Native samples are of what runs: where nothing says when the thread ran, only Python's, taken at all times, count.
    """
    total = int((atoms.end - atoms.start)[rows].sum())
    if not total:
        return pl.DataFrame(schema=_COLUMNS)
    spans = union(atoms.start[rows], atoms.end[rows])
    samples = data.samples.filter(pl.col("tid") == thread)
    samples = samples.filter(pl.Series(spans.contains(samples["start_ns"].to_numpy())))
    native = samples.filter(pl.col("kind") == "native")
    samples = native if native.height and state == RUNNING else samples.filter(pl.col("kind") == "python")
    counted = (
        samples.select(doing=sample_texts(profile, samples)).group_by("doing").agg(samples=pl.len().cast(pl.Int64))
    )
    if counted.height == 0:
        counted = pl.DataFrame({"doing": [None], "samples": [0]}, schema={"doing": pl.String, "samples": pl.Int64})
    counted = counted.sort(["samples", "doing"], descending=[True, False])
    share = np.maximum(counted["samples"].to_numpy(), 1)
    upto = np.cumsum(share).astype(np.float64) / share.sum()
    ns = np.diff(np.round(upto * total).astype(np.int64), prepend=0)
    return counted.select(
        pl.lit(None, pl.Int64).alias("piece"),
        pl.lit(state, pl.Int64).alias("state"),
        "doing",
        "samples",
        pl.Series("ns", ns),
    )


def sample_texts(profile: Profile, samples: pl.DataFrame) -> pl.Series:
    """`function [module]` of each sample, without arguments and templates; `? [module]` for what has no name."""
    if samples.height == 0:
        return pl.Series([], dtype=pl.String)
    names = profile.names
    function = names.gather(samples["name"]).str.replace(_UNRESOLVED, "?").str.replace(r"^(?:void|bool|int) ", "")
    for _ in range(6):  # templates within templates, from the innermost
        function = function.str.replace_all(r"<[^<>]*>", "")
    function = function.str.replace(r"\(.*$", "")
    module = names.gather(samples["file"]).str.extract(r"([^/\\]*)$").fill_null("?")
    return pl.select(pl.when(function == "").then(pl.lit("?")).otherwise(function) + " [" + module + "]").to_series()
