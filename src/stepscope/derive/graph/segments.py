"""The stretches of a critical path, spelled out: every op on the way, and what released it (see `critical_path`)."""

from __future__ import annotations

import numpy as np
import polars as pl

from stepscope.derive.graph.releases import BY_LAUNCH, BY_NOTHING, Releases, in_runs, releases
from stepscope.derive.rank.at_once import of_each
from stepscope.derive.rank.data import COMM, COPY, RankData, ranks_of
from stepscope.intervals.arrays import I64, NONE, one_of
from stepscope.model.profile import Profile

KINDS = ("compute", "comm", "copy", "queue", "launch", "host", "sync")
_COMPUTE, _COMM, _COPY, _QUEUE, _LAUNCH, _HOST, _SYNC = range(len(KINDS))

#: A piece of the path, latest first; null `down_to` is the beginning of the step.
_PIECES: dict[str, pl.DataType | type[pl.DataType]] = {
    "visit": pl.Int64,
    "rank": pl.Int64,
    "kind": pl.Int64,
    "stream": pl.Int64,
    "name": pl.String,
    "range": pl.String,
    "down_to": pl.Int64,
}

#: By rank: number of the visit, op, and the rank's own time of the step's beginning, about.
Wanted = dict[int, list[tuple[int, int, int]]]


def stretches(part: Profile, wanted: Wanted) -> pl.DataFrame:
    """The pieces of all visits to the ranks of this part, each from the start of its op back to a communication."""

    def of_rank(data: RankData) -> pl.DataFrame:
        pieces = _spelled(part, data, releases(data), wanted[data.rank])
        data.forget(in_runs)
        return pieces

    visited = [data for data in ranks_of(part) if data.rank in wanted]
    return pl.concat([pl.DataFrame(schema=_PIECES), *of_each(part, visited, of_rank)])


def _spelled(part: Profile, data: RankData, releases: Releases, wanted: list[tuple[int, int, int]]) -> pl.DataFrame:
    # A stretch ends where the next state is the end of a communication.
    follow = releases.next_state
    follow = np.where((follow != NONE) & ((follow & 1 & (data.role[follow >> 1] == COMM)) == 0), follow, NONE)
    order, head = data.once(in_runs)
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    states = [np.empty(0, np.int64)]
    visit: list[int] = []
    for number, op, begin in wanted:
        first = int(np.searchsorted(data.start, begin))  # ops are in order of start
        state = 2 * op + 1
        while state != NONE and state >> 1 >= first:
            last = int(place[state >> 1])
            run = order[head[last] : last + 1]
            back = 2 * run[np.searchsorted(run, first) :][::-1] + 1
            back[0] = state
            states.append(back)
            visit += [number] * len(back)
            state = int(follow[run[0]]) if len(back) == len(run) else NONE
    return _pieces(part, data, releases, np.concatenate(states), np.array(visit, dtype=np.int64))


def _pieces(part: Profile, data: RankData, releases: Releases, states: I64, visit: I64) -> pl.DataFrame:
    """The pieces of each state, latest first: the op itself, then what it waited for."""
    op, through = states >> 1, (states & 1).astype(bool)
    why, source, wait = releases.why[op], releases.source[op], releases.wait[op]
    launch = data.launch[op]
    call_start, call_end = (data.calls[c].to_numpy() for c in ("start_ns", "end_ns"))
    hosted, stuck = why == BY_LAUNCH, releases.stuck[op]
    waited = hosted & (wait != NONE)
    w = np.maximum(wait, 0)
    target = np.where(waited, releases.waits.op[w] if len(releases.waits.op) else 0, 0)
    w_start = releases.waits.start[w] if len(releases.waits.start) else np.zeros(len(w), dtype=bool)
    w_call = releases.waits.call[w] if len(releases.waits.call) else np.zeros(len(w), np.int64)
    nothing = np.full(len(op), NONE, dtype=np.int64)  # marks a piece that is not there
    n_calls = max(len(call_start), 1)
    safe = np.clip(launch, 0, n_calls - 1)
    role = np.where(data.role[op] == COMM, _COMM, np.where(data.role[op] == COPY, _COPY, _COMPUTE))
    queued = ~hosted & (why != BY_NOTHING)
    columns = [  # kind, op that names it, down to, present, ends at the beginning of the step
        (role, op, data.start[op], through, np.zeros(len(op), dtype=bool)),
        (nothing * 0 + _QUEUE, op, data.end[np.maximum(source, 0)], queued, np.zeros(len(op), dtype=bool)),
        (
            nothing * 0 + _LAUNCH,
            op,
            np.where(stuck, call_end[safe], call_start[safe]) if len(call_start) else nothing,
            hosted,
            np.zeros(len(op), dtype=bool),
        ),
        (
            nothing * 0 + _HOST,
            op,
            call_end[np.clip(w_call, 0, n_calls - 1)] if len(call_end) else nothing,
            (hosted & ~stuck) | (why == BY_NOTHING),
            (hosted & ~waited) | (why == BY_NOTHING),
        ),
        (nothing * 0 + _SYNC, target, np.where(w_start, data.start[target], data.end[target]), waited, ~hosted),
    ]
    kind, named, down, there, last = (np.stack(c, axis=1).reshape(-1) for c in zip(*columns, strict=True))
    kind, named, down, last = kind[there], named[there], down[there], last[there]
    texts = data.text_of(data.enclosing(named))
    bare = one_of(kind, (_LAUNCH, _HOST, _SYNC))
    frame = pl.DataFrame(
        {
            "visit": np.repeat(visit, 5)[there],
            "rank": np.full(len(kind), data.rank, dtype=np.int64),
            "kind": kind,
            "stream": pl.select(
                pl.when(pl.Series(~bare)).then(pl.Series(data.stream[named].astype(np.int64)))
            ).to_series(),
            "name": part.names.gather(data.name[named]),
            "range": texts,
            "down_to": pl.select(pl.when(pl.Series(~last)).then(pl.Series(down))).to_series(),
        }
    )
    return frame.select([pl.col(k).cast(t) for k, t in _PIECES.items()])
