"""What if: the step replayed on its dependency graph (`graph`) with changed durations (`play`). A lower bound.

One change is made here: one rank as fast as the median of its peers, in its kernels and on its host. Who its peers are
and how long their kernels take is the rule of `peers.compute`, asked of the step.
"""

from __future__ import annotations

from functools import cached_property
from statistics import median
from typing import Any, TypedDict

import numpy as np
import polars as pl

from stepscope import progress
from stepscope.derive.comm.across import Across
from stepscope.derive.graph.critical_path import Path
from stepscope.derive.graph.releases import releases
from stepscope.derive.peers.compute import KERNELS, communications_of, compare, kernels_of, recorded_whole, same_work
from stepscope.derive.rank.data import RankData, ranks_of
from stepscope.derive.replay.change import Change
from stepscope.derive.replay.graph import BEFORE, Runs, Step, runs, step_ops
from stepscope.derive.replay.play import Nodes, Played, play
from stepscope.errors import BadInput, CannotAnswer
from stepscope.intervals.arrays import NONE
from stepscope.model.profile import Profile
from stepscope.model.threshold import Threshold

_NOTICED = Threshold(
    0.2,
    "% of the step",
    "a host that is less further ahead makes no difference that a figure shows: looking into it costs another replay",
    ("tests/derive/replay/test_recurs.py",),
)
_CAUGHT_UP = Threshold(
    1.0,
    "% of the step",
    "a host that is ahead by less at the end is done when the GPU is",
    ("tests/derive/replay/test_recurs.py",),
)
_FORMS = "hide-comm, hide-comm=STAGE, even-rank, even-rank=RANK or host=FACTOR"


class WhatIf(TypedDict):
    """The step as recorded, replayed, and replayed with a change."""

    what_if: str
    meaning: str
    step_ns: int
    replay_ns: int
    bound_ns: int
    saves_ns: int
    saves_pct: float | None
    at_most_ns: int


def what_if(profile: Profile, path: Path, asked: tuple[str, ...]) -> list[WhatIf]:
    """One row per question: the step as recorded, replayed, and replayed with the change."""
    replay = Replay(profile, path)
    plain, total = replay.plain, path.end - path.begin
    changes = [_parse(profile, path, text, replay.steps) for text in asked]
    answers: list[WhatIf] = []
    for text, (meaning, change) in zip(asked, changes, strict=True):
        bound = replay.run(change)
        saved = max(plain - bound, 0)
        answers.append(
            {
                "what_if": text,
                "meaning": meaning,
                "step_ns": total,
                "replay_ns": plain,
                "bound_ns": bound,
                "saves_ns": saved,
                "saves_pct": 100.0 * saved / plain if plain else None,
                "at_most_ns": max(total - bound, 0),
            }
        )
    return answers


