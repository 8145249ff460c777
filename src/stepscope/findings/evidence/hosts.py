"""The host of each rank during the step: its calls by what they make it wait for, and how fast it launches.

Detectors of host faults share this: one cause must not be reported twice, so all of them take the same figures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from stepscope.derive.accounting.partition import Partition, partition
from stepscope.derive.host.idle_causes import ALLOC, API, CAUSES, SYNC, Pieces, call_causes, idle_causes
from stepscope.derive.host.waits import host_waits
from stepscope.derive.rank.at_once import of_each
from stepscope.derive.rank.cuda_calls import Family, of_family
from stepscope.derive.rank.data import COMM, COMPUTE, RankData, coded, ranks_of
from stepscope.derive.rank.graphs import captures
from stepscope.derive.windows.steps import marks_of
from stepscope.derive.windows.window import Window
from stepscope.findings.case import Case
from stepscope.findings.evidence.peers import pipeline_stage
from stepscope.findings.evidence.places import places
from stepscope.findings.evidence.start_up import started
from stepscope.findings.finding import Cause, Place
from stepscope.intervals import Spans, intersect, subtract, union
from stepscope.intervals.arrays import I64, NONE, Mask, in_order, numbered, one_of
from stepscope.model.memo import cached_property
from stepscope.model.profile import Profile
from stepscope.model.threshold import Threshold

T = TypeVar("T")

NAMED_BESIDE_WORST = Threshold(
    25.0,
    "% of the worst rank",
    "ranks that share a fault have like amounts of it; what all hosts have a little of is not on the others",
    ("tests/findings/test_faults_host.py", "tests/findings/test_real_faults_host.py"),
)
LAUNCHES_TO_TELL = Threshold(
    16,
    "launches",
    "the median of fewer jumps with every one of them",
    ("public/a100_saxpy_mpi.rank*.sqlite", "tests/findings/test_thresholds.py::test_few_launches_say_nothing"),
)
LONGEST_LAUNCH = Threshold(
    50,
    "times the pace",
    "longer is not launching: a batch that is fetched takes thousands; at half of it, the 5.1 % of a simulated case "
    "become 4.1, where the truth is 5.4",
    ("h200/train/eager.sqlite", "tests/findings/test_faults_host.py"),
)


#: Calls that keep launches before and after them apart, beside those that wait or allocate.
_APART = (Family.EVENT_RECORD, Family.STREAM_WAIT, Family.GRAPH_LAUNCH, Family.CAPTURE)


class Host(Struct, frozen=True, dict=True):
    """One rank's host during its step, from `begin` to `end` of its own clock; and its GPU, which may lag behind."""

    profile: Profile
    data: RankData
    begin: int
    end: int
    window: Window

    @property
    def whole(self) -> bool:
        """No step is marked, and no chunk either: it is the whole capture, set-up included."""
        return self.window.kind == "capture" and marks_of(self.data).chunks is None

    @cached_property
    def start(self) -> I64:
        """Starts of all its calls."""
        return self.data.calls["start_ns"].to_numpy()

    @cached_property
    def stop(self) -> I64:
        """Ends of all its calls."""
        return self.data.calls["end_ns"].to_numpy()

    @cached_property
    def calls(self) -> I64:
        """Rows of the calls that it made in the step; in a whole capture, after its set-up: from the first launch."""
        begin = self.begin
        if self.whole and len(self.data.start):
            begin = max(begin, int(self.data.launched_at.min()))
        return np.flatnonzero((self.start >= begin) & (self.start < self.end))

    def of_cause(self, cause: int) -> I64:
        """Those of one cause: SYNC, ALLOC, LOAD."""
        rows: I64 = self.calls[call_causes(self.data)[self.calls] == cause]
        return rows

    def of_family(self, *wanted: Family) -> I64:
        """Those that do one of these things."""
        rows: I64 = self.calls[of_family(self.data, *wanted)[self.calls]]
        return rows

    def length(self, calls: I64) -> int:
        """Host time in calls."""
        return union(self.start[calls], np.minimum(self.stop[calls], self.end)).length()

    def names(self, calls: I64) -> dict[str, int]:
        """How often each call was made, most frequent first."""
        texts = self.profile.names.gather(self.data.calls["name"].gather(calls))
        table = texts.alias("name").value_counts().sort(["count", "name"], descending=[True, False])
        return dict(table.iter_rows())

    @cached_property
    def stretches(self) -> tuple[I64, Mask]:
        """Ops of the step in the order of their launches, thread by thread, and which of them begin a stretch.

        A stretch is kernels (and copies within the device) of one stream, launched by one thread with nothing between
        that must be apart: no event, no synchronization, no communication. Of a graph's ops the first stands for all.
        """
        return self._stretches(self.window.ops)

    def _stretches(self, ops: I64) -> tuple[I64, Mask]:
        """The same of any ops."""
        data, tid = self.data, self.tid
        ops = ops[data.launch[ops] != NONE]
        ops = ops[in_order(tid[data.launch[ops]], data.launch[ops], ops)]
        ops = ops[np.r_[True, np.diff(data.launch[ops]) != 0]] if len(ops) else ops
        launch, inner = data.launch[ops], self.on_device[ops]
        causes = call_causes(data)
        parting = of_family(data, *_APART) | one_of(causes, (SYNC, ALLOC))
        before = np.zeros(len(ops), np.int64)
        for thread in numbered(tid[launch])[0].tolist():
            of_thread = tid[launch] == thread
            before[of_thread] = np.searchsorted(np.flatnonzero(parting & (tid == thread)), launch[of_thread])
        first = np.ones(len(ops), dtype=bool)
        if len(ops) > 1:
            same = (tid[launch][1:] == tid[launch][:-1]) & (data.stream[ops][1:] == data.stream[ops][:-1])
            first[1:] = ~(same & (before[1:] == before[:-1]) & inner[1:] & inner[:-1])
        return ops, first

    @cached_property
    def on_device(self) -> Mask:
        """By op: kernels, and copies and memsets that stay on the device."""
        copied = self.data.ops["copy_kind"]
        stays: Mask = (self.data.role != COMM) & (coded(copied, "none") | coded(copied, "DtoD"))
        return stays

    @cached_property
    def tid(self) -> npt.NDArray[np.int32]:
        """Threads of all its calls."""
        return self.data.calls["tid"].to_numpy()

    @cached_property
    def paces(self) -> I64:
        """Host time from each kernel's launch to the next of its stretch; a launch that a full queue held up is out."""
        return self._paces(*self.stretches)

    def _paces(self, ops: I64, first: Mask) -> I64:
        launch = self.data.launch[ops]
        usable = ~first & ~np.isin(launch, host_waits(self.data).call)
        took: I64 = (self.stop[launch[1:]] - self.stop[launch[:-1]])[usable[1:]]
        return took

    @cached_property
    def pace_ns(self) -> float | None:
        """The median pace; of steps with too few launches, over all of the capture; null where that tells nothing."""
        paces = self.paces
        if len(paces) < LAUNCHES_TO_TELL.value and not self.whole:
            paces = self._paces(*self._stretches(np.arange(len(self.data.start))))
        return float(np.median(paces)) if len(paces) >= LAUNCHES_TO_TELL.value else None

    @cached_property
    def launch_calls(self) -> I64:
        """Lengths of the launch calls of kernels that did not wait."""
        ops, _ = self.stretches
        launch = self.data.launch[ops[self.data.role[ops] == COMPUTE]]
        launch = launch[~np.isin(launch, host_waits(self.data).call)]
        lengths: I64 = self.stop[launch] - self.start[launch]
        return lengths

    @cached_property
    def call_ns(self) -> float:
        """The median launch call."""
        return float(np.median(self.launch_calls)) if len(self.launch_calls) else 0.0

    @cached_property
    def intervals(self) -> tuple[I64, I64]:
        """The host's own time before each call, the call included unless it waits: start and end.

        Threads that launch hand work to each other (forward and backward passes do), so that they count as one; calls
        of others, as of NCCL's watchdog, say nothing of launching.
        """
        return self._before(self._of_launching)

    def _before(self, calls: I64) -> tuple[I64, I64]:
        """The same, of these calls alone: others between them are a part of the time."""
        held = (call_causes(self.data)[calls] != API) | np.isin(calls, host_waits(self.data).call)
        first = self.start[calls[:1]] if self.whole else [self.begin]
        returned = np.r_[first, np.maximum.accumulate(self.stop[calls])[:-1]] if len(calls) else calls
        return returned, np.maximum(np.where(held, self.start[calls], self.stop[calls]), returned)

    @cached_property
    def _of_launching(self) -> I64:
        """Calls of threads that launch."""
        launching = numbered(self.tid[self.data.launch[self.data.launch != NONE]])[0]
        rows: I64 = self.calls[np.isin(self.tid[self.calls], launching)]
        return rows

    def own_time(self, calls: I64, less_ns: int = 0) -> Spans:
        """Host time that passes for these launches: the calls, and what comes before each of them; no long pauses.

        Calls that give the GPU nothing to do and wait for nothing belong to the launch behind them: nsys records the
        look-up of a kernel's name before each launch, torch.profiler does not. `less_ns` of each launch are left out.
        """
        deeds = self._of_launching[np.isin(self._of_launching, self.data.launch) | self._held[self._of_launching]]
        start, end = self._before(deeds)
        asked = np.isin(deeds, calls) & (end - start <= LONGEST_LAUNCH.value * (self.pace_ns or 0.0))
        return union(start[asked], np.maximum(end[asked] - less_ns, start[asked]))

    @cached_property
    def _held(self) -> Mask:
        """By call: those that wait, allocate or load, or that order streams."""
        held: Mask = (call_causes(self.data) != API) | of_family(self.data, *_APART)
        return held

    def quicker(self, factor: float) -> Spans:
        """Host time that a host which is so many times as fast at launching does not need: a part of each interval.

        What takes many times as long as a launch is not launching: loading data, say, or Python at work. Nor is what a
        thread launches into a CUDA graph that it captures: that is done once, and runs nothing.
        """
        start, end = self.intervals
        took = end - start
        launching = (took > 0) & (took <= LONGEST_LAUNCH.value * (self.pace_ns or 0.0))
        start = start[launching]
        cut = union(start, start + np.round(took[launching] * (1 - 1 / factor)).astype(np.int64))
        _, begun, ended = captures(self.data)
        return subtract(cut, union(begun, ended))

    @cached_property
    def idle(self) -> Pieces:
        """When its GPU did nothing in the step, by cause."""
        return idle_causes(self.data, *self.gpu)

    @cached_property
    def parts(self) -> Partition:
        """The step on its GPU: compute, exposed communication, exposed copies, idle."""
        return partition(self.data, *self.gpu)

    def idle_ns(self, *cause: str) -> int:
        """Idle time of these causes."""
        chosen = one_of(self.idle.cause, [CAUSES.index(c) for c in cause])
        return int((self.idle.end - self.idle.start)[chosen].sum())

    def idle_in(self, spans: Spans) -> int:
        """Idle time within stretches of the host."""
        return intersect(self.parts.idle, spans).length()

    def gaps_touched(self, start: I64, end: I64) -> Spans:
        """Idle gaps of its GPU, each whole, that some of these stretches of the host reach into."""
        idle = self.parts.idle
        reached = np.searchsorted(np.sort(start), idle.end, side="left") - np.searchsorted(np.sort(end), idle.start)
        return Spans(idle.start[reached > 0], idle.end[reached > 0])

    def gaps_of(self, calls: I64) -> Spans:
        """The same of calls."""
        return self.gaps_touched(self.start[calls], self.stop[calls])

    @property
    def gpu(self) -> tuple[int, int]:
        """The step on its GPU."""
        assert self.window.gpu_start_ns is not None and self.window.gpu_end_ns is not None
        return self.window.gpu_start_ns, self.window.gpu_end_ns

    def longest_idle(self, *cause: str) -> list[Place]:
        """The longest idle stretches of these causes."""
        chosen = one_of(self.idle.cause, [CAUSES.index(c) for c in cause])
        return places(self.data.rank, self.idle.start[chosen], self.idle.end[chosen])

    def longest(self, calls: I64) -> list[Place]:
        """The longest of these calls."""
        return places(self.data.rank, self.start[calls], self.stop[calls])


