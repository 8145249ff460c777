"""The numbers by which a kernel is judged. docs/thresholds.md prints them."""

from __future__ import annotations

from stepscope.model.threshold import Threshold

_BOUND = "tests/derive/kernel/test_bound.py"
_NCU = "h200/ncu/ncu_full_details.csv"

BUSY = Threshold(
    60.0,
    "% of peak",
    "where neither compute nor memory reaches it, Nsight Compute speaks of latency: nothing in the GPU is the limit",
    (_BOUND, _NCU),
)
BALANCED = Threshold(
    10.0,
    "% of peak",
    "compute and memory that are closer to each other limit the kernel together, as Nsight Compute has it",
    (_BOUND,),
)
HIGH = Threshold(
    80.0,
    "% of peak",
    "from there on a unit is the limit, however small the grid is, as Nsight Compute has it",
    (_BOUND, _NCU),
)
STARTED = Threshold(
    50.0,
    "% of the kernel's time",
    "where even the busiest multiprocessor works for less, most of the time goes to starting and ending the kernel",
    (_BOUND,),
)
EXCESS = Threshold(
    10.0,
    "% of the sectors or wavefronts",
    "fewer that a better access pattern would save are not worth a name; planted strides save 70 % and more",
    ("tests/derive/kernel/test_access.py",),
)

#: By name, for docs/thresholds.md.
THRESHOLDS = {name: value for name, value in globals().items() if isinstance(value, Threshold)}
