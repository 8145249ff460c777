"""What figures must be, whatever the input: possible, the parts of a whole, and not changed in silence."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import polars as pl
from effects import Effect

from stepscope.model.result import Result
from stepscope.model.statement import STATEMENT

#: Differences, and places on a clock: they may be negative.
SIGNED = (
    "diff_ns",
    "offset_ns",
    "saves_bytes",
    "less_gpu_ns",
    "start_ns",
    "end_ns",
    "launched_ns",
    "low_ns",
    "high_ns",
    "epoch_ns",
    "at_ns",
)
#: Changes, and sums of what runs side by side: they may be more than the whole.
UNBOUNDED = {"over_pct", "change_pct", "step_pct", "low_step_pct", "high_step_pct", "limit_pct", "peak_pct"}
#: Ops of several streams run side by side, so that their shares of the time add up to more.
_SIDE_BY_SIDE = {"compute", "kernels", "source"}
#: What Nsight Compute measured of a peak, in passes that differ by some percent.
_MEASURED = {"dram_pct", "l2_pct", "l1_pct", "roof_pct", "compute_pct", "memory_pct"}
#: Where files lie, and what is said of figures: another path or another sentence is no other figure.
_TEXTS = {"file", "command", "where", "evidence", "paths", STATEMENT}
#: A share is rounded nowhere, but it is a float.
_NEARLY = 1e-6

_PARTS = ["compute_ns", "comm_exposed_ns", "copy_exposed_ns", "idle_ns"]
_IDLE = [f"idle_{why}_ns" for why in ("compile", "graph", "between", "eager", "capture", "other")]


def impossible(name: str, result: Result) -> Iterator[str]:
    """Figures that cannot be: negative times and sizes, shares above the whole, parts that are not the whole."""
    rows = result.rows
    for column in rows.columns:
        series = rows[column]
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
    if rows.height:
        yield from _relations(name, rows)


def _wrong(name: str, column: str, value: float) -> str | None:
    if not math.isfinite(value):
        return f"{column} is {value}"
    if column.endswith(("_ns", "_bytes", "_flops")) and not column.endswith(SIGNED) and value < 0:
        return f"{column} is {value:.0f}"
    if column.endswith("_pct") and column not in UNBOUNDED:
        if value < -_NEARLY:
            return f"{column} is {value:.1f}"
        most = 110 if name in ("roofline", "kernels") and column in _MEASURED else 100
        if value > most + _NEARLY and not (column == "share_pct" and name in _SIDE_BY_SIDE):
            return f"{column} is {value:.1f}"
    return None


@dataclass(frozen=True)
class _Relation:
    """Something that holds in every row, where the columns are there."""

    says: str
    columns: tuple[str, ...]
    holds: pl.Expr
    of: tuple[str, ...] = ()


def _c(name: str) -> pl.Expr:
    return pl.col(name)


def _at_most(part: str, whole: str, *of: str) -> _Relation:
    return _Relation(f"{part} is more than {whole}", (part, whole), _c(part) <= _c(whole) + _NEARLY, of)


_RELATIONS = (
    _Relation("a row ends before it starts", ("start_ns", "end_ns"), _c("start_ns") <= _c("end_ns")),
    _Relation(
        "a row is not as long as from start to end",
        ("start_ns", "end_ns", "dur_ns"),
        _c("end_ns") - _c("start_ns") == _c("dur_ns"),
    ),
    _Relation(
        "the window ends before it starts", ("gpu_start_ns", "gpu_end_ns"), _c("gpu_start_ns") <= _c("gpu_end_ns")
    ),
    _Relation(
        "the window ends before it starts", ("cpu_start_ns", "cpu_end_ns"), _c("cpu_start_ns") <= _c("cpu_end_ns")
    ),
    _Relation(
        "parts are not the window", ("window_ns", *_PARTS), pl.sum_horizontal(_PARTS) == _c("window_ns"), ("breakdown",)
    ),
    _Relation(
        "parts are not the range", ("total_ns", *_PARTS), pl.sum_horizontal(_PARTS) == _c("total_ns"), ("breakdown",)
    ),
    _Relation(
        "parts are not the idle time", ("idle_ns", *_IDLE), pl.sum_horizontal(_IDLE) == _c("idle_ns"), ("compile",)
    ),
    _at_most("comm_hidden_ns", "compute_ns", "breakdown"),
    _at_most("exposed_ns", "comm_ns", "overlap"),
    _at_most("exposed_ns", "dur_ns", "exposed"),
    _at_most("overlap_min_pct", "overlap_max_pct", "overlap"),
    _at_most("median_ns", "max_ns"),
    _at_most("mean_ns", "max_ns"),
    _at_most("max_ns", "total_ns", "kernels"),
    _at_most("self_host_ns", "host_ns", "nvtx"),
    _at_most("self_gpu_ns", "gpu_ns", "nvtx"),
    _at_most("together_ns", "busy_a_ns", "concurrency"),
    _at_most("together_ns", "busy_b_ns", "concurrency"),
    _at_most("bubble_ns", "step_ns", "pipeline"),
    _at_most("mfu_pct", "hfu_pct", "mfu"),
    _at_most("model_flops", "hardware_flops", "mfu"),
    _at_most("idle_ns", "call_ns", "memory"),
    _at_most("recoverable_low_ns", "recoverable_high_ns", "diagnose"),
    _at_most("transfer_ns", "dur_ns"),
    _at_most("present", "size", "mesh"),
)
#: Shares of one whole: of rows that have the same values in these columns.
_WHOLES: dict[str, tuple[str, ...]] = {
    "concurrency": ("rank", "stream"),
    "critical-path": (),
    "idle": ("rank",),
}


def _relations(name: str, rows: pl.DataFrame) -> Iterator[str]:
    for relation in _RELATIONS:
        if (not relation.of or name in relation.of) and set(relation.columns) <= set(rows.columns):
            broken = rows.filter(~relation.holds)
            if broken.height:
                yield f"{relation.says}: {broken.select(relation.columns).row(0)}"
    if name in _WHOLES and "share_pct" in rows.columns and "index" not in rows.columns:
        by = [c for c in _WHOLES[name] if c in rows.columns]
        sums = rows.group_by(by).agg(_c("share_pct").sum()) if by else rows.select(_c("share_pct").sum())
        if (most := sums["share_pct"].max()) is not None and float(most) > 100.01:  # type: ignore[arg-type]
            yield f"shares sum to {most}"


@dataclass(frozen=True)
class Answer:
    """What a good input's answer is known by: its figures, and the notes that are no mere context."""

    figures: Any
    notes: frozenset[str]