def hosts(case: Case) -> dict[int, Host]:
    """The hosts of the ranks that have the step; made once per case."""
    return case.once(_hosts)


def each_host(case: Case, function: Callable[[Host], T]) -> dict[int, T]:
    """`function` of the host of each rank that has the step."""
    of_ranks = hosts(case)
    found = of_each(case.profile, (host.data for host in of_ranks.values()), lambda data: function(of_ranks[data.rank]))
    return dict(zip(of_ranks, found, strict=True))


def _hosts(case: Case) -> dict[int, Host]:
    steps = case.replay.steps
    hosts = {}
    for data in ranks_of(case.profile):
        if data.rank in steps:
            window, step = case.windows[data.rank], steps[data.rank]
            end = int(data.end[step.last]) if step.until is None else step.until
            hosts[data.rank] = Host(case.profile, data, min(max(step.begin, started(data, window)), end), end, window)
    return hosts


def guilty(weights: Mapping[int, float]) -> tuple[int, ...]:
    """Ranks that are named with the worst one: those that have about as much."""
    most = max(weights.values(), default=0)
    return tuple(sorted(r for r, w in weights.items() if w and w >= NAMED_BESIDE_WORST.share * most))


def stage_of(case: Case, ranks: tuple[int, ...]) -> str | None:
    """The pipeline stage that all of some ranks are in; null where all ranks are meant, or ranks of several stages."""
    stages = {pipeline_stage(case, r) for r in ranks}
    return stages.pop() if len(stages) == 1 and len(ranks) < len(case.ranks) else None


def sure(case: Case) -> Cause:
    """Certain where what waits for what is known: by events, or as stream order and launches explain every start."""
    steps = case.path.steps
    explained = bool((steps["events"] | (steps["inferred"] == 0)).all())
    return "certain" if explained and not any(h.data.unlinked for h in hosts(case).values()) else "likely"
