"""Every number on which a finding turns. docs/thresholds.md prints them.

Numbers from traces were measured on the traces of docs/diagnoses.md and on the reference captures
(tests/data/moe_reference): about 180 hosts, half of them under nsys and half under torch.profiler.
"""

from __future__ import annotations

from stepscope.model.threshold import Threshold

_HEALTHY = "tests/findings/test_healthy.py"
_HOST = "tests/findings/test_faults_host.py"
_ACROSS = "tests/findings/test_faults_across.py"
_BY_HAND = "tests/findings/test_host_by_hand.py"
_REAL_HOST = "tests/findings/test_real_faults_host.py"
_REAL_ACROSS = "tests/findings/test_real_faults_across.py"
_SIDES = "tests/findings/test_thresholds.py"

# -- what is worth a finding -------------------------------------------------------------------------------------------

SHOWN = Threshold(
    2.0,
    "% of the step",
    "a healthy trace has nothing above it: steps differ by as much from one to the next",
    (_HEALTHY, "public/h100_qwen.json.gz"),
)
STEPS_DIFFER = Threshold(
    25.0,
    "% of the step that is looked at",
    "steps of steady jobs differ by a few per cent; where steps alternate, or some save a checkpoint, by far more",
    ("tests/findings/test_other_steps.py",),
)
RUN_LOSES = Threshold(
    2.0,
    "% of the mean step",
    "as for findings: what a run loses outside its usual step is said from there on",
    ("tests/findings/test_run_findings.py",),
)
PACE_DIFFERS = Threshold(
    3.0,
    "% of the mean step",
    "the mean of many steps and that of a few recorded ones differ by less in steady programs",
    ("tests/findings/test_pace.py",),
)
TAKEN_AGAIN = Threshold(
    3,
    "allocations",
    "in a capture without steps: a program that asks for memory once or twice after its first kernel does not churn",
    ("tests/findings/test_guards.py",),
)
RUNS_DIFFER = Threshold(
    30.0,
    "% of the cost",
    "in another run of the same program a checkpoint or a collection takes up to 25 % more or less",
    ("tests/findings/test_waste_pairs.py",),
)
PART_NAMED = Threshold(
    5.0,
    "% of the excess",
    "smaller parts of what a step takes beyond its like say nothing of why",
    ("tests/findings/test_run_findings.py",),
)
STARTS_UP = Threshold(
    10.0,
    "% of the capture",
    "weights that are uploaded, memory and code before the first kernels make figures of a capture those of start-up",
    ("public/a100_lm2.7b_nvtx.sqlite", "tests/findings/test_run_findings.py"),
)
LOOKED_AT = Threshold(
    0.5,
    "% of the step",
    "a cause of a quarter of what is shown cannot become a finding, and a replay costs time",
    (_HEALTHY, f"{_SIDES}::test_what_cannot_matter_is_not_looked_at"),
)
FAITHFUL = Threshold(
    90.0,
    "% of the step",
    "without event records, replays of 96 % and more agree with nsys captures of the same job; one of 62 % does not",
    ("h200/hf/hf4_straggler.rank*.pt.trace.json.gz", "h200/moe4mps/overlapped.rank*.pt.trace.json.gz"),
)
NAMED_BESIDE_WORST = Threshold(
    25.0,
    "% of the worst rank",
    "ranks that share a fault have like amounts of it; what all hosts have a little of is not on the others",
    (_HOST, _REAL_HOST),
)

# -- how fast hosts launch ---------------------------------------------------------------------------------------------

