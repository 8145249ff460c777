"""What warps wait for: the share of each reason in the cycles that a warp spends per instruction issued.

From the counters (`smsp__average_warps_issue_stalled_…_per_issue_active`), else from samples of the program counter
(`smsp__pcsamp_warps_issue_stalled_…`). A warp that issues (`selected`) does not wait.
"""

from __future__ import annotations

import numpy as np

from stepscope.derive.kernel.measured import Kernels, ratio
from stepscope.intervals.arrays import F64

_COUNTED = r"smsp__average_warps_issue_stalled_(?P<reason>\w+?)_per_issue_active\.ratio"
_SAMPLED = r"smsp__pcsamp_warps_issue_stalled_(?P<reason>\w+)"
_NOT_WAITING = "selected"
#: Reasons with less than half a per cent are none.
_LEAST_PCT = 0.5
_BOTH = "_not_issued"

#: What a reason means, in the words of the field.
MEANING = {
    "long_scoreboard": "waits for global or local memory",
    "short_scoreboard": "waits for shared memory or special functions",
    "lg_throttle": "too many loads and stores of global memory at once",
    "mio_throttle": "too many shared-memory or special instructions at once",
    "tex_throttle": "too many texture instructions at once",
    "math_pipe_throttle": "waits for a busy arithmetic pipe",
    "barrier": "waits at __syncthreads for the other warps of its block",
    "membar": "waits for a memory fence",
    "wait": "fixed latency of the instruction before",
    "not_selected": "ready, but another warp was chosen",
    "no_instruction": "waits for instructions to be fetched",
    "no_instructions": "waits for instructions to be fetched",
    "imc_miss": "waits for constants",
    "branch_resolving": "waits for a branch",
    "dispatch_stall": "waits for the dispatcher",
    "drain": "waits for stores before it ends",
    "gmma": "waits for the tensor pipe (wgmma)",
    "warpgroup_arrive": "waits for the tensor pipe (wgmma)",
    "sleeping": "sleeps, as the program asked",
    "misc": "other reasons",
}


def stalls(kernels: Kernels, most: int = 3) -> list[list[tuple[str, float]]]:
    """By kernel: the reasons that take most, with their share in per cent, largest first."""
    counted = {m["reason"]: v for m, v in kernels.named(_COUNTED).items()}
    sampled = {m["reason"]: v for m, v in kernels.named(_SAMPLED).items() if not m["reason"].endswith(_BOTH)}
    shares = _shares(counted or sampled)
    reasons = [reason for reason in shares if reason != _NOT_WAITING]
    if not reasons:
        return [[] for _ in range(len(kernels))]
    table = np.array([shares[reason] for reason in reasons])
    order = np.argsort(-np.nan_to_num(table), axis=0, kind="stable")[:most]
    return [
        [(reasons[at], float(table[at, row])) for at in order[:, row].tolist() if table[at, row] >= _LEAST_PCT]
        for row in range(len(kernels))
    ]


def _shares(values: dict[str, F64]) -> dict[str, F64]:
    if not values:
        return {}
    total = np.nansum(np.array(list(values.values())), axis=0)
    return {reason: 100 * ratio(v, total) for reason, v in values.items()}
