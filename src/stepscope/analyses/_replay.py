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

    @cached_property
    def _unchanged(self) -> dict[int, Runs]:
        return self._graphs(self.steps, Change())

    def _graphs(self, steps: dict[int, tuple[int, int]], change: Change) -> dict[int, Runs]:
        return {g.rank: g for part in self._profile.map(runs, steps, change) for g in part}

    def run(self, change: Change) -> int:
        """Length of the step with the change."""
        changed = self.steps if change.local is None else {r: s for r, s in self.steps.items() if r in change.local}
        graphs = self._graphs(changed, change) if changed else {}
        if len(graphs) < len(self.steps):
            graphs = self._unchanged | graphs
        return _Replay(self._path, self._clock, list(graphs.values()), change).run()

    def saved(self, change: Change, beside: Change | None = None) -> int:
        """By how much the change shortens the step; with `beside`, a step that this one shortened already."""
        if beside is None:
            return max(self.plain - self.run(change), 0)
        return max(self.run(beside) - self.run(beside & change), 0)


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
    """What communication ops meet. Each ends when every transfer it takes part in is through, and a little later."""

    ops: dict[tuple[int, int], list[int]]  # (rank, op) -> meetings
    members: list[list[tuple[int, int]]]
    took: list[int]  # from the last arrival until the first rank left, by meeting
    rest: dict[tuple[int, int], int]  # (rank, op) -> until this rank left


def _meetings(path: Path, wanted: set[tuple[int, int]], change: Change) -> _Meetings:
    found = _Meetings({}, [], [], {})
    if path.met is None:
        return found
    met, sides = path.met, path.met.matched.sides
    ops, last = sides["op"].to_numpy().tolist(), met.last.tolist()
    ranks, meeting, end = met.rank.tolist(), met.meeting.tolist(), met.end.tolist()
    found.members = [[] for _ in range(len(met.first))]
    found.took = met.transfer.tolist()
    ends: dict[tuple[int, int], int] = {}
    for rank, op, m, until in zip(ranks, ops, meeting, end, strict=True):
        if (rank, op) in wanted:
            found.members[m].append((rank, op))
            found.ops.setdefault((rank, op), []).append(m)
            ends[rank, op] = until
    for key, mine in found.ops.items():
        found.rest[key] = max(ends[key] - max(last[m] + found.took[m] for m in mine), 0)
    for m, less in change.shorter.items():
        found.took[m] = max(found.took[m] - less, 0)
    for rank, (some, by) in change.sooner.items():
        for op, less in zip(some.tolist(), by.tolist(), strict=True):
            if (rank, op) in found.rest:
                found.rest[rank, op] = max(found.rest[rank, op] - less, 0)
    return found


class _Replay:
    def __init__(self, path: Path, clock: Clock, graphs: list[Runs], change: Change) -> None:
        self._path, self._graphs = path, graphs
        self._begin = {g.rank: clock.one(g.rank, g.begin) - change.earlier.get(g.rank, 0) for g in graphs}
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
        meetings = self._met.ops.get((rank, op), ())
        if meetings:
            arrived = [
                max((self._start[s] for s in self._met.members[m] if s in self._start), default=own) for m in meetings
            ]
            at = max(arrived)
            if not g["hidden"][run]:
                took = self._met.took
                at = max(t + took[m] for t, m in zip(arrived, meetings, strict=True)) + self._met.rest[rank, op]
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
