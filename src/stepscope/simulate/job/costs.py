"""What things cost on the simulated machine, in nanoseconds and bytes per second: an H200 node, near enough.

The figures are of the order that our own H200 traces show; only their proportions matter.
"""

from __future__ import annotations

# -- host ------------------------------------------------------------------------------------------------------------
#: Python and the dispatcher before a launch, and the launch call itself.
LAUNCH_GAP, LAUNCH_CALL = 2_400, 3_300
#: From the return of a launch to the earliest start on an idle GPU.
SUBMIT = 1_700
#: A launch blocks while so many launches of its stream, itself included, have not started (measured: decision 0016).
QUEUE_DEPTH = 1_022
NVTX_PUSH, NVTX_POP = 420, 310
EVENT_GAP, EVENT_CALL = 450, 1_150
WAIT_GAP, WAIT_CALL = 380, 1_050
COPY_GAP, COPY_CALL = 3_000, 4_600
#: A synchronizing call: its shortest duration, and its return after the GPU got there.
SYNC_GAP, SYNC_CALL, SYNC_RETURN = 1_500, 2_300, 5_200
#: What a program does with a number that it took from the GPU.
ITEM_PYTHON = 40_000
MALLOC_GAP, MALLOC_CALL, FREE_CALL = 4_000, 210_000, 160_000
#: torch.distributed above NCCL, NCCL's own work around the launch, and the launch.
C10D, NCCL_BEFORE, NCCL_CALL, NCCL_AFTER = 9_000, 2_600, 7_400, 900
NCCL_GROUP_MARK = 420
#: Handing a backward pass to the autograd thread and back.
THREAD_SWITCH = 18_000
#: Getting a batch from the loader, and Python around a step.
DATA_FETCH, STEP_PYTHON = 120_000, 35_000
#: Ranks do not start together: up to this much apart at the start of the capture.
START_SPREAD = 150_000
#: The first work comes this long after the capture began.
CAPTURE_LEAD = 5_000_000

# -- GPU -------------------------------------------------------------------------------------------------------------
#: Between two kernels of a stream, when the second was queued in time.
KERNEL_GAP = 620
#: From the end of an op to the start of one that waits for its event. Streams differ by a few ns, so that two ops
#: released by one event never start at the same instant.
EVENT_LATENCY, EVENT_LATENCY_PER_STREAM = 1_300, 11

# -- network ---------------------------------------------------------------------------------------------------------
#: Bytes per nanosecond (that is GB/s) that one rank moves, and the latency of a transfer.
INTRA_BANDWIDTH, INTER_BANDWIDTH = 400.0, 120.0
INTRA_LATENCY, INTER_LATENCY = 9_000, 16_000
#: Ranks see the end of one collective within this many nanoseconds of each other.
END_SPREAD = 900
#: Pinned host memory to device and back.
COPY_BANDWIDTH, COPY_LATENCY = 50.0, 1_500