class Replay:
    """The step of a path, to be replayed with one change after the other."""

    def __init__(self, profile: Profile, path: Path) -> None:
        self._profile, self._path = profile, path
        # Of a capture, the host's time before its first launch is not the step's.
        cpu_start = pl.when(pl.col("kind") != "capture").then("cpu_start_ns")
        begin = pl.min_horizontal(pl.coalesce(cpu_start, "launched_ns"), "begin_ns").alias("begin")
        columns = path.steps.select("rank", begin, "op", "cpu_end_ns", "begin_ns")
        self.steps = {rank: Step(*step) for rank, *step in columns.iter_rows()}
        self._kept: dict[int, tuple[tuple[Any, ...], Runs]] = {}
        self._drawn: tuple[list[Runs], Nodes] | None = None
        self._beside: tuple[Change, int] | None = None

    @cached_property
    def _as_it_was(self) -> Played:
        """The step without a change, replayed."""
        return self._play(Change())

    @property
    def plain(self) -> int:
        """Length of the step as it was, replayed: what changes are compared with."""
        return self._as_it_was.length

    @cached_property
    def _unchanged(self) -> dict[int, Runs]:
        return self._graphs(self.steps, Change())

    @cached_property
    def _recurring(self) -> list[int]:
        """Ranks whose host may begin a step while the GPU is at the one before.

        What else is replayed (a capture, a chunk) is not followed by another that is like it. Of the first step of a
        capture only this tells what its ops would wait for, were they launched sooner: the GPU had done the step when
        the host had, and will have done the one before.
        """
        if not bool((self._path.steps["kind"] == "step").all()):
            return []
        ahead, least = self._as_it_was.ahead, _CAUGHT_UP.share * self.plain
        return [
            r
            for r, g in self._unchanged.items()
            if g.goes_on and (bool((g.after == BEFORE).any()) or (g.first_of_several and ahead[r] <= least))
        ]

    def _graphs(self, steps: dict[int, Step], change: Change) -> dict[int, Runs]:
        return {g.rank: g for part in self._profile.view(steps).map(runs, steps, change) for g in part}

    def _changed(self, change: Change) -> dict[int, Runs]:
        """The graphs of the ranks that the change is on. Changes come in families: each rank's last graph is kept."""
        if change.local is None:
            return self._graphs(self.steps, change)
        reused = {}
        fresh = {}
        for rank in change.local & self.steps.keys():
            kept, on = self._kept.get(rank), change.on(rank)
            if kept is not None and all(a is b for a, b in zip(kept[0], on, strict=True)):
                reused[rank] = kept[1]
            else:
                fresh[rank] = self.steps[rank]
        made = self._graphs(fresh, change) if fresh else {}
        self._kept |= {rank: (change.on(rank), graph) for rank, graph in made.items()}
        return reused | made

    def run(self, change: Change) -> int:
        """Length of the step with the change, after many such steps.

        The host may be through with the step sooner before its end than it was: then it begins the next one so much
        sooner, too. A host that waits at the end of the step does not, whatever the change.
        """
        played = self._play(change)
        ahead = {r: round(played.ahead[r] - self._as_it_was.ahead[r]) for r in self._recurring}
        sooner = {r: ns for r, ns in ahead.items() if ns > 0}
        if max(sooner.values(), default=0) < _NOTICED.share * played.length:
            return played.length
        return min(self._play(change & Change(host_start_earlier_ns=sooner)).length, played.length)

    def alone(self, change: Change) -> int:
        """Length of the step with the change where it follows a synchronization: no host is ahead of its GPU."""
        begun = {rank: self._path.clock.moment(rank, step.begin) for rank, step in self.steps.items()}
        ahead = {rank: at - self._path.begin for rank, at in begun.items() if at < self._path.begin}
        return self._play(change & Change(host_start_earlier_ns=ahead)).length

    @cached_property
    def waiting(self) -> bool:
        """Whether a host waits for the GPU within the step, and launches after that: not only at its end."""
        return any(bool((graph.epoch != NONE).any()) for graph in self._unchanged.values())

    def _play(self, change: Change) -> Played:
        graphs = self._changed(change)
        if len(graphs) < len(self.steps):
            graphs = self._unchanged | graphs
        drawn = list(graphs.values())
        if sooner := {rank for rank, ns in change.host_start_earlier_ns.items() if ns > 0}:
            drawn = [self._behind_another(g) if g.rank in sooner else g for g in drawn]
        if not any(len(graph.final) for graph in drawn):
            raise CannotAnswer("no GPU op lies whole in the window", "choose a longer one")
        if self._drawn is None or any(a is not b for a, b in zip(self._drawn[0], drawn, strict=True)):
            self._drawn = None  # of hundreds of ranks, one at a time
            self._drawn = drawn, Nodes(self._path.clock, drawn)
        progress.report("replaying the step")
        return play(self._path, self._drawn[1], drawn, change)

    def _behind_another(self, graph: Runs) -> Runs:
        """The first step of a capture as if one came before it: what its ops wait for, were they launched sooner."""
        return graph.after_such_a_step(self._as_it_was.ahead[graph.rank]) if graph.first_of_several else graph

    def saved(self, change: Change, beside: Change | None = None) -> int:
        """By how much the change shortens the step; with `beside`, a step that this one shortened already."""
        if beside is None:
            return max(self.plain - self.run(change), 0)
        if self._beside is None or self._beside[0] is not beside:
            self._beside = beside, self.run(beside)
        return max(self._beside[1] - self.run(beside & change), 0)


