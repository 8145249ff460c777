"""Questions that end in an answer or in one line, whatever the input; and which are asked of one."""

from __future__ import annotations

import random
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from effects import Effect
from oracle import Answer, answer, changed, impossible

from stepscope import api, questions
from stepscope.api.options import choices
from stepscope.errors import CannotAnswer, GateFailed, StepscopeError
from stepscope.model.result import Result
from stepscope.nsys import reports as nsys_reports
from stepscope.nsys.reports.registry import find
from stepscope.report import Asker, gather

STATS = ("cuda_gpu_kern_sum", "cuda_api_sum", "nvtx_sum", "cuda_gpu_trace", "nvtx_gpu_proj_sum", "cuda_kern_exec_sum")
#: Further questions, that no registry has.
EVERYTHING = (*questions.names(), "report", "stats")
#: A question and its options.
Question = tuple[str, dict[str, Any]]


#: An error that is none of ours, a figure that cannot be, figures that changed without a word, no end.
Sort = Literal["unexpected", "impossible", "silent", "hang"]


@dataclass(frozen=True)
class Failure:
    """What must not be."""

    sort: Sort
    question: str
    text: str

    def __str__(self) -> str:
        return f"{self.question}: {self.text}"


@dataclass
class Outcome:
    """How the questions about one input ended: counts, and what must not be."""

    answered: int = 0
    refused: int = 0
    cannot: int = 0
    failures: list[Failure] = field(default_factory=list)

    @property
    def kind(self) -> str:
        if self.failures:
            return "failed"
        return "answered" if self.answered else "refused"

    def ask(self, what: str, question: Callable[[], Result | None]) -> Answer | None:
        """Its answer; None where there was none."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                result = question()
            self.answered += what != "open"
            if not isinstance(result, Result):
                return None
            self.failures += [Failure("impossible", what, text) for text in impossible(what, result)]
            return answer(result)
        except CannotAnswer as error:
            self.cannot += 1
            self._one_line(what, error)
        except GateFailed:
            self.answered += 1
        except StepscopeError as error:
            self.refused += 1
            self._one_line(what, error)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a panic of Polars is no Exception
            self.failures.append(Failure("unexpected", what, _where(error)))
        return None

    def _one_line(self, what: str, error: StepscopeError) -> None:
        if "\n" in str(error):
            self.failures.append(Failure("unexpected", what, f"the error has several lines: {str(error)[:80]!r}"))


def _where(error: BaseException) -> str:
    """The innermost place in our own code, and the error."""
    ours = [f for f in traceback.extract_tb(error.__traceback__) if "/stepscope/" in f.filename]
    place = f"{ours[-1].filename.partition('/stepscope/')[2]}:{ours[-1].lineno}" if ours else "elsewhere"
    reason = str(error).splitlines()[0][:100] if str(error) else ""
    return f"{place} {type(error).__name__}: {reason}"


def ask_profile(
    outcome: Outcome,
    paths: tuple[Path, ...],
    asked: list[Question],
    *,
    cache: bool = False,
    effect: Effect = "free",
    known: dict[str, Answer | None] | None = None,
    **opening: Any,
) -> None:
    """Open the profile and ask the questions; where answers of the good input are known, compare with them."""
    opened: list[api.Profile] = []
    outcome.ask("open", lambda: opened.append(api.open(*paths, cache=cache, **opening)))
    if not opened and effect == "same":
        outcome.failures.append(Failure("silent", "open", "refused, though nothing that it reads has changed"))
    for name, options in asked if opened else ():
        found = outcome.ask(name, lambda name=name, options=options: _asked(opened[0], name, options))  # type: ignore[misc]
        before = (known or {}).get(name)
        if before is not None and not options and (text := changed(effect, before, found)):
            outcome.failures.append(Failure("silent", name, text))


def _asked(profile: api.Profile, name: str, options: dict[str, Any]) -> Result | None:
    if name == "report":
        gather(Asker(lambda q, **given: api.analyse(profile, q, **given), ("x",)), "report", drawn=True)
        return None
    if name == "stats":
        _stats(profile)
        return None
    return api.analyse(profile, name, **options)


def _stats(profile: api.Profile) -> None:
    asker = nsys_reports.Asker(profile)
    for text in STATS:
        report, args = find(text, nsys_reports.reports())
        try:
            answered = asker.ask(report, args)
        except CannotAnswer:
            continue
        for column, series in zip(report.columns, answered.frame.get_columns(), strict=True):
            if column.unit in ("dur_ns", "mem_B") and series.dtype.is_numeric():
                least = series.min()
                assert least is None or float(least) >= 0, f"{text}: {column.name} is {least}"  # type: ignore[arg-type]
            if column.unit == "ratio_%" and series.dtype.is_numeric():
                most = series.max()
                assert most is None or float(most) <= 100.5, f"{text}: {column.name} is {most} %"  # type: ignore[arg-type]


def some_questions(r: random.Random, names: tuple[str, ...], count: int) -> list[Question]:
    """So many of them, in any order, some with an option; all of them where `count` is 0."""
    chosen = list(names) if count == 0 else r.sample(names, min(count, len(names)))
    return [(name, some_options(r, name)) for name in chosen]


def some_options(r: random.Random, name: str) -> dict[str, Any]:
    """None, mostly; or another choice than the default, a flag, a window."""
    if name not in questions.names() or r.random() < 0.6:
        return {}
    analysis = questions.get(name)
    can = {o.name: c for o in analysis.options if (c := choices(o.type))}
    flags = [o.name for o in analysis.options if o.type is bool]
    how = r.random()
    if can and how < 0.6:
        option = r.choice(sorted(can))
        return {option: r.choice(can[option])}
    if flags and how < 0.7:
        return {r.choice(flags): True}
    if analysis.windowed:
        return r.choice(({"index": "all"}, {"index": 0}, {"step": True}, {"whole": True}, {"rank": "0"}))
    return {}
