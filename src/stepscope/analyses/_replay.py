"""What if: the step replayed on its dependency graph with changed durations. A lower bound, see `_runs`.

Runs and host waits go in the order in which they happened, each at the latest of what it waits for; a communication
ends its transfer after the last of its ranks has arrived, wherever that now is.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from stepscope.analyses._change import Change
from stepscope.analyses._evenrank import even_rank
from stepscope.analyses._runs import Runs, runs
from stepscope.analyses._walk import Clock, Path
from stepscope.errors import BadInput
from stepscope.model.nesting import NONE
from stepscope.model.profile import Profile

I64 = npt.NDArray[np.int64]

_FORMS = "hide-comm, hide-comm=STAGE, even-rank, even-rank=RANK or host=FACTOR"


def what_if(profile: Profile, path: Path, clock: Clock, asked: tuple[str, ...]) -> list[dict[str, Any]]:
    """One row per question: the step as recorded, replayed, and replayed with the change."""
    replay = Replay(profile, path, clock)
    plain, total = replay.plain, path.end - path.begin
    changes = [_parse(profile, text, replay.steps) for text in asked]
    found = []
    for text, (said, change) in zip(asked, changes, strict=True):
        bound = replay.run(change)
        saved = max(plain - bound, 0)
        found.append(
            {
                "what_if": text,
                "meaning": said,
                "step_ns": total,
                "replay_ns": plain,
                "bound_ns": bound,
                "saves_ns": saved,
                "saves_pct": 100.0 * saved / plain if plain else None,
                "at_most_ns": max(total - bound, 0),
            }
        )
    return found


class Replay:
    """The step of a path, to be replayed with one change after the other."""

    def __init__(self, profile: Profile, path: Path, clock: Clock) -> None:
        self._profile, self._path, self._clock = profile, path, clock
        #: by rank: when its host began the step, and the last op
        self.steps = {r: (b, op) for r, b, op in path.steps.select("rank", "begin_ns", "op").iter_rows()}

    @cached_property
    def plain(self) -> int:
        """Length of the step as it was, replayed: what changes are compared with."""
        return self.run(Change())

    def run(self, change: Change) -> int:
        """Length of the step with the change."""
        graphs: list[Runs] = [g for part in self._profile.map(runs, self.steps, change) for g in part]
        return _Replay(self._path, self._clock, graphs, change).run()

    def saved(self, change: Change) -> int:
        """By how much the change shortens the step."""
        return max(self.plain - self.run(change), 0)


def _parse(profile: Profile, text: str, steps: dict[int, tuple[int, int]]) -> tuple[str, Change]:
    word, _, value = text.partition("=")
    if word == "hide-comm":
        which = f"transfers of {value}" if value else "all transfers"
        return f"{which} take no time; ranks still wait for each other", Change(hide=True, stage=value or None)
    if word == "host":
        try:
            factor = float(value)
        except ValueError:
            factor = 0.0
        if factor <= 0:
            raise BadInput(f"--what-if {text}: how much faster?", "give a factor, as in host=2")
        return f"the host is {factor:g} times as fast between its waits", Change(every_host=factor)
    if word == "even-rank":
        if value and not (value.isdigit() and int(value) in steps):
            raise BadInput(f"--what-if {text}: no such rank in the step", f"give one of {', '.join(map(str, steps))}")
        return even_rank(profile, int(value) if value else None, steps)
    raise BadInput(f"--what-if {text}: not known", f"give {_FORMS}")


@dataclass
class _Meetings:
    """By communication op: the ops that it met, those whose arrival it waited for longest first."""

    ops: dict[tuple[int, int], list[int]]  # (rank, op) -> meetings, the one that held it first
    members: list[list[tuple[int, int]]]
    transfer: dict[tuple[int, int], int]


def _meetings(path: Path, wanted: set[tuple[int, int]], change: Change) -> _Meetings:
    found = _Meetings({}, [], {})
    if path.met is None:
        return found
    met, sides = path.met, path.met.matched.sides
    ops, last = sides["op"].to_numpy().tolist(), met.last
    ranks, meeting, end = met.rank.tolist(), met.meeting.tolist(), met.end.tolist()
    found.members = [[] for _ in range(len(met.first))]
    for rank, op, m, until in zip(ranks, ops, meeting, end, strict=True):
        if (rank, op) not in wanted:
            continue
        found.members[m].append((rank, op))
        mine = found.ops.setdefault((rank, op), [])
        mine.append(m)
        if last[m] > last[mine[0]]:
            mine[0], mine[-1] = mine[-1], mine[0]
        found.transfer[rank, op] = max(until - int(last[mine[0]]) - change.shorter.get(mine[0], 0), 0)
    return found


class _Replay:
    def __init__(self, path: Path, clock: Clock, graphs: list[Runs], change: Change) -> None:
        self._path, self._graphs = path, graphs
        self._begin = {g.rank: clock.one(g.rank, g.begin) for g in graphs}
        self._order: list[tuple[int, int, int, int]] = []  # time, wait before run, graph, number
        for k, g in enumerate(graphs):
            for kind, times in ((0, g.wait_return), (1, g.start)):
                common = clock.common(g.rank, times).tolist()
                self._order += [(t, kind, k, i) for i, t in enumerate(common)]
        self._order.sort()
        self._met = _meetings(
            path, {(g.rank, int(op)) for g in graphs for op in g.comm[g.comm != NONE].tolist()}, change
        )
        self._start: dict[tuple[int, int], float] = {}

    def run(self) -> int:
        ends = [np.full(len(g.start), np.nan).tolist() for g in self._graphs]
        back = [[0.0] * len(g.wait_return) for g in self._graphs]
        lists = [{n: getattr(g, n).tolist() for n in _COLUMNS} for g in self._graphs]
        keys = [g.rank for g in self._graphs]
        for _, kind, k, i in self._order:
            g, end, returned, begin = lists[k], ends[k], back[k], self._begin[keys[k]]
            if kind == 0:
                at = (returned[i - 1] if i else begin) + g["wait_gap"][i]
                source = g["wait_for"][i]
                if source != NONE:
                    at = max(at, self._end(end, source, keys[k], g) + g["wait_lag"][i])
                returned[i] = at
                continue
            epoch = g["epoch"][i]
            at = (returned[epoch] if epoch != NONE else begin) + g["ready"][i]
            for source, lag in ((g["after"][i], g["after_lag"][i]), (g["event"][i], g["event_lag"][i])):
                if source != NONE:
                    at = max(at, self._end(end, source, keys[k], g) + lag + g["work"][i])
            op = g["comm"][i]
            if op == NONE:
                end[i] = at
            else:
                self._start[keys[k], op] = at
        done = [self._end(ends[k], g.last, g.rank, lists[k]) for k, g in enumerate(self._graphs)]
        return round(max(done) - self._path.begin)

    def _end(self, end: list[float], run: int, rank: int, g: dict[str, list[Any]]) -> float:
        """When a run ends; a communication when its last rank has come and its transfer is over."""
        if end[run] == end[run]:  # known already
            return end[run]
        op = g["comm"][run]
        own = self._start.get((rank, op))
        if own is None:  # later than it should be, by clocks that disagree
            return float(self._begin[rank])
        meetings = self._met.ops.get((rank, op), [])
        arrived = [
            max((self._start[m] for m in self._met.members[k] if m in self._start), default=own) for k in meetings
        ]
        if arrived:
            took = 0 if g["hidden"][run] else self._met.transfer[rank, op]
            at = max(arrived[0] + took, *arrived)
        else:
            at = own + (0 if g["hidden"][run] else g["dur"][run])
        end[run] = at
        return at


_COLUMNS = (
    "after",
    "after_lag",
    "event",
    "event_lag",
    "epoch",
    "ready",
    "work",
    "comm",
    "dur",
    "hidden",
    "wait_for",
    "wait_lag",
    "wait_gap",
)