def answer(result: Result) -> Answer:
    columns = [c for c in result.rows.columns if c not in _TEXTS]
    figures = [
        [columns, *(map(_plain, row) for row in result.rows.select(columns).iter_rows())],
        sorted((k, _plain(v)) for k, v in result.summary.items() if k not in _TEXTS),
    ]
    return Answer(
        [[list(row) for row in figures[0]], figures[1]], frozenset(str(n) for n in result.notes if n.severity != "info")
    )


def _plain(value: Any) -> Any:
    """Sums of floats differ in their last digits with the order of rows."""
    return float(f"{value:.9g}") if isinstance(value, float) and math.isfinite(value) else repr(value)


def changed(effect: Effect, before: Answer, after: Answer | None) -> str | None:
    """What is wrong with an answer that is another than that of the good input; None: there was none, but an error."""
    if effect == "free" or (effect == "told" and after is None):
        return None
    if after is None:
        return "no answer, though nothing that it reads has changed"
    if after.figures == before.figures:
        return None
    if effect == "same":
        return f"other figures, though nothing that it reads has changed: {_difference(before.figures, after.figures)}"
    if after.notes - before.notes:
        return None
    return f"other figures in silence: {_difference(before.figures, after.figures)}"


def _difference(before: Any, after: Any) -> str:
    """The first place where two nests of lists differ."""
    if isinstance(before, list) and isinstance(after, list):
        if len(before) != len(after):
            return f"{len(before)} → {len(after)} rows"
        return next((_difference(a, b) for a, b in zip(before, after, strict=True) if a != b), "")
    return f"{before} → {after}"[:120]
