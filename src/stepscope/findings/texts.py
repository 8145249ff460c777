"""What findings are called, and what they advise, as an editor reads them; docs/diagnoses.md shows them.

What stands in braces is filled in by the detector. Where one says several things, the second has a name after `/`.
"""

from __future__ import annotations

TITLES: dict[str, str] = {
    "allocator-churn": "memory is allocated and freed in the step ({counted} on rank {worst})",
    "attention-by-hand": "attention is not fused: its scores take {kernels} (on rank {rank})",
    "below-roof": "{kernels} far from the roof (on rank {worst})",
    "casts-and-copies": "{kernels} redundant (on rank {rank})",
    "clock-throttling": "the GPU of rank {worst} runs below its highest clock",
    "compute-imbalance/ranks": "{ranks} compute more than others that do the same work{how}",
    "compute-imbalance/stages": "pipeline stage {worst} has {amount:.0f} % more compute than the average stage",
    "drift": "every step takes {slope_ns} longer than the one before: {change_ns} over {steps} steps",
    "drift/compute": (
        "in every step the GPU computes for {slope_ns} longer than in the one before: {change_ns} over {steps} steps"
    ),
    "expert-imbalance": "{who} {more:.2f} times as many tokens as the rest of the expert group",
    "experts-one-by-one": "experts run one at a time: {kernels} in loops over them (on rank {rank})",
    "exposed-communication": "{share:.0f} % of the time in {what} is exposed",
    "exposed-copies": "{what} are not overlapped with compute",
    "gc-pause": "Python's garbage collector stops the host ({times} on rank {worst})",
    "graph-breaks": "{what} in the step on rank {worst}",
    "idle-device": "GPU {least} of rank {rank} idles while GPU {most} works",
    "in-order-communication": "{what} run on the compute stream, so that nothing overlaps them",
    "late-node/finding": "{who} {is_} {ns} late {at}",
    "late-node/late-from-the-start": "{who} begin{s} the step {ns} after the others",
    "late-node/unseen": "rank {rank} reaches communication {ns} late",
    "launch-bound/of-some": "the host of {ranks} takes {factors:.1f} times as long per launch as its peers",
    "low-occupancy": "{kernels} most of the GPU idle (on rank {worst})",
    "memory-layout": "{kernels} the memory layout of tensors (on rank {rank})",
    "module-loading": "{what} in the step ({counted} on rank {worst})",
    "no-tensor-cores": "{products} not use tensor cores (on rank {worst})",
    "odd-shapes": "{products} sizes that are not aligned (on rank {rank})",
    "pace": "steps outside the capture take {mean_ns} instead of {usual_ns}, {when}",
    "pipeline-bubble": "the pipeline bubble is {bubble:.0f} % of the step; the ideal of its schedule is {ideal:.0f} %",
    "profiler-distortion/by-records": "the profiler slows the host: it records {what}",
    "profiler-distortion/by-steps": "the profiler slows the step: {step_ns} before it recorded, {step_ns2} since",
    "recomputation": "{kernels} again in the backward pass (on rank {rank})",
    "repeated-reduction": "gradients are reduced {times} times a step, once for every micro-batch",
    "serialized-communication/shown": "{name} is {issued}, so that nothing overlaps it",
    "serialized-stages": "the two stages of the pipeline take turns instead of overlapping",
    "slow-algorithms": "deterministic algorithms are on ({kernels} on rank {rank})",
    "slow-indexing": "gradients of embeddings or indexing are dense or need sorting: {kernels} (on rank {rank})",
    "slow-link": "transfers {more} {who} take {slower:.1f} times as long as on similar links",
    "slow-loss": "the loss reads and writes the logits in {kernels} that it does not need (on rank {rank})",
    "slow-optimizer": "the optimizer is not fused: {kernels} where one fused step would do (on rank {rank})",
    "tiny-kernels": "the same few {mean_ns} kernels are launched over and over ({kernels:,} repeats)",
    "unfused-kernels": "{kernels} in chains that could each be one fused kernel (on rank {rank})",
    "unused-forward": "a forward pass runs without a backward pass ({kernels} on rank {rank})",
}

