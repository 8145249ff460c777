"""What every input must stand: questions that end in an answer or in one line, and figures that can be."""

from __future__ import annotations

import math
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stepscope import api, questions
from stepscope.errors import CannotAnswer, GateFailed, StepscopeError
from stepscope.model.result import Result
from stepscope.nsys import reports as nsys_reports
from stepscope.nsys.reports.registry import find
from stepscope.report import Asker, gather

#: Differences, and places on a clock: they may be negative.
SIGNED = ("diff_ns", "offset_ns", "start_ns", "end_ns", "launched_ns", "low_ns", "high_ns", "epoch_ns", "at_ns")
#: Changes, and sums of what runs side by side: they may be more than the whole.
UNBOUNDED = {"over_pct", "change_pct", "step_pct", "low_step_pct", "high_step_pct", "limit_pct", "peak_pct"}
_SUMS = {"kernels", "source"}

STATS = ("cuda_gpu_kern_sum", "cuda_api_sum", "nvtx_sum", "cuda_gpu_trace", "nvtx_gpu_proj_sum", "cuda_kern_exec_sum")


@dataclass
class Outcome:
    """How the questions about one input ended: counts, and what must not be."""

    answered: int = 0
    refused: int = 0
    cannot: int = 0
    failures: list[str] = field(default_factory=list)

    @property
    def kind(self) -> str:
        if self.failures:
            return "failed"
        return "answered" if self.answered else "refused"


def ask_all(
    paths: list[Path], asked: list[str] | None = None, *, cache: bool = False, base: Path | None = None
) -> Outcome:
    """Open the profile and ask the questions named (all by default); with `base`, compare to that run, too."""
    outcome = Outcome()
    opened: list[api.Profile] = []
    _try(outcome, "open", lambda: opened.append(api.open(*paths, cache=cache)))
    if not opened:
        return outcome
    profile = opened[0]
    for name in asked or [*questions.names(), "report", "stats", *(["compare"] if base else [])]:
        _try(outcome, name, lambda name=name: _asked(profile, name, base))  # type: ignore[misc]
    return outcome


def ask(outcome: Outcome, what: str, question: Callable[[], Any]) -> None:
    _try(outcome, what, question)


def _asked(profile: api.Profile, name: str, base: Path | None) -> list[tuple[str, Result]] | None:
    if name == "report":
        asker = Asker(lambda q, **options: api.analyse(profile, q, **options), ("x",))
        gather(asker, "report", drawn=True)
        return None
    if name == "stats":
        return _stats(profile)
    if name == "compare":
        return [(name, api.compare(profile, base if base is not None else profile))]
    return [(name, api.analyse(profile, name))]


def _stats(profile: api.Profile) -> list[tuple[str, Result]]:
    asker = nsys_reports.Asker(profile)
    for text in STATS:
        report, args = find(text, nsys_reports.reports())
        try:
            answer = asker.ask(report, args)
        except CannotAnswer:
            continue
        for column, series in zip(report.columns, answer.frame.get_columns(), strict=True):
            if column.unit in ("dur_ns", "mem_B") and series.dtype.is_numeric():
                least = series.min()
                assert least is None or float(least) >= 0, f"{text}: {column.name} is {least}"  # type: ignore[arg-type]
            if column.unit == "ratio_%" and series.dtype.is_numeric():
                most = series.max()
                assert most is None or float(most) <= 100.5, f"{text}: {column.name} is {most} %"  # type: ignore[arg-type]
    return []


def _try(outcome: Outcome, what: str, question: Callable[[], list[tuple[str, Result]] | None]) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            results = question() or []
        outcome.answered += what != "open"
        for name, result in results:
            outcome.failures += [f"{name}: {text}" for text in impossible(name, result)]
    except CannotAnswer as error:
        outcome.cannot += 1
        _one_line(outcome, what, error)
    except GateFailed:
        outcome.answered += 1
    except StepscopeError as error:
        outcome.refused += 1
        _one_line(outcome, what, error)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a panic of Polars is no Exception
        outcome.failures.append(f"{what}: {_where(error)}")


def _one_line(outcome: Outcome, what: str, error: StepscopeError) -> None:
    if "\n" in str(error):
        outcome.failures.append(f"{what}: the error has several lines: {str(error)[:80]!r}")


def _where(error: BaseException) -> str:
    """The innermost place in our own code, and the error."""
    ours = [f for f in traceback.extract_tb(error.__traceback__) if "/src/stepscope/" in f.filename]
    place = f"{ours[-1].filename.partition('/src/stepscope/')[2]}:{ours[-1].lineno}" if ours else "elsewhere"
    reason = str(error).splitlines()[0][:100] if str(error) else ""
    return f"{place} {type(error).__name__}: {reason}"


def impossible(name: str, result: Result) -> Iterator[str]:
    """Figures that cannot be: negative times and sizes, shares above the whole, and what is no number at all."""
    for column in result.rows.columns:
        series = result.rows[column]
        if series.dtype.is_numeric() and series.len():
            for value in (series.min(), series.max()):
                if value is not None and (text := _wrong(name, column, float(value))):  # type: ignore[arg-type]
                    yield text
                    break
            if series.dtype.is_float() and not series.drop_nulls().is_finite().all():
                yield f"{column} is not finite"
    for row in [result.summary, *result.window]:
        for key, value in row.items():
            if isinstance(value, int | float) and not isinstance(value, bool) and (text := _wrong(name, key, value)):
                yield text


def _wrong(name: str, column: str, value: float) -> str | None:
    if not math.isfinite(value):
        return f"{column} is {value}"
    if column.endswith(("_ns", "_bytes")) and not column.endswith(SIGNED) and value < 0:
        return f"{column} is {value:.0f}"
    if column.endswith("_pct") and column not in UNBOUNDED:
        if value < -1e-6:
            return f"{column} is {value:.1f}"
        if value > 100 + 1e-6 and not (column == "share_pct" and name in _SUMS):
            return f"{column} is {value:.1f}"
    return None
