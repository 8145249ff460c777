"""The columns of a comparison, by what a row is."""

from __future__ import annotations

from stepscope.model.result import Col

_FIGURES = (
    Col("base_ns", "in the median step of the base (of a part, stage, family or kernel: its share of the wall clock)"),
    Col("new_ns", "in that of the new side"),
    Col("diff_ns", "new - base; over all rows it sums to the step's (over ranks: their mean does)"),
    Col("change_pct", "diff as a share of this row's base; null where that is zero"),
    Col("step_pct", "diff as a share of the base's step"),
    Col("low_ns", "lower end of its interval; all rows' intervals hold together with 95 %"),
    Col("high_ns", "upper end"),
    Col("verdict", "longer, shorter, within noise, new or gone; null where samples are too few to tell"),
)
_MEANS = (
    Col("base_mean_ns", "in the mean step of the base, over whole periods where lengths recur"),
    Col("new_mean_ns", "in that of the new side"),
    Col("mean_diff_ns", "their difference; over all rows it sums to that of the mean step"),
    Col("mean_low_ns", "lower end of its interval; all rows' intervals hold together with 95 %"),
    Col("mean_high_ns", "upper end"),
)
_PARTS = (
    Col("compute_diff_ns", "of the diff, compute"),
    Col("comm_diff_ns", "of the diff, exposed communication"),
    Col("copy_diff_ns", "of the diff, exposed copies"),
    Col("idle_diff_ns", "of the diff, idle time before its ops"),
)
_COUNTS = (Col("base_n", "ops per step and rank in the base"), Col("new_n", "ops per step and rank in the new side"))

COLUMNS = (Col("part", "compute, comm_exposed, copy_exposed or idle (see `breakdown`)"), *_FIGURES, *_MEANS)
VARIANTS = {
    "part": COLUMNS,
    "stage": (Col("stage", "stage of the trainer's labels, or (no stage)"), *_FIGURES, *_PARTS, *_MEANS),
    "rank": (Col("rank", "rank of the process"), *_FIGURES, *_PARTS, *_MEANS),
    "family": (Col("family", "kernel family (see `kernels`), or (idle)"), *_FIGURES, *_COUNTS, *_MEANS),
    "kernel": (
        Col("name", "short name (see `kernels`), or (idle)"),
        Col("family", "its family"),
        *_FIGURES,
        *_COUNTS,
        *_MEANS,
    ),
}