LAUNCHES_TO_TELL = Threshold(
    16,
    "launches",
    "the median of fewer jumps with every one of them",
    ("public/a100_saxpy_mpi.rank*.sqlite", f"{_SIDES}::test_few_launches_say_nothing"),
)
LAUNCHES_FOR_A_SPEED = Threshold(
    32,
    "launches",
    "of fewer, the fastest tenth is one or two launches; with fewer, the usual speeds below are taken",
    ("public/a100_cuda_graphs.sqlite", f"{_SIDES}::test_a_speed_takes_enough_launches"),
)
FASTEST_LAUNCHES = Threshold(
    10.0,
    "% of the launches",
    "what a host does without anything in its way: nothing shortens a launch, much lengthens one",
    (f"{_SIDES}::test_speeds_come_from_the_trace", "decision 0019"),
)
QUICKEST_CALL = Threshold(
    2.0,
    "µs",
    "no launch takes less: the fastest hundredth takes 2.3 beside an MI300X, 2.8 beside an H100",
    ("public/tl_mi300_resnet_ckpt.json.gz", "public/h100_qwen.json.gz"),
)
SLOWEST_SOUND_CALL = Threshold(
    10.0,
    "µs",
    "the fastest tenth of launch calls takes 2.7 to 8.8 on all sound hosts, under whatever profiler; a host whose "
    "fastest take longer is slow throughout, and says nothing of what is usual",
    ("public/toke_ann0.json.gz", _HOST, "decision 0019"),
)
USUAL_CALL = Threshold(
    3.5,
    "µs",
    "a launch call without a profiler's help, where the trace itself does not tell",
    ("public/h100_qwen.json.gz", _HOST),
)
USUAL_PACE = Threshold(
    6.0,
    "µs",
    "host time from launch to launch, the call and nearly as much again around it, where the trace does not tell",
    ("public/t4_power_iteration.sqlite", _HOST),
)
HARDWARE_PACE = Threshold(
    2.5,
    "µs",
    "from launch to launch in a loop of C++ without a profiler; kernels of a CUDA graph follow each other faster",
    ("tests/data/promises",),
)
SLOW_CALL = Threshold(
    3.5,
    "times the usual call",
    "the median call takes 1.1 to 1.6 times the fastest tenth on sound hosts",
    ("tests/data/moe_reference", _HOST, f"{_SIDES}::test_speeds_come_from_the_trace"),
)
SLOW_FRAMEWORK = Threshold(
    1.75,
    "times the usual pace",
    "simulated hosts that launch as fast as they can vary by 1.1; eager frameworks take 1.6 to 15 times as long",
    (_HEALTHY, "public/rtx5000ada_windows.sqlite", "decision 0019"),
)
SLOW_BESIDE_PEERS = Threshold(
    1.4,
    "times the pace of the others",
    "sound hosts of one job differ by up to 1.27",
    ("h200/moe4/overlapped.rank*.pt.trace.json.gz", _HOST),
)
NEARLY_ALWAYS = Threshold(
    90.0,
    "% of the communications",
    "of ranks alike, the last one changes; one that its host starves is last in 21 of 21",
    ("public/amd_merged_all.json.gz",),
)
MEETINGS_TO_TELL = Threshold(
    8,
    "communications",
    "with fewer, one rank may come last in nearly all of them by chance",
    ("public/amd_merged_all.json.gz",),
)
SLOW_AROUND = Threshold(
    1.5,
    "times the pace",
    "between launches with a cudaMalloc the host takes 2.1 to 2.2 times as long, the call not counted",
    ("h200/hf/hf1_emptycache.sqlite", "h200/hf/hf1_emptycache.rank0.pt.trace.json.gz"),
)
LONGEST_LAUNCH = Threshold(
    50,
    "times the pace",
    "longer is no launching: a batch that is fetched takes thousands; at half of it, the 5.1 % of a simulated case "
    "become 4.1, where the truth is 5.4",
    ("h200/train/eager.sqlite", _HOST),
)

# -- what hosts do besides ---------------------------------------------------------------------------------------------

