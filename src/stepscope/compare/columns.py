"""The columns of a comparison, by what a row is."""

from __future__ import annotations

from typing import Annotated, TypedDict

import polars as pl

from stepscope.model.result import names, rows


class _Figures(TypedDict):
    base_ns: Annotated[
        int, "in the median step of the base (of a part, stage, family or kernel: its share of the wall clock)"
    ]
    new_ns: Annotated[int, "in that of the new side"]
    diff_ns: Annotated[int, "new - base; over all rows it sums to the step's (over ranks: their mean does)"]
    change_pct: Annotated[float | None, "diff as a share of this row's base; null where that is zero"]
    step_pct: Annotated[float | None, "diff as a share of the base's step"]
    low_ns: Annotated[int | None, "lower end of its interval; all rows' intervals hold together with 95 %"]
    high_ns: Annotated[int | None, "upper end"]
    verdict: Annotated[str | None, "longer, shorter, within noise, new or gone; null where samples are too few to tell"]


class _Means(TypedDict):
    base_mean_ns: Annotated[int, "in the mean step of the base, over whole periods where lengths recur"]
    new_mean_ns: Annotated[int, "in that of the new side"]
    mean_diff_ns: Annotated[int, "their difference; over all rows it sums to that of the mean step"]
    mean_low_ns: Annotated[int | None, "lower end of its interval; all rows' intervals hold together with 95 %"]
    mean_high_ns: Annotated[int | None, "upper end"]


class _Parts(TypedDict):
    compute_diff_ns: Annotated[int | None, "of the diff, compute"]
    comm_diff_ns: Annotated[int | None, "of the diff, exposed communication"]
    copy_diff_ns: Annotated[int | None, "of the diff, exposed copies"]
    idle_diff_ns: Annotated[int | None, "of the diff, idle time before its ops"]


class _Counts(TypedDict):
    base_n: Annotated[float | None, "ops per step and rank in the base"]
    new_n: Annotated[float | None, "ops per step and rank in the new side"]


class _Key(TypedDict):
    part: Annotated[str, "compute, comm_exposed, copy_exposed or idle (see `breakdown`)"]


class Row(_Key, _Figures, _Means): ...


class _StageKey(TypedDict):
    stage: Annotated[str, "stage of the trainer's labels, or (no stage)"]


class Stage(_StageKey, _Figures, _Parts, _Means): ...


class _RankKey(TypedDict):
    rank: Annotated[int, "rank of the process"]


class Rank(_RankKey, _Figures, _Parts, _Means): ...


class _FamilyKey(TypedDict):
    family: Annotated[str, "kernel family (see `kernels`), or (idle)"]


class Family(_FamilyKey, _Figures, _Counts, _Means): ...


class _KernelKey(TypedDict):
    name: Annotated[str, "short name (see `kernels`), or (idle)"]
    family: Annotated[str | None, "its family"]


class Kernel(_KernelKey, _Figures, _Counts, _Means): ...


VARIANTS = {"part": Row, "stage": Stage, "rank": Rank, "family": Family, "kernel": Kernel}


class _MadeOf(TypedDict):
    key: str | int
    family: str | None


class Line(_MadeOf, _Figures, _Parts, _Counts, _Means):
    """A row while it is made, whatever it is of: `VARIANTS` say what of it is shown, and what `key` is called."""


def shown(by: str, lines: list[Line]) -> pl.DataFrame:
    """The lines as rows of what was asked for."""
    row = VARIANTS[by]
    key = names(row)[0]
    return rows(row, [{**line, key: line["key"]} for line in lines])