def _parse(profile: Profile, path: Path, text: str, steps: dict[int, Step]) -> tuple[str, Change]:
    word, _, value = text.partition("=")
    if word == "hide-comm":
        which = f"transfers of {value}" if value else "all transfers"
        return f"{which} take no time; ranks still wait for each other", Change(
            transfers_hidden=True, hidden_stage=value or None
        )
    if word == "host":
        try:
            factor = float(value)
        except ValueError:
            factor = 0.0
        if factor <= 0:
            raise BadInput(f"--what-if {text}: how much faster?", "give a factor, as in host=2")
        return f"the host is {factor:g} times as fast between its waits", Change(every_host_factor=factor)
    if word == "even-rank":
        if value and not (value.isdigit() and int(value) in steps):
            raise BadInput(f"--what-if {text}: no such rank in the step", f"give one of {', '.join(map(str, steps))}")
        return even_rank(profile, int(value) if value else None, steps, path.met)
    raise BadInput(f"--what-if {text}: not known", f"give {_FORMS}")


#: Per rank: communications in the step, launches, and the host's own time per launch.
_HOSTS: dict[str, pl.DataType | type[pl.DataType]] = {
    "rank": pl.Int64,
    "communications": pl.Int64,
    "launches": pl.Int64,
    "pace_ns": pl.Float64,
}


def paces(part: Profile, steps: dict[int, Step]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Kernels of the step (`compute.KERNELS`) and `_HOSTS`, of the ranks of one part of a profile."""
    kernels, hosts = [pl.DataFrame(schema=KERNELS)], []
    for data in ranks_of(part):
        if data.rank not in steps:
            continue
        step = steps[data.rank]
        begin, ops = step.begin, step_ops(data, step)
        kernels.append(kernels_of(part, data, ops))
        launched = data.launched_at[ops]
        launched = launched[launched >= begin]
        pace = _own_time(data, begin, int(launched.max())) / len(launched) if len(launched) else 0.0
        hosts.append((data.rank, communications_of(data, ops), len(launched), pace))
    return pl.concat(kernels), pl.DataFrame(hosts, schema=_HOSTS, orient="row")


def _own_time(data: RankData, begin: int, end: int) -> int:
    """Time of the host in which it did not wait for the GPU."""
    call = releases(data).waits.call
    start, stop = (data.calls[c].to_numpy()[call] for c in ("start_ns", "end_ns"))
    waited = np.maximum(np.minimum(stop, end) - np.maximum(start, begin), 0).sum()
    return max(end - begin - int(waited), 0)


def even_rank(profile: Profile, rank: int | None, steps: dict[int, Step], met: Across | None) -> tuple[str, Change]:
    """The change, and what it is in words; of the rank that has most to gain, where none is named."""
    if len(steps) < 2:
        raise BadInput("--what-if even-rank: the profile has one rank, and no peers", "give the traces of all ranks")
    parts = profile.map(paces, steps)
    kernels, hosts = (pl.concat([part[i] for part in parts]) for i in range(2))
    groups = same_work(profile.ranks, met)
    whole = recorded_whole(dict(hosts.select("rank", "communications").iter_rows()), groups)
    compared = compare(kernels, groups, whole)
    pace = {r: (n, each) for r, n, each in hosts.select("rank", "launches", "pace_ns").iter_rows() if r in whole}
    usual = {r: _usual([each for q, (_, each) in pace.items() if q != r and groups[q] == groups[r]]) for r in pace}
    late = {r: n * max(each - usual[r], 0.0) if usual[r] else 0.0 for r, (n, each) in pace.items()}
    if not compared:
        raise BadInput("--what-if even-rank: no rank has a peer with the same kernels", "name two ranks of a stage")
    if rank is None:
        rank = max(sorted(compared), key=lambda r: compared[r].excess_ns + late.get(r, 0.0))
    if rank not in compared:
        raise BadInput(f"--what-if even-rank={rank}: the rank recorded less of the step than its peers", "name another")
    factors = {name: factor for name, factor in compared[rank].factors().items() if factor < 1}
    host = pace[rank][1] / usual[rank] if late[rank] else 1.0
    return f"rank {rank} is as fast as the median of its peers", Change(
        host_factor={rank: host}, kernel_factor={rank: factors}
    )


def _usual(others: list[float]) -> float:
    return median(others) if others else 0.0
