"""Every fault of the host, at three strengths on three schedules: found first, on its ranks, at what it costs."""

from __future__ import annotations

import pytest

from faultcases import WITHIN, Told, diagnosed, scenario
from marks import slow_unless
from stepscope.model.ranks import ranks_text

SCHEDULES = ("1f1b", "fsdp", "dualpipev")
#: fault -> what it is called, and three strengths; one or two of them on a single rank
FAULTS = {
    "slow-host": ("launch-bound", ("factor=6", "rank=2,factor=12", "factor=16")),
    "dataloader": ("data-stall", ("stall_ms=4", "rank=1,stall_ms=8", "stall_ms=20")),
    "host-syncs": ("host-sync", ("per_layer=4", "rank=1,per_layer=8", "per_layer=16")),
    "tiny-kernels": ("tiny-kernels", ("split=16", "rank=1,split=24", "rank=2,split=32")),
    "alloc": ("allocator-churn", ("per_layer=2", "rank=1,per_layer=3", "per_layer=4")),
}
CASES = [(fault, finding, how) for fault, (finding, strengths) in FAULTS.items() for how in strengths]


def wrong(told: Told, finding: str, schedule: str) -> str | None:
    """None where the fault is the first finding, on its ranks and stage, within 10 % of what it costs."""
    first = told.first
    one = told.ranks if len(told.ranks) == 1 else []
    stage = f"pipeline stage {one[0] // 2}" if one and schedule not in ("fsdp", "ddp") else None
    said = (first.get("id"), first.get("ranks"), first.get("stage"))
    if said != (finding, ranks_text(told.ranks), stage):
        return f"expected {finding}, {stage}: {told}"
    if abs(first["recoverable_ns"] - told.truth_ns) > WITHIN * told.truth_ns:
        return str(told)
    return None


def one_of_each(case: tuple[str, str, str], schedule: str) -> bool:
    """Of the nine of a fault one: strengths and schedules take turns from fault to fault."""
    fault, _, how = case
    turn = list(FAULTS).index(fault) % 3
    return (FAULTS[fault][1].index(how), SCHEDULES.index(schedule)) == (turn, (turn + 1) % 3)


@pytest.mark.parametrize(
    ("case", "schedule"),
    slow_unless(one_of_each, CASES, SCHEDULES),
    ids=lambda v: v if isinstance(v, str) else f"{v[0]}:{v[2]}",
)
def test_the_fault_is_the_first_finding(case: tuple[str, str, str], schedule: str) -> None:
    fault, finding, how = case
    told = diagnosed(scenario(schedule, f"{fault}:{how}"))
    assert told.truth_ns >= 0.03 * told.result.summary["step_ns"], f"too weak to test: {told}"
    assert wrong(told, finding, schedule) is None
    assert 0 < len(told.first["where"]) <= 10
    assert {place["rank"] for place in told.first["where"]} <= set(told.ranks)
