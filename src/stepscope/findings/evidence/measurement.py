"""Synchronizations that only a measurement needs: one behind every block, so that it can be timed."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from stepscope.derive.rank.cuda_calls import Family
from stepscope.derive.rank.data import COMPUTE
from stepscope.findings.case import Case
from stepscope.findings.evidence.hosts import Host, hosts
from stepscope.intervals.arrays import I64, NONE
from stepscope.model.threshold import Threshold

MEASURING_SYNCS = Threshold(
    8,
    "device synchronizations in a step",
    "training needs one or two, and a measurement makes one per block: 137 in the trace that has one",
    (
        "h200/moe4mps/cut_off.sqlite",
        "tests/findings/test_thresholds.py::test_a_few_synchronizations_are_no_measurement",
    ),
)
MEASURED_COMPUTE = Threshold(
    50.0,
    "% of the compute",
    "of kernels right behind which the host waits: 7 to 11 where synchronizations are for other reasons",
    (
        "tests/findings/test_host_by_hand.py::test_a_synchronization_behind_every_kernel_is_a_measurement",
        "tests/findings/test_real_faults_host.py",
    ),
)
MEASURED_RANGES = Threshold(
    90.0,
    "% of the ranges",
    "a timer closes every range that it opened, and the first or the last may be cut off",
    ("h200/moe4mps/cut_off.sqlite",),
)


class Measured(Struct, frozen=True):
    """The synchronizations of one rank that a measurement makes, and what each of them follows."""

    host: Host
    calls: I64
    behind: str


def measured(case: Case) -> dict[int, Measured]:
    """By rank: device synchronizations behind every block; nothing where there are none."""
    return {r: m for r, h in hosts(case).items() if (m := _of(h)) is not None}


def _of(host: Host) -> Measured | None:
    calls = host.of_family(Family.DEVICE_SYNC)
    if len(calls) < MEASURING_SYNCS.value:
        return None
    behind = _behind_kernels(host, calls) or _behind_ranges(host, calls)
    return Measured(host, calls, behind) if behind else None


def _behind_kernels(host: Host, calls: I64) -> str | None:
    """Whether one of the calls follows most kernels, by their time, before the next is launched."""
    data = host.data
    ops = host.window.ops
    ops = ops[(data.launch[ops] != NONE) & (data.role[ops] == COMPUTE)]
    ops = ops[np.argsort(data.launch[ops], kind="stable")]
    if len(ops) == 0:
        return None
    n = np.searchsorted(calls, data.launch[ops])
    followed = np.r_[n[1:] > n[:-1], n[-1] < len(calls)]
    time = data.end[ops] - data.start[ops]
    return "nearly every large kernel" if time[followed].sum() >= MEASURED_COMPUTE.share * time.sum() else None


def _behind_ranges(host: Host, calls: I64) -> str | None:
    """Whether nearly all innermost ranges that launch kernels end with one of the calls."""
    data = host.data
    ops, _ = host.stretches
    kernels = ops[data.role[ops] == COMPUTE]
    within = data.enclosing(kernels)
    in_range = within != NONE
    if not in_range.any():
        return None
    ranges = np.unique(within[in_range])
    last = np.zeros(data.ranges.height, np.int64)
    np.maximum.at(last, within[in_range], data.launch[kernels[in_range]])
    after = np.searchsorted(calls, last[ranges], side="right")
    end = data.ranges["end_ns"].to_numpy()[ranges]
    there = after < len(calls)
    ended = there & (host.start[calls[np.minimum(after, len(calls) - 1)]] < end)
    return "every range" if len(ranges) >= MEASURING_SYNCS.value and ended.mean() >= MEASURED_RANGES.share else None