BATCH_HANDED_OVER = Threshold(
    200.0,
    "µs",
    "a loader that keeps ahead hands over a batch in 70 to 200, on traces and simulated jobs alike",
    ("public/nsysai_2gpu_1s.sqlite", _HEALTHY),
)
RECURS = Threshold(
    50.0,
    "% of what this step loses",
    "a loader that cannot keep up is late for every step; a batch of 10 ms in one of three is not",
    ("h200/hf/hf4_straggler.rank*.pt.trace.json.gz", "public/aiprof_baseline_nvtx.sqlite"),
)
STEPS_TO_TELL = Threshold(
    3,
    "steps",
    "of two steps, nobody knows which is usual",
    ("h200/hf/hf4_straggler.rank*.pt.trace.json.gz",),
)
NUMBER = Threshold(
    64,
    "bytes",
    "`.item()` copies up to 16, a few flags or sizes some more; a tensor is larger",
    ("public/puzzler_d2h_sync.json.gz", f"{_SIDES}::test_a_number_is_small"),
)
NUMBER_HANDLED = Threshold(
    100.0,
    "µs",
    "Python takes 45 from one `.item()` to the next launch; what takes longer is other work, and stays",
    ("public/puzzler_d2h_sync.json.gz", _HOST),
)
LATE_STRETCH = Threshold(
    1.0,
    "% of the step",
    "half of what is shown: shorter stretches without a call are on every host",
    (_HEALTHY, f"{_ACROSS}::test_late_node", _REAL_ACROSS),
)
FORWARD_BETWEEN = Threshold(
    20.0,
    "% of the kernels of a round",
    "a forward pass is about a third of a micro-batch, and nothing is reduced in it",
    ("tests/findings/test_repeated_reduction.py",),
)
ROUNDS_COVER = Threshold(
    70.0,
    "% of the kernels of the step",
    "rounds of all micro-batches fill the step but for its optimizer; buckets of one backward pass do not",
    ("tests/findings/test_repeated_reduction.py",),
)
ROUNDS_DIFFER = Threshold(
    5.0,
    "% of the kernels of a round",
    "micro-batches launch the same kernels; layers of a forward and of a backward pass do not (tensor parallelism)",
    ("tests/findings/test_repeated_reduction.py",),
)
ROUNDS_MOST = Threshold(
    64,
    "rounds",
    "more micro-batches than that are not accumulated in a step of one rank",
    ("tests/findings/test_repeated_reduction.py",),
)
USUAL_BUCKET = Threshold(
    25,
    "MB",
    "what DDP reduces at once by default: the last bucket of a backward pass has no compute left beside it",
    ("tests/findings/test_issued_late.py",),
)
LATE_ALONE = Threshold(
    75.0,
    "% of the lateness",
    "of ranks alike, the last one changes; where one has three quarters of it, it is not chance",
    ("tests/findings/test_arrivals.py",),
)
LATE_FOR_LONG = Threshold(
    5.0,
    "% of the step",
    "what nothing recorded explains must be large to be worth a word: healthy ranks wait for each other for 1 to 2",
    ("tests/findings/test_arrivals.py", _HEALTHY),
)
LATE_RESIDUALS = Threshold(
    4.0,
    "times the residual of the clocks",
    "a beginning that clocks place no better says nothing; the residual is a median, its tail is longer",
    (f"{_ACROSS}::test_a_wrong_clock_is_no_finding",),
)
DISTORTED_PACE = Threshold(
    40.0,
    "µs per launch",
    "eager frameworks take 15 to 35 under nsys or a plain torch.profiler; with a range for every op, 55",
    ("h200/hf/hf1_rich.sqlite", "h200/hf/hf1_healthy.sqlite"),
)
UNDISTORTED_PACE = Threshold(
    24.0,
    "µs per launch",
    "what the same job takes without: transformers 23.7, other eager loops 17 to 29",
    ("h200/hf/hf1_healthy.sqlite", "tests/data/promises"),
)
TORCH_ADDS = Threshold(
    8.0,
    "µs per launch",
    "8.7 in the step of a transformers Trainer that the host fills, 132 ms with and 101 without; where `capture run` "
    "timed steps before recording, 4.6 to 12.4",
    ("h200/hf/hf1_healthy.rank0.pt.trace.json.gz", "tests/data/pairs"),
)
NSYS_ADDS = Threshold(
    4.0,
    "µs per launch",
    "3.7 in the same step, 114 ms with and 101 without; more on hosts that are slow otherwise, too",
    ("h200/hf/hf1_healthy.sqlite", "tests/data/pairs"),
)
SLOWED_STEP = Threshold(
    1.02,
    "times the step before recording",
    "below that, nothing is worth undoing",
    ("tests/data/moe_reference", "tests/data/promises"),
)
ALIKE_STEPS = Threshold(
    90.0,
    "% of the step",
    "steps of one run differ by up to 7 % by themselves; a recorded one was 15 % longer than launching explains",
    ("tests/data/moe_reference", "tests/data/promises"),
)
WORST_PROFILER = Threshold(
    3.0,
    "times as long per launch",
    "torch.profiler makes it 2.1 to 2.5 times as long in loops of small ops; what is beyond is not launching",
    ("tests/data/promises", "tests/data/moe_reference"),
)
DISTORTS = Threshold(
    25.0,
    "% of the step",
    "every profiler costs some: what nsys alone adds is 13; said first, it must be what matters most",
    ("h200/hf/hf1_rich.sqlite", "h200/train/eager.pt.trace.json.gz"),
)
EVENTS_PER_LAUNCH = Threshold(
    2.0,
    "records of the host per launch",
    "torch runs one to three ops per launch; a profiler that writes each of them down is in their way",
    ("h200/hf/hf1_rich.sqlite",),
)
MANY_SYNCS = Threshold(
    16,
    "waits of one kind in a step",
    "a wait in every layer is listed (--least 0) even where the host is far ahead: it costs as soon as it is not",
    ("tests/findings/test_guards.py",),
)
MEASURING_SYNCS = Threshold(
    8,
    "device synchronizations in a step",
    "training needs one or two, and a measurement makes one per block: 137 in the trace that has one",
    ("h200/moe4mps/cut_off.sqlite", f"{_SIDES}::test_a_few_synchronizations_are_no_measurement"),
)
MEASURED_COMPUTE = Threshold(
    50.0,
    "% of the compute",
    "of kernels right behind which the host waits: 7 to 11 where synchronizations are for other reasons",
    (f"{_BY_HAND}::test_a_synchronization_behind_every_kernel_is_a_measurement", _REAL_HOST),
)
MEASURED_RANGES = Threshold(
    90.0,
    "% of the ranges",
    "a timer closes every range that it opened, and the first or the last may be cut off",
    ("h200/moe4mps/cut_off.sqlite",),
)

