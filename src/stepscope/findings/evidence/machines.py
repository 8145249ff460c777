"""Which GPUs the ranks run on, and advice that fits them."""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl

from stepscope.findings.case import Case
from stepscope.model.gpus import is_amd


def gpu_name(case: Case, rank: int) -> str | None:
    """The name of a rank's GPU, where the trace has it."""
    known = case.profile.ranks.filter(pl.col("rank") == rank)["gpu"].drop_nulls()
    return str(known[0]) if len(known) else None


def on_amd(case: Case, ranks: Iterable[int]) -> bool:
    """Whether advice is for AMD's GPUs: settings and tools have other names there."""
    return any(is_amd(gpu_name(case, rank)) for rank in ranks)
