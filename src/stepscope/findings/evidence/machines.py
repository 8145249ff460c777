"""Which GPUs the ranks run on, and advice that fits them."""

from __future__ import annotations

from collections.abc import Iterable

from stepscope.findings.case import Case
from stepscope.model import ranks as of_ranks
from stepscope.model.gpus import is_amd


def gpu_name(case: Case, rank: int) -> str | None:
    """The name of a rank's GPU, where the trace has it."""
    return of_ranks.gpu_name(case.profile.ranks, rank)


def on_amd(case: Case, ranks: Iterable[int]) -> bool:
    """Whether advice is for AMD's GPUs: settings and tools have other names there."""
    return any(is_amd(gpu_name(case, rank)) for rank in ranks)
