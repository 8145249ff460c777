"""The columns of a pipeline of micro-batches, rank by rank."""

from __future__ import annotations

from typing import Annotated, TypedDict

from stepscope.model.result import OfRank


class OfStage(OfRank):
    stage: Annotated[int | None, "place in the pipeline, from the setup label"]


class _Bubble(TypedDict):
    bubble_ns: Annotated[int, "of it, with neither compute nor communication other than the pipeline's"]
    bubble_pct: Annotated[float | None, "the same as a share"]


class _RankKey(OfStage):
    step_ns: Annotated[int, "GPU time from the first op of the step to the end of its last"]


class ByRank(_RankKey, _Bubble):
    ideal_pct: Annotated[
        float | None, "share that the schedule leaves idle on ideal stages; null where it is not known"
    ]
    over_pct: Annotated[float | None, "bubble beyond the ideal, in percentage points"]


class _PhaseKey(OfStage):
    phase: Annotated[str, "before, warm-up, steady, drain or after"]
    phase_ns: Annotated[int, "its length"]


class ByPhase(_PhaseKey, _Bubble): ...
