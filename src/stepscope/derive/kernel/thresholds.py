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
SAME_FLOPS = Threshold(
    2.0,
    "% of the operations",
    "launches of one kernel and shape that differ by more do other work: inner sizes of products come in steps",
    ("tests/derive/kernel/test_kernel_matching.py", _NCU),
)
SAME_TIME = Threshold(
    1.5,
    "times the duration",
    "the same work measured twice on an H200 differs by 3 %; other data (an index, a mask) by more than half",
    ("tests/derive/kernel/test_kernel_matching.py", _NCU),
)
OTHER_WORK = Threshold(
    2.0,
    "times the measured duration",
    "clocks and neighbours make an op of a step up to 1.5 times as long as its kernel alone; products of another inner "
    "size take 2.9 times as long",
    ("tests/derive/kernel/test_kernel_matching.py", "h200/train/eager.sqlite"),
)
GAP = Threshold(
    1.15,
    "times the next shorter op",
    "lengths of the same work lie close to each other: on an H200 neighbours are up to 8 % apart, products of other "
    "sizes 28 % and more",
    ("tests/derive/kernel/test_kernel_matching.py", "h200/train/eager.sqlite"),
)
SAME_LENGTH = Threshold(
    1.12,
    "times the measured duration",
    "a kernel alone and the same in the step differ by less, but for the smallest, which caches help",
    ("tests/derive/kernel/test_kernel_matching.py", "h200/train/eager.sqlite"),
)

#: By name, for docs/thresholds.md.
THRESHOLDS = {name: value for name, value in globals().items() if isinstance(value, Threshold)}
FILLED = Threshold(
    95.0,
    "% of a sample's time",
    "a sampled metric is the whole GPU's: what a kernel does not fill, idle time or another kernel falsifies",
    ("tests/derive/kernel/test_sampled.py",),
)
ENOUGH_SAMPLES = Threshold(
    3.0,
    "samples",
    "each is exact for its own time, and the first of a kernel has its start in it: one alone says little of the rest",
    ("tests/derive/kernel/test_sampled.py", "h200/hf/hf1_rich.sqlite"),
)
