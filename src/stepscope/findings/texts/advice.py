"""What findings advise."""

from __future__ import annotations

ADVICE: dict[str, str] = {
    "allocator-churn/device": (
        "keep memory in the caching allocator: no torch.cuda.empty_cache() in the loop, no shapes that change in "
        "every step, PYTORCH_{api}_ALLOC_CONF=expandable_segments:True where memory is nearly full"
    ),
    "allocator-churn/host": "allocate pinned buffers once and reuse them, as a pinned DataLoader does",
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
    "checkpoint": (
        "save in the background: copy to pinned memory and write from another thread or process "
        "(torch.distributed.checkpoint.async_save), every rank its own shard; or save less often"
    ),
    "clock-throttling": (
        "{tool} says why: power cap, temperature, or locked clocks; compare with the other GPUs of the machine"
    ),
    "compute-imbalance/stages": (
        "move layers between stages (the first and the last also hold embedding and head), or split finer with "
        "virtual stages"
    ),
    "data-stall/batches": (
        "prefetch: more DataLoader workers, prefetch_factor, pin_memory with non_blocking copies; move decoding and "
        "tokenizing out of the loop; check the file system that it reads from"
    ),
    "data-stall/mpi": (
        "exchange it from GPU to GPU (NCCL, MPI that takes device pointers), or with MPI_Isend and MPI_Irecv while "
        "the GPU works, in pinned memory; prepare the next arrays in another thread, or on the GPU"
    ),
    "data-stall/op": (
        "`{op}` computes on the CPU: run it on the GPU (device='cuda'), or ahead, in a DataLoader's workers or "
        "another thread, with pinned memory and non_blocking copies"
    ),
    "data-stall/other": (
        "prepare it while the GPU works: another thread or process reads and writes ahead, with pinned memory and "
        "asynchronous copies; check the file system that it reads from"
    ),
    "drift": (
        "find what grows: lists that keep tensors or graphs (append(loss) instead of loss.item()), metrics over "
        "everything seen so far, sequence lengths, memory near its limit, clocks"
    ),
    "epoch-end": (
        "keep workers alive between epochs (persistent_workers=True) and let them prefetch the next one; if the "
        "period is the number of workers, they are too slow: more of them, or less work for each batch"
    ),
    "evaluation/evaluation": (
        "evaluate less often or on fewer batches, under torch.inference_mode() and in larger batches; read its "
        "metrics once at the end; or evaluate checkpoints in another job"
    ),
    "evaluation/logging": "log less often, from another thread, and without reading values from the GPU",
    "expert-imbalance": (
        "balance the router (auxiliary loss, bias, expert choice), cap the capacity of an expert, or place hot "
        "experts on different ranks or replicate them"
    ),
    "experts-one-by-one": (
        "use a grouped GEMM: torch._grouped_mm or torchao's, grouped_gemm, MegaBlocks; transformers: "
        "experts_implementation='grouped_mm'; sort tokens by expert once, and leave the counts on the GPU"
    ),
    "exposed-communication": "record all ranks, to see who waits for whom; then: {then}",
    "exposed-communication/dp": "reduce in buckets during the backward pass; prefetch the next layer's parameters",
    "exposed-communication/dp_grads": (
        "reduce in buckets during the backward pass (DDP's bucket_cap_mb, a smaller first bucket); reduce less often "
        "(no_sync) or in half precision (a bf16 communication hook, FSDP's reduce_dtype)"
    ),
    "exposed-communication/dp_params": (
        "gather the next layer's parameters while this one computes (FSDP's backward_prefetch and forward_prefetch), "
        "and keep them where memory allows (reshard_after_forward=False)"
    ),
    "exposed-communication/ep_a2a": (
        "run shared experts or half of the micro-batch beside it, or overlap forward with backward chunks"
    ),
    "exposed-communication/other": (
        "give it a stream of its own, launch it before compute that does not need it, and wait where it is used"
    ),
    "exposed-communication/pp_p2p": (
        "send and receive asynchronously, one micro-batch ahead; or interleave virtual stages"
    ),
    "exposed-copies/device": (
        "avoid them: contiguous layouts, views instead of clones, in-place ops, buffers that are allocated once"
    ),
    "exposed-copies/memsets": "zero less: zero_grad(set_to_none=True), buffers that are written anyway",
    "exposed-copies/peers": "copy on a stream of their own, before they are needed",
    "exposed-copies/to-device": (
        "keep on the GPU what every step needs; copy what must be offloaded ahead of time: the next layer's while "
        "this one computes, from pinned memory, on a stream of its own"
    ),
    "exposed-copies/to-host": (
        "copy on a stream of their own, to pinned memory with non_blocking=True, while the next layer computes"
    ),
    "gc-pause": (
        "gc.freeze() after set-up, gc.disable() in the loop and gc.collect() every N steps on all ranks at once: "
        "ranks that collect at different times make each other wait"
    ),
    "gil-contention": (
        "worker processes instead of threads (num_workers), or work that releases the lock (NumPy, PyTorch, image "
        "libraries); log and send metrics every N steps, from another process"
    ),
    "graph-breaks": (
        "run with TORCH_LOGS=graph_breaks,recompiles and give the log to `stepscope compile --log`; move prints, "
        ".item() and data-dependent branches out of the frame, mark sizes that change as dynamic{more}"
    ),
    "host-sync/copy": "use the asynchronous calls on the stream that needs them, with pinned host memory",
    "host-sync/device": "take them out of the loop: time with CUDA events, and let streams order the work",
    "host-sync/event": "let the stream wait for the event (stream.wait_event), not the host",
    "host-sync/item": (
        "keep values on the GPU: accumulate in a tensor, print every N steps, torch.where instead of `if`, no boolean"
        " indexing; or copy to pinned memory and read the value a step later"
    ),
    "host-sync/stream": (
        "let the next stream wait for an event instead of the host; if the host needs a size from the GPU, use fixed "
        "capacities, or read it a layer earlier"
    ),
    "host-sync/to-device": (
        "pin the memory (DataLoader(pin_memory=True), tensor.pin_memory()) and copy with non_blocking=True"
    ),
    "host-sync/to-host": "copy to pinned memory with non_blocking=True, and wait for an event when the data is needed",
    "idle-device": (
        "split the work evenly: pipeline micro-batches over the devices (or tensor parallelism) instead of running "
        "layers one after the other; one process per GPU (DistributedDataParallel) instead of DataParallel"
    ),
    "in-order-communication": (
        "split the batch or the tokens in two, so that one half communicates while the other computes (async tensor "
        "parallelism, two-batch overlap); fuse it with the GEMM before it; or communicate less (sequence parallelism,"
        " lower precision, a smaller tensor-parallel group within one NVLink domain)"
    ),
    "late-node/finding": (
        "look at what that host does there: other processes and daemons, checkpointing or logging on that host only, "
        "a slow file system, CPU frequency, memory pressure"
    ),
    "late-node/late-from-the-start": (
        "record two steps or more and see whether the ranks also start the second one apart; start the profiler on "
        "all ranks together (`stepscope.annotate`)"
    ),
    "late-node/unseen": (
        "see what its host does before it communicates: start-up, loading, another process, a slower machine; record "
        "from the same step on all ranks"
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
        "instead of .contiguous(), and ops that accept the existing layout (einsum, LayerNorm over the last "
        "dimension)"
    ),
    "module-loading/code": (
        "profile later: let every kernel run once before the capture (more warm-up steps){eager}; if it recurs in "
        "every step, something is compiled or loaded each time"
    ),
    "module-loading/graphs": "capture graphs once and replay them; keep shapes static",
    "odd-shapes": (
        "pad sizes to a multiple of 64, or at least 8 (half precision) or 4 (TF32): a vocabulary of 50304 instead of "
        "50257, and the same for widths, heads and channels; transformers: model.resize_token_embeddings(n, "
        "pad_to_multiple_of=64)"
    ),
    "pace": (
        "record such a step: `capture run --warmup {first} --steps 3`; checkpoints, evaluations and garbage "
        "collection look like this"
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
        "check that link: NIC and cable (link width, errors, congestion), {more}, NCCL's choice of network interface "
        "(NCCL_DEBUG=INFO); or place ranks so that less traffic crosses it"
    ),
    "slow-loss": (
        "F.cross_entropy(logits, labels, label_smoothing=…, ignore_index=-100) on the logits as they are: no "
        ".float(), and shift the labels, since a slice of the logits is copied; a loss fused with the last matmul or "
        "computed in chunks (Liger's fused_linear_cross_entropy, torchtune's CEWithChunkedOutputLoss) moves the least"
        " data"
    ),
    "slow-optimizer": (
        "fused=True (Adam, AdamW, SGD, Adagrad: torch 2.0 and later), or at least foreach=True; "
        "clip_grad_norm_(foreach=True) instead of a loop over tensors; average weights (EMA) with "
        "torch._foreach_lerp_, every few steps"
    ),
    "step-kinds": (
        "see what those steps do that the others do not (`stepscope kernels --index N` of both), and whether they "
        "need it so often"
    ),
    "straggler/larger-launches": (
        "give all ranks the same amount of work: the same batch, sequences packed to equal length, batches "
        "balanced by tokens"
    ),
    "straggler/longer-launches": (
        "find what only this rank does there: its share of the batch, sequence lengths, extra work, a branch"
    ),
    "straggler/more-launches": (
        "find what only this rank launches there: extra layers or experts, more micro-batches, work that one rank "
        "does for all"
    ),
    "straggler/slow-gpu": (
        "check that GPU: clocks, power cap, temperature, ECC, another process on it; swap it for a spare"
    ),
    "tiny-kernels": (
        "fuse them: fused=True or foreach=True for the optimizer, one batched op instead of a loop over slices, "
        "torch.compile, CUDA graphs for the step; `kernels` shows which one is launched most often"
    ),
    "unexplained/alloc": "keep memory in the caching allocator",
    "unexplained/api": "see which calls take long (`stepscope idle`), and why in this step",
    "unexplained/capture": "that is done once: profile later steps",
    "unexplained/captures": (
        "keep shapes and buffers as they are from step to step, so that a graph is captured once and only launched"
    ),
    "unexplained/communication": (
        "see which rank comes last (`stepscope stragglers`) and how long transfers take without waiting (`stepscope "
        "collectives`); give the traces of all ranks"
    ),
    "unexplained/copies": "see what copies (`stepscope timeline --by part`)",
    "unexplained/gil": (
        "find the thread that holds it (`stepscope source`, captured --with stacks); move its work to another process"
    ),
    "unexplained/host": "find out what the program does there: name it with ranges, or {with_samples}",
    "unexplained/launch": "code is loaded by the first launch of a kernel: profile later steps{eager}",
    "unexplained/load": "profile later steps: code is loaded once",
    "unexplained/queue": (
        "see what ends right before it on other streams (`stepscope critical-path`), which rank comes last "
        "(`stepscope stragglers`), and whether another process is on the GPU"
    ),
    "unexplained/shared": "give each rank a GPU of its own before judging idle time: they take turns on this one",
    "unexplained/short": (
        "fewer and larger kernels (fusing, torch.compile), or CUDA graphs, which shorten the gap between kernels"
    ),
    "unexplained/sync": "find the call that waits (`stepscope idle`), and avoid the wait",
    "unexplained/tail": "see what the program does at the end of the step",
    "unexplained/unlinked": "{again}",
    "unfused-kernels": (
        "torch.compile; or fused modules: F.layer_norm, F.rms_norm (torch 2.4), F.gelu, F.silu, F.group_norm instead "
        "of writing out the formula; Liger kernels for transformers models (apply_liger_kernel_to_…, "
        "use_liger_kernel=True)"
    ),
    "unused-forward": (
        "for metrics use the outputs of the first pass (outputs.logits.detach()), or compute them every N steps, "
        "within torch.no_grad(); if a teacher or reference model sees a batch again, keep its outputs"
    ),
    "unused-gradients": (
        "requires_grad_(False) for parameters that are frozen, or their forward pass within torch.no_grad(): the "
        "backward pass then ends where training does, and their gradients take no memory"
    ),
    "warm-up": (
        "if it happens once, capture later: it is not lost in every step. If it recurs, shapes change: fix or pad "
        "them, mark them dynamic (torch.compile), and let cudnn.benchmark see each shape before training"
    ),
}