ADVICE: dict[str, str] = {
    "attention-by-hand": (
        "F.scaled_dot_product_attention(q, k, v, is_causal=True), or with attn_mask (torch 2.0; its flash kernels "
        "need fp16 or bf16, heads of up to 256 and Ampere or later); flex_attention for masks and biases of other "
        "kinds (torch 2.5); transformers: attn_implementation='sdpa'"
    ),
    "casts-and-copies": (
        "stay in one precision between matmuls (no .float() and back under autocast), drop needless .clone(), "
        "zero_grad(set_to_none=True), the default; `source` names the lines where stacks were recorded (--with "
        "stacks)"
    ),
    "clock-throttling": (
        "{tool} says why: power cap, temperature, or locked clocks; compare with the other GPUs of the machine"
    ),
    "compute-imbalance/stages": (
        "move layers between stages (the first and the last also hold embedding and head), or split finer with "
        "virtual stages"
    ),
    "drift": (
        "find what grows: lists that keep tensors or graphs (append(loss) instead of loss.item()), metrics over "
        "everything seen so far, sequence lengths, memory near its limit, clocks"
    ),
    "expert-imbalance": (
        "balance the router (auxiliary loss, bias, expert choice), cap the capacity of an expert, or place hot "
        "experts on different ranks or replicate them"
    ),
    "experts-one-by-one": (
        "use a grouped GEMM: torch._grouped_mm or torchao's, grouped_gemm, MegaBlocks; transformers: "
        "experts_implementation='grouped_mm'; sort tokens by expert once, and leave the counts on the GPU"
    ),
    "gc-pause": (
        "gc.freeze() after set-up, gc.disable() in the loop and gc.collect() every N steps on all ranks at "
        "once: ranks that collect at different times make each other wait"
    ),
    "graph-breaks": (
        "run with TORCH_LOGS=graph_breaks,recompiles and give the log to `stepscope compile --log`; move prints, "
        ".item() and data-dependent branches out of the frame, mark sizes that change as dynamic{more}"
    ),
    "idle-device": (
        "split the work evenly: pipeline micro-batches over the devices (or tensor parallelism) instead of running "
        "layers one after the other; one process per GPU (DistributedDataParallel) instead of DataParallel"
    ),
    "in-order-communication": (
        "split the batch or the tokens in two, so that one half communicates while the other computes (async tensor "
        "parallelism, two-batch overlap); fuse it with the GEMM before it; or communicate less (sequence "
        "parallelism, lower precision, a smaller tensor-parallel group within one NVLink domain)"
    ),
    "late-node/finding": (
        "look at what that host does there: other processes and daemons, checkpointing or logging on that host only, "
        "a slow file system, CPU frequency, memory pressure"
    ),
    "late-node/late-from-the-start": (
        "record two steps or more and see whether the ranks also start the second one apart; start the profiler on all "
        "ranks together (`stepscope.annotate`)"
    ),
    "late-node/unseen": (
        "see what its host does before it communicates: start-up, loading, another process, a slower machine; "
        "record from the same step on all ranks"
    ),
    "launch-bound/of-all": (
        "{machine}launch fewer kernels: CUDA graphs, torch.compile(mode='reduce-overhead'), fused optimizers "
        "(fused=True), larger micro-batches; make sure that the profiler itself (stacks, shapes) is not the cause"
    ),
    "launch-bound/of-some": (
        "look at that machine's CPU: other processes, pinning (NUMA node of the GPU), frequency governor, debug "
        "settings (CUDA_LAUNCH_BLOCKING, a tracer) on this rank only"
    ),
    "low-occupancy": (
        "give them more parallel work: larger batches, split-K or stream-K GEMMs, a grouped kernel for many small "
        "problems, or run something else on another stream"
    ),
    "memory-layout": (
        "convolutions: model.to(memory_format=torch.channels_last), and the same for the inputs; elsewhere views "
        "instead of .contiguous(), and ops that accept the existing layout (einsum, LayerNorm over the last dimension)"
    ),
    "odd-shapes": (
        "pad sizes to a multiple of 64, or at least 8 (half precision) or 4 (TF32): a vocabulary of 50304 instead of "
        "50257, and the same for widths and heads; transformers: model.resize_token_embeddings(n, "
        "pad_to_multiple_of=64)"
    ),
    "pace": (
        "record such a step: `capture run --warmup {first} --steps 3`; checkpoints, evaluations and garbage collection "
        "look like this"
    ),
    "pipeline-bubble": (
        "find the phase that it is in (`pipeline --by phase`) and the chunks it comes before (`--by chunk`): late "
        "launches, transfers in the way, chunks of unequal length"
    ),
    "profiler-distortion/by-records": (
        "profile again, recording less: no range per op (--pytorch=…), no Python stacks or backtraces, no shapes"
    ),
    "profiler-distortion/by-steps": (
        "estimates already leave the profiler's cost out; to measure durations, trace less (no shapes, no stacks)"
    ),
    "recomputation": (
        "checkpoint fewer layers, or only cheap ops (selective checkpointing: "
        "torch.utils.checkpoint.create_selective_checkpoint_contexts, torch 2.4), as far as memory allows; "
        "transformers: gradient_checkpointing=False"
    ),
    "repeated-reduction": (
        "accumulate first, reduce once: DDP's no_sync() around all but the last micro-batch, FSDP's "
        "set_requires_gradient_sync(False), accelerate's accumulate()"
    ),
    "serialized-communication/shown": (
        "wait just before the result is used (`work.wait()`), and until then launch compute that does not need it{more}"
    ),
    "serialized-stages": (
        "keep two items in flight: a queue depth of 2 in each direction, non-blocking sends and receives, and start "
        "the next item before the last one has come back"
    ),
    "slow-algorithms": (
        "torch.use_deterministic_algorithms(False), cudnn.deterministic = False, cudnn.benchmark = True where sizes "
        "do not change; to stay deterministic: torch.utils.deterministic.fill_uninitialized_memory = False"
    ),
    "slow-indexing": (
        "nn.Embedding(sparse=True) or EmbeddingBag(sparse=True) with SparseAdam or SGD, fused tables (torchrec, "
        "FBGEMM); index_add_ or scatter_add_ instead of x[index] += y and index_put_(accumulate=True); mask by "
        "multiplying or with torch.where instead of boolean indexing"
    ),
    "slow-link": (
        "check that link: NIC and cable (link width, errors, congestion), {more}, NCCL's choice of network "
        "interface (NCCL_DEBUG=INFO); or place ranks so that less traffic crosses it"
    ),
    "slow-loss": (
        "F.cross_entropy(logits, labels, label_smoothing=…, ignore_index=-100) on the logits as they are: no "
        ".float(), and shift the labels, since a slice of the logits is copied; a loss fused with the last matmul or "
        "computed in chunks (Liger's fused_linear_cross_entropy, torchtune's CEWithChunkedOutputLoss) moves the least "
        "data"
    ),
    "slow-optimizer": (
        "fused=True (Adam, AdamW, SGD, Adagrad: torch 2.0 and later), or at least foreach=True; "
        "clip_grad_norm_(foreach=True) instead of a loop over tensors; average weights (EMA) with "
        "torch._foreach_lerp_, every few steps"
    ),
    "tiny-kernels": (
        "fuse them: fused=True or foreach=True for the optimizer, one batched op instead of a loop over slices, "
        "torch.compile, CUDA graphs for the step; `kernels` shows which one is launched most often"
    ),
    "unfused-kernels": (
        "torch.compile; or fused modules: F.layer_norm, F.rms_norm (torch 2.4), F.gelu, F.silu, F.group_norm instead "
        "of writing out the formula; Liger kernels for transformers models "
        "(apply_liger_kernel_to_…, use_liger_kernel=True)"
    ),
    "unused-forward": (
        "for metrics use the outputs of the first pass (outputs.logits.detach()), or compute them every N steps, "
        "within torch.no_grad(); if a teacher or reference model sees a batch again, keep its outputs"
    ),
}


def title(key: str, /, **values: object) -> str:
    """What is wrong, in a line."""
    return TITLES[key].format_map(values)


def advice(key: str, /, **values: object) -> str:
    """What to try."""
    return ADVICE[key].format_map(values)