EXPLAINS = Threshold(
    50.0,
    "% of the exposed time that it covers",
    "a synchronization of 17 ms within 620 ms in which a graph is captured is not why the GPU idles",
    ("public/tl_xdit_flux_capture.json.gz",),
)
SHORT_GAP = Threshold(
    10.0,
    "µs",
    "the GPU takes 1 to 2 from one kernel of a stream to the next, and up to 5 behind a large one",
    ("public/h100_qwen.json.gz",),
)

HIDDEN_BY_HOST = Threshold(
    50.0,
    "% of the time that kernels take too long",
    "below that, most of it is hidden: what else has to be mended first is worth a word",
    ("tests/findings/test_recomputation.py",),
)

# -- kernels -----------------------------------------------------------------------------------------------------------

TINY = Threshold(
    2.0,
    "times the usual pace",
    "a kernel that long still leaves the host as much time again to get ahead",
    (_HOST, "public/h100x2_before.sqlite", "tests/data/moe_reference"),
)
TINY_PATTERN = Threshold(
    12,
    "kernels",
    "AdamW in a loop over tensors launches eight for each, with amsgrad and maximize up to eleven",
    ("tests/data/promises", "public/puzzler_d2h_sync.json.gz", "public/dlrm8/dlrm_kineto"),
)
TINY_REPEATS = Threshold(
    3,
    "repeats in a row",
    "two of a kind come together by chance, as the halves of a layer do",
    (f"{_SIDES}::test_tiny_kernels_repeat", _HEALTHY),
)
DEVICE_WAITS = Threshold(
    50.0,
    "% of the busiest device",
    "devices of one process that share the work evenly differ by a few per cent",
    ("tests/findings/test_idle_device.py",),
)
CLOCK_LOW = Threshold(
    95.0,
    "% of the highest clock",
    "an H200 under load stays within 0.2 of it in the median",
    ("h200/hf/hf1_rich.sqlite", f"{_BY_HAND}::test_a_clock_below_what_it_was"),
)
LONG_KERNEL = Threshold(
    20.0,
    "µs",
    "shorter kernels are bound by latency, not by how many blocks they have",
    (f"{_SIDES}::test_short_kernels_are_not_judged_by_their_blocks",),
)
FEW_BLOCKS = Threshold(
    50.0,
    "% of the multiprocessors",
    "fewer blocks leave more than half of them empty, whatever a block does",
    (f"{_BY_HAND}::test_few_blocks",),
)
SMALL_TENSOR = Threshold(
    65536,
    "elements",
    "kernels on fewer are over before memory matters: weights of a norm, sums of rows",
    ("tests/findings/test_waste_pairs.py",),
)
SAME_SIZE = Threshold(
    2.0,
    "% of the elements",
    "launches round up to whole blocks; tensors of another shape differ by more",
    ("tests/findings/test_waste_pairs.py",),
)
PASS_BEGINS = Threshold(
    4,
    "kernels",
    "with their grids: an embedding or a first convolution, and what comes next, begin no layer",
    ("tests/findings/test_work_for_nothing.py", "tests/data/pairs"),
)
TRAINED_PRODUCTS = Threshold(
    2.0,
    "products of the backward pass for each of the forward pass",
    "one for each gradient; the first layer's input has none",
    ("tests/findings/test_work_for_nothing.py",),
)
UNUSED_PASS = Threshold(
    0.75,
    "forward passes",
    "first layers, and layers that are not trained, have fewer products backward: by half where all are frozen but few",
    ("tests/findings/test_work_for_nothing.py",),
)
EXPERTS = Threshold(
    4,
    "times in a row",
    "as few as a layer of experts has; queries, keys and values are three",
    ("tests/findings/test_experts_one_by_one.py", "tests/data/pairs"),
)
EXPERT_KERNELS = Threshold(
    40,
    "kernels of an expert",
    "two or three products, gathering, an activation, weights and scattering are up to 20; half as many again backward",
    ("tests/findings/test_experts_one_by_one.py",),
)
MOSTLY_ZEROS = Threshold(
    2.0,
    "times the scattering",
    "filling a table with zeros takes less than scattering to most of its rows",
    ("tests/findings/test_slow_indexing.py", "h200/hf/hf1_healthy.sqlite"),
)
ROOM = Threshold(
    20.0,
    "% of the GPU's memory",
    "the allocator's reserve varies by some per cent from step to step; less than this may be lost to fragments",
    ("tests/findings/test_recomputation.py",),
)
USUAL_LENGTH = Threshold(
    2048,
    "keys of a query",
    "where a softmax is written out, nothing tells how long its rows are; rates of fused kernels vary little with it",
    ("public/a100_lm2.7b_nvtx.sqlite",),
)
CHAIN = Threshold(
    3,
    "kernels that compute",
    "two of a size come together in every model, a product's bias and an activation; three are an op written out",
    ("tests/findings/test_waste_pairs.py",),
)
LIKE_PRODUCT = Threshold(
    2.5,
    "times as long",
    "the gradients of both factors of a product are as many FLOPs each; kernels for them differ by up to 1.5",
    ("tests/findings/test_waste_pairs.py",),
)
FAR_LARGER = Threshold(
    8.0,
    "times as long as it takes to write the scores",
    "products of attention take 1.4 to 3 times that; a router's scores are a few for each token, and products around "
    "them take a hundred times as long",
    ("tests/findings/test_waste_pairs.py", _HEALTHY),
)
USUAL_HEAD = Threshold(
    64,
    "numbers of a head",
    "where no tensor beside the scores tells; it matters little: fused attention is a few per cent of what it replaces",
    ("tests/findings/test_waste_pairs.py",),
)
MIXED_PRECISION = Threshold(
    25.0,
    "% of the number of products without tensor cores",
    "where so many already use them, the rest is an island in a model of half precision: around it nothing changes",
    ("tests/findings/test_waste_pairs.py",),
)
TENSOR_CORES_REACH = Threshold(
    85.0,
    "% of the ratio of peak rates",
    "10240 x 10240 matrices take 0.11 s in fp32 and 0.016 s in TF32 on an A100 (PyTorch's notes on CUDA): 6.9 times as "
    "fast, of 8 on paper",
    ("tests/model/test_gpus.py::test_what_products_gain", "public/a100_lm2.7b_nvtx.sqlite"),
)
ROOF_REACH = Threshold(
    80.0,
    "% of the roof",
    "products of matrices reach 82 % of the dense roof of an H200, copies 90 % of its DRAM: a kernel that is well made "
    "comes that close",
    ("tests/findings/test_below_roof.py", "h200/ncu/ncu_full_raw.csv"),
)
ROOF_LEAST = Threshold(
    60.0,
    "% of the roof",
    "what most libraries' kernels reach without tuning: the careful end of the promise",
    ("tests/findings/test_below_roof.py", "h200/ncu/ncu_full_raw.csv"),
)
TENSOR_CORES_GAIN = Threshold(
    2.0,
    "times as fast",
    "the least that is promised: products that are small or bound by memory gain no more; and all that is, where the "
    "trace names no GPU",
    ("public/a100_lm2.7b_nvtx.sqlite", f"{_BY_HAND}::test_products_without_tensor_cores"),
)

