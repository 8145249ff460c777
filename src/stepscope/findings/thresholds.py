"""The numbers by which several detectors judge; others are declared where they are used. docs/thresholds.md prints all.

Numbers from traces were measured on the traces of docs/diagnoses.md and on the reference captures
(tests/data/moe_reference): about 180 hosts, half of them under nsys and half under torch.profiler.
"""

from __future__ import annotations

from stepscope.model.threshold import Threshold

SHOWN = Threshold(
    2.0,
    "% of the step",
    "a healthy trace has nothing above it: steps differ by as much from one to the next",
    ("tests/findings/test_healthy.py", "public/h100_qwen.json.gz"),
)
LONG_KERNEL = Threshold(
    20.0,
    "µs",
    "shorter kernels are bound by latency, not by how many blocks they have",
    ("tests/findings/test_thresholds.py::test_short_kernels_are_not_judged_by_their_blocks",),
)
