"""The numbers by which a rank or a link stands out beside others. docs/thresholds.md prints them."""

from __future__ import annotations

from stepscope.model.threshold import Threshold

_RANKS = "tests/derive/peers/test_compute.py"
_LINKS = "tests/derive/peers/test_links.py"
_AGREE = "tests/reliability/agreement.py"

WORTH_A_NAME = Threshold(
    2.0,
    "% of the step or capture",
    "an excess below it is not shown by `diagnose` either",
    (_RANKS, "decision 0018"),
)
ALIKE = Threshold(
    1.03,
    "times the usual compute",
    "clocks of GPUs of one kind differ by as much",
    (_RANKS, "decision 0018"),
)
BEYOND_CHANCE = Threshold(
    2.0,
    "standard errors",
    "what single kernels vary by makes ranks that share a GPU differ by up to 1.8 on healthy captures; planted faults "
    "begin at 2.3 (a GPU that is 5 % slower, over one step)",
    ("h200/hf/hf4_straggler.sqlite", "tests/data/moe_reference", "decision 0018"),
)
ALL_BUT = Threshold(
    20.0,
    "% of the compute",
    "a slow GPU makes all kernels longer but those that the host or memory bounds",
    (_RANKS, "decision 0018"),
)
SAME_SIZE = Threshold(
    1.02,
    "times the blocks of a launch",
    "ranks that do the same work launch the same grids; a batch of 17 instead of 16 is 1.06 times as large",
    (_RANKS,),
)
OTHER_SIZES = Threshold(
    5.0,
    "% of the compute",
    "where so much of it is in launches of other sizes, the same grids elsewhere may stand for other sizes, too",
    (_RANKS,),
)
RECORDED_WHOLE = Threshold(
    90.0,
    "% of the communications of its peers",
    "a rank with fewer was cut off, and has less of everything",
    ("h200/moe4mps/cut_off.sqlite",),
)
HOST_SPREADS = Threshold(
    6.0,
    "times the distance of the better ranks",
    "how far the better ones lie from each other is chance",
    (_AGREE, "decision 0018"),
)
HOST_TIMES = Threshold(
    2.5,
    "times the usual lateness",
    "hosts of healthy captures come to 2.2, planted faults from 2.8 on",
    ("tests/data/moe_reference", "decision 0018"),
)
HOST_MUCH = Threshold(
    10.0,
    "% of the capture",
    "hosts of healthy captures come to 5.6, planted faults to 36",
    ("tests/data/moe_reference", "decision 0018"),
)
HOST_LEAST = Threshold(
    0.5,
    "% of the capture",
    "nobody would notice less",
    (_AGREE, "decision 0018"),
)
SLOW_LINK = Threshold(
    1.4,
    "times the usual transfer",
    "healthy links differ by up to 1.23 beyond chance; a link with two thirds of its bandwidth comes to 1.45",
    (_LINKS, "tests/data/moe_reference", "decision 0018"),
)
FEWEST_TRANSFERS = Threshold(
    4,
    "transfers",
    "the median of fewer says nothing of what is usual on a link",
    (_LINKS, "decision 0018"),
)

FETCH = Threshold(
    1000.0,
    "µs",
    "a loader that keeps ahead hands over a batch in 70 to 200; a host that is away for longer than this is at work",
    ("h200/hf/hf1_data.sqlite", "public/aiprof_baseline.sqlite"),
)
INPUT = Threshold(
    1024,
    "bytes",
    "a batch is larger; a number or a few sizes that are copied to the device are not",
    ("public/tl_xdit_flux_capture.json.gz", "h200/hf/hf1_data.sqlite"),
)
LIKE = Threshold(
    1.5,
    "times as long or as short",
    "batches of one loader take 50.0 and 50.3 ms; other long absences of the host are not of that length",
    ("h200/hf/hf1_data.sqlite",),
)
QUIET = Threshold(
    2,
    "CUDA calls",
    "a host that fetches makes none but the launch that ends the gap, and the return of the call before it",
    ("h200/hf/hf1_data.sqlite",),
)
ABSENT = Threshold(
    5000.0,
    "µs",
    "away for so long near a copy of input, a host that makes no call fetches; between steps of transformers' Trainer, "
    "with nothing to fetch, it is away for up to 4.1 ms",
    ("h200/hf/hf1_healthy.sqlite", "h200/hf/hf4_healthy.sqlite"),
)
LEAD = Threshold(
    200.0,
    "µs",
    "a range of input that copies right from its beginning only copies; fetching a batch that is there takes 70 to 200",
    ("tests/data/moe_reference", "tests/derive/peers/test_lateness.py"),
)
SOON = Threshold(
    16,
    "launches",
    "transformers' Trainer copies and gathers a count of tokens between fetching a batch and copying it: four ops",
    ("tests/derive/peers/test_lateness.py",),
)
BATCHES = Threshold(
    4,
    "waits for input",
    "copies of weights come once; a loop over batches waits before each of them",
    ("public/aiprof_baseline.sqlite", "public/a100_lm2.7b_nvtx.sqlite"),
)

#: All of them by name, in this order.
THRESHOLDS = {name: value for name, value in globals().items() if isinstance(value, Threshold)}