# -- communication and ranks -------------------------------------------------------------------------------------------

WAITED_AT_ONCE = Threshold(
    90.0,
    "% of a stage's communication",
    "100 where everything is waited for at once, up to 67 where compute runs beside it",
    ("h200/moe4mps/serialized.sqlite", "h200/moe4mps/overlapped.sqlite", f"{_ACROSS}::test_serialized"),
)
MOSTLY_EXPOSED = Threshold(
    50.0,
    "% of a stage's communication",
    "what is waited for at once but hidden all the same, by other work, is not serialized",
    ("h200/moe4/serialized.sqlite",),
)
APART = Threshold(
    2.0,
    "times the idle time",
    "where a step without a wait is shorter by more than the GPU idles, copies run beside compute that did not before",
    ("tests/findings/test_comes_once.py",),
)
FIRST_USE = Threshold(
    10.0,
    "times the median of its like",
    "making connections takes 25 to 62 times as long; other first transfers take up to 9.6 times",
    ("h200/payloads/overlapped.sqlite", "decision 0015"),
)
UNWAITED_TRANSFERS = Threshold(
    25.0,
    "% of the transfers",
    "of transfers that are not matched, the shorter ones waited least for others: the lower quartile",
    ("public/a100_nccl_metadata_world2.json.gz", "decision 0015"),
)
MORE_TOKENS = Threshold(
    1.02,
    "times the bytes of the others",
    "ranks with even loads differ by nothing; with a planted imbalance by 1.3 and more",
    (f"{_ACROSS}::test_imbalance", _REAL_ACROSS),
)
STAGES_EVEN = Threshold(
    1.03,
    "times the mean stage",
    "stages of as many layers each differ by up to 1.02",
    (_HEALTHY, "h200/moe4/overlapped.sqlite", "tests/data/moe_reference"),
)
MORE_LAUNCHES = Threshold(
    1.02,
    "times the launches of the peers",
    "ranks that do the same work launch the same kernels, but for what one of them logs or checks",
    (f"{_SIDES}::test_launches_beyond_the_peers",),
)
EXTRA_LAUNCHES = Threshold(
    1.5,
    "times the launches of the peers",
    "ranks that do the same work launch as much, but for shapes; one that computes its experts twice, twice as much",
    (_REAL_ACROSS, f"{_SIDES}::test_launches_beyond_the_peers"),
)
AROUND_A_LAUNCH = Threshold(
    100.0,
    "µs",
    "an eager framework takes 15 to 60 per launch; what takes longer would be done all the same",
    (f"{_SIDES}::test_launches_beyond_the_peers",),
)
SAME_BANDWIDTH = Threshold(
    1.25,
    "times the bandwidth",
    "rings that a slow link limits run within 1.1 of its bandwidth on simulated jobs; a real operation adds some more",
    (f"{_ACROSS}::test_slow_link",),
)
LARGE_IDEAL_BUBBLE = Threshold(
    10.0,
    "% of the step",
    "from there on, twice as many micro-batches would give back 5 % of the step",
    (f"{_SIDES}::test_a_large_ideal_bubble_is_noted", "decision 0015"),
)

#: All of them by name, in this order.
THRESHOLDS = {name: value for name, value in globals().items() if isinstance(value, Threshold)}
