"""What detectors look at: one step of a profile, its critical path, and replays of it with something changed."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace
from functools import cached_property, reduce
from inspect import signature
from operator import and_
from typing import Any, TypeVar

from stepscope.derive.graph.critical_path import Path, walk
from stepscope.derive.rank.at_once import of_each
from stepscope.derive.rank.data import COMPUTE, COPY, RankData, rank_of, ranks_of
from stepscope.derive.rank.needs import need_calls, need_ops
from stepscope.derive.replay.change import Change
from stepscope.derive.replay.graph import forget
from stepscope.derive.replay.replay import Replay
from stepscope.derive.windows.choosing import settled, step
from stepscope.derive.windows.periods import periods
from stepscope.derive.windows.spec import WindowSpec
from stepscope.derive.windows.window import Kind, Window
from stepscope.errors import CannotAnswer
from stepscope.findings.evidence.start_up import start_up
from stepscope.findings.order import credited_before
from stepscope.findings.registry import remedy
from stepscope.findings.run.episodes import (
    Episode,
    OtherKind,
    episodes_of,
    mean_step,
    other_kinds,
    representative,
    usual_length,
)
from stepscope.model.memo import Memo
from stepscope.model.profile import Profile
from stepscope.model.result import Result
from stepscope.model.threshold import Threshold

LOOKED_AT = Threshold(
    0.5,
    "% of the step",
    "a cause of a quarter of what is shown cannot become a finding, and a replay costs time",
    ("tests/findings/test_healthy.py", "tests/findings/test_thresholds.py::test_what_cannot_matter_is_not_looked_at"),
)
FAITHFUL = Threshold(
    90.0,
    "% of the step",
    "without event records, replays of 96 % and more agree with nsys captures of the same job; one of 62 % does not",
    ("h200/hf/hf4_straggler.rank*.pt.trace.json.gz", "h200/moe4mps/overlapped.rank*.pt.trace.json.gz"),
)


T = TypeVar("T")


class Case:
    """A profile and a step of it. Everything is computed when first asked for, once."""

    def __init__(self, profile: Profile, spec: WindowSpec, align: str = "auto", usual: Case | None = None) -> None:
        #: of a step of another kind: the case of the usual one
        self.usual = usual
        #: a log of steps, or a program that used no GPU: of such a run, only its pace can be judged
        self.on_host = not profile.has("ops") or profile.ops.height == 0
        if self.on_host and usual_length(profile) is None:
            need_ops(profile)
        self.profile, self.align = profile.view(in_one_part=True), align
        named = spec.anchor is not None or spec.start is not None or spec.whole or spec.unit is not None
        self._unasked = spec.index == "median" and not (named or spec.match or spec.period)
        self.spec = settled(self.profile, spec)
        if self._unasked and self.spec.label is not None:
            self.spec = self._of_step(representative(self.profile, self.spec.label))
        self._answers: dict[Hashable, Result | CannotAnswer] = {}
        self._before: dict[tuple[str, str], Change] = {}
        self._memo = Memo()

    def _of_step(self, label: str) -> WindowSpec:
        """The choice of a step by its label; by its number, where it has the same on all ranks, so that it is cited."""
        if label == self.spec.label:
            return self.spec
        of_ranks = [periods(d) for d in ranks_of(self.profile)]
        places = {p.anchors.label.index(label) for p in of_ranks if p is not None and label in p.anchors.label}
        if len(places) != 1:
            return replace(self.spec, label=label)
        return replace(self.spec, label=None, index=places.pop())

    @cached_property
    def others(self) -> list[tuple[OtherKind, int, Case]]:
        """Other kinds of steps of the run, each with the number of the step that stands for it, and its case."""
        kinds = other_kinds(self.profile) if self.of_run else []
        chosen = [(kind, self._of_step(kind.label)) for kind in kinds]
        numbered = [(kind, spec, spec.index) for kind, spec in chosen]
        return [(k, i, Case(self.profile, spec, self.align, self)) for k, spec, i in numbered if isinstance(i, int)]

    def of(self, label: str) -> Case:
        """Another step of the same run."""
        return Case(self.profile, self._of_step(label), self.align)

    def let_go(self) -> None:
        """The diagnosis is over: give back what replays keep of each rank, and what detectors shared.

        A refusal that is kept names the calls that led to it, and they the case: without this all of it stays until the
        next search for such circles.
        """
        for data in self._having():
            forget(data)
        for _, _, other in self.__dict__.get("others", ()):
            other.let_go()
        self._memo.clear()
        self._answers.clear()
        self._before.clear()
        for name in ("path", "replay"):
            self.__dict__.pop(name, None)

    # -- the step ----------------------------------------------------------------------------------------------------

    @cached_property
    def path(self) -> Path:
        """The critical path of the step."""
        need_calls(self.profile, "what an op waited for")
        return walk(self.profile, self.spec, self.align)

    @cached_property
    def replay(self) -> Replay:
        """The step, to be replayed with a change."""
        return Replay(self.profile, self.path)

    @cached_property
    def faithful(self) -> bool:
        """Whether what waits for what is known: by events, or since a replay without a change gives the step again."""
        if bool(self.path.steps["events"].all()):
            return True
        if self.path.met is None:
            return False
        meetings = self.path.met.meetings
        if 2 * int(meetings["present"].eq(meetings["size"]).sum()) < meetings.height:
            return False  # of ranks that are not there, nothing says how long they made others wait
        return self.replay.plain >= FAITHFUL.share * (self.path.end - self.path.begin)

    @cached_property
    def windows(self) -> dict[int, Window]:
        """The step of each rank that has it."""
        return {w.rank: w for w in step(self.profile, self.spec).spans if len(w.ops) or self.on_host}

    @cached_property
    def step_ns(self) -> int:
        """Length of the step: of the critical path where there is one, else of the longest window."""
        if self.on_host:
            return max(((w.cpu_end_ns or 0) - (w.cpu_start_ns or 0) for w in self.windows.values()), default=1) or 1
        try:
            return max(self.path.end - self.path.begin, 1)
        except CannotAnswer:
            return max((w.gpu_ns for w in self.windows.values()), default=1) or 1

    @cached_property
    def of_run(self) -> bool:
        """Whether the step stands for all of the run: nobody asked for another window than the median step."""
        return self._unasked and self.kind == "step"

    @cached_property
    def episodes(self) -> list[Episode]:
        """What makes steps of the run longer than the usual one; nothing where another window was asked for."""
        return episodes_of(self.profile) if self.of_run else []

    @cached_property
    def mean_ns(self) -> int:
        """Length of the mean step of the run, what lies between steps included; of the step where steps are alike.

        Of a capture without steps, what follows its start-up, if anything does.
        """
        if self.kind == "capture" and not self.on_host:
            begun = self.each_rank(lambda _, data, window: start_up(data, window).length())
            rest = self.step_ns - sum(begun.values()) // max(len(begun), 1)
            return rest if rest > 0 else self.step_ns
        mean = mean_step(self.profile) if self.of_run else None
        return self.step_ns if mean is None else max(round(mean), 1)

    @cached_property
    def kind(self) -> Kind:
        """What the window is: a step, or the capture where nothing marks steps."""
        return next((w.kind for w in self.windows.values()), "capture")

    @cached_property
    def computes(self) -> dict[int, bool]:
        """By rank that has the step: whether it computes in it."""
        return self.each_rank(lambda _, data, window: bool((data.role[window.ops] == COMPUTE).any()))

    @cached_property
    def works(self) -> dict[int, bool]:
        """By rank that has the step: whether it computes or communicates in it."""
        return self.each_rank(lambda _, data, window: bool((data.role[window.ops] != COPY).any()))

    @property
    def ranks(self) -> tuple[int, ...]:
        """Ranks that have the step."""
        return tuple(sorted(self.windows))

    # -- evidence ----------------------------------------------------------------------------------------------------

    def ask(self, analysis: Callable[..., Result], **options: Any) -> Result:
        """The answer of an analysis, for the window of the case where it has one. Asked once."""
        key = (analysis, repr(sorted(options.items())))
        return self._asked(self.profile, key, analysis, options)

    def _asked(
        self, profile: Profile, key: Hashable, analysis: Callable[..., Result], options: dict[str, Any]
    ) -> Result:
        if key not in self._answers:
            asked: list[Any] = [profile]
            if "window" in signature(analysis).parameters:
                asked.append(options.pop("window", self.spec))
            try:
                self._answers[key] = analysis(*asked, **options)
            except CannotAnswer as why:
                self._answers[key] = why
        answer = self._answers[key]
        if isinstance(answer, CannotAnswer):
            raise answer
        return answer

    def ask_of(self, rank: int, analysis: Callable[..., Result], **options: Any) -> Result:
        """The same where only the rows of one rank are wanted, which must not depend on others: it alone is asked."""
        spec = options.get("window", self.spec)
        # Which window it is must not be for all ranks to say; of the case's own choice they have said it.
        chosen = spec is self.spec or spec.label is not None or spec.index != "median" or spec.whole
        if spec.match or spec.unit == "chunk" or not chosen:
            return self.ask(analysis, **options)
        key = (analysis, repr(sorted(options.items())))
        if key in self._answers:  # of all of them
            return self.ask(analysis, **options)
        return self._asked(self.profile.view([rank]), (*key, rank), analysis, options)

    def once(self, function: Callable[[Case], T]) -> T:
        """`function(case)`, computed when first asked for: what several detectors need."""
        return self._memo.once(function, self)

    def each_rank(self, function: Callable[[Profile, RankData, Window], T]) -> dict[int, T]:
        """`function` of every rank that has the step."""
        windows, ranks = self.windows, self._having()
        found = of_each(self.profile, ranks, lambda data: function(self.profile, data, windows[data.rank]))
        return {data.rank: of_rank for data, of_rank in zip(ranks, found, strict=True)}

    def data_of(self, rank: int) -> RankData:
        """One rank as arrays, whether it has the step or not."""
        return rank_of(self.profile, rank)

    def _having(self) -> list[RankData]:
        return [d for d in ranks_of(self.profile) if d.rank in self.windows]

    # -- what it would give ------------------------------------------------------------------------------------------

    def remedy(self, cause: str) -> Change:
        """The step without a cause; a cause that could not be looked for has nothing to take out."""
        try:
            return self.once(remedy(cause))
        except CannotAnswer:
            return Change()

    def before(self, finding: str, kind: str = "") -> Change:
        """The step without all causes that are credited before this finding (`order.ORDER`)."""
        key = finding, kind
        if key not in self._before:
            self._before[key] = reduce(and_, map(self.remedy, credited_before(finding, kind)), Change())
        return self._before[key]

    def credit(self, finding: str, change: Change | None = None, at_most: int | None = None, *, kind: str = "") -> int:
        """Time per step that a finding's remedy, or a part of it, gives back once what comes before it is gone.

        Never more than `at_most`, the exposure that it rests on: of the whole window, as `change` is.
        """
        beside = self.before(finding, kind) if credited_before(finding, kind) else None
        saved = self.replay.saved(self.remedy(finding) if change is None else change, beside)
        return saved if at_most is None else min(saved, at_most)

    def share(self, ns: int) -> float:
        """Per cent of the step; of the mean step where steps differ, and of what follows the start-up of a capture."""
        return 100.0 * ns / self.mean_ns

    def material(self, ns: int, least: Threshold = LOOKED_AT) -> bool:
        """Whether so much of the window is worth a closer look: a replay costs time."""
        return 100.0 * ns / self.step_ns >= least.value
