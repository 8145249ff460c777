"""Notes on the recording: what the profiler did not record, or recorded otherwise than one would think.

What stands in braces is filled in by whoever notes it. Another text under the same code has a name after `/`.
"""

#: Context, or what was inferred.
INFO: dict[str, str] = {
    "allocated-before": "{unnamed} were allocated before the trace began: a snapshot would say what they are",
    "allocated-before/segments": "{early} were allocated before recording began: known from the segments at the end",
    "allocator-retries": "the allocator returned {segments} before memory ran out",
    "compared-where-all-recorded": (
        "ranks were recorded for different times: compared over the {duration} that all of them recorded"
    ),
    "graphs-replayed": (
        "{number} GPU ops were replayed by {launches} CUDA-graph launches: they take the launch's time and range, "
        "since a replay has no calls or ranges of its own"
    ),
    "log-empty": (
        "{name} has no graph break and no recompile: either there was none, or it was not written with "
        "TORCH_LOGS=graph_breaks,recompiles"
    ),
    "no-setup-label": "no setup label on {without} of {all} ranks: mesh coordinates unknown there",
    "no-timing": "recorded without timing: what the GPU has begun is not known (TORCH_NCCL_ENABLE_TIMING=1)",
    "not-in-torch-traces/calls": "only the CUDA calls that torch's profiler records are counted",
    "not-in-torch-traces/collectives": "calls are torch's records of collectives, not NCCL's own",
    "not-in-torch-traces/columns": "torch traces do not record: {blank}",
    "not-in-torch-traces/metadata": "by the metadata that torch puts on kernels; kernels without any are not counted",
    "not-in-torch-traces/ranges": "ranges are torch's annotations; NVTX ranges are not in a torch trace",
    "one-stretch-of-several": (
        "{number} stretches of the run were recorded, and {answering} answers; name another one, or `compare {first} "
        "--to {last}`"
    ),
    "ops-overlap": (
        "rank {rank}: {number} {begin} before the previous one on the stream has ended, as programmatic dependent "
        "launch allows: the earliest is {name} on stream {stream}, {ahead} early, {length} from {start} ns"
    ),
    "peaks-from-table": "the report lacks some peaks: those of the data sheet are used, at the boost clock",
    "ring-overflowed": (
        "the recorder's ring overflowed: older calls are gone (a larger TORCH_FR_BUFFER_SIZE keeps more)"
    ),
    "sampled-metrics": "{text}",
    "samples-of-device": "samples are the device's, whichever process ran: ranks that share one have the same",
    "steps-cut": "steps that were not recorded whole do not count: {reasons}",
    "unlinked-ops": "{number} GPU ops have no launch record: they are placed by their GPU start",
    "work-without-shapes": (
        "shapes of torch ops were not recorded: FLOPs are not known, bytes are by grids and names; {capture_with}"
    ),
}
#: Figures mean less than they seem to.
WARNING: dict[str, str] = {
    "attribution-only": (
        "block timers synchronize: attribution only, the shares say where time goes; do not read throughput from this "
        "run"
    ),
    "collectives-fewer": "{group}: {some} recorded fewer of its collectives",
    "communication-incomplete": (
        "{incomplete} of {all} communications lack a rank{unsure}: their wait is a lower bound, their transfer an "
        "upper bound, and last_rank the last of the ranks recorded"
    ),
    "compile-not-annotated": (
        "no annotations of torch.compile: compiled work is recognized by inductor's kernel names alone"
    ),
    "coordinates-twice": "the setup labels of {some} give the same place, {where}: one of them is wrong",
    "correlation-repeats": (
        "{number} correlation ids were given to several calls: an op is linked to the nearest call before it"
    ),
    "cut-off": (
        "rank {rank}: no GPU work in its last {empty} of {total} steps or chunks (the capture may have ended early "
        "there)"
    ),
    "dumps-missing": "no dump of {number} of {all} ranks: {some}",
    "events-unrecorded": "{number} waits for events have no record in the trace: shown as `unknown`",
    "events-unrecorded/path": "{number} waits for events have no record in the trace: they are not followed",
    "few-samples": "only {samples} cover {ns} of the launching thread: the shares are rough",
    "graphs-whole": (
        "{number} GPU ops are whole CUDA graphs, counted as compute: what runs inside them, including communication, "
        "was not recorded; {capture_with}"
    ),
    "graphs-whole/left-out": "{number} CUDA graphs recorded whole are left out, as in nsys: the GPU looks idle",
    "launches-shared": "rank {rank}: {shared:,} kernels share the launch of another: ids are wrong",
    "ledger-open": "the parts add up to {excess} more than is reserved: blocks and segments of the record disagree",
    "mfu-types-unknown": (
        "types were not recorded on {some}: matmuls are assumed to be {taken} (--precision sets another)"
    ),
    "no-call-stack": "{number} of {all} GPU ops have no call stack{why}",
    "no-compute": (
        "no compute kernel on {some}: all communication there counts as exposed, which means nothing if the trace was "
        "reduced to communication"
    ),
    "no-emit": "no emit was recorded: a chunk counts as emitted when its first stage last ended",
    "no-event-records": (
        "the trace has no event records: a wait for another stream is shown as `unknown`; with a recent nsys, "
        "{capture_with}"
    ),
    "no-gpu-work-in-window": "{some}: no GPU work in the window (the capture may have ended early there)",
    "no-gpu-work-in-window/between": "{some}: no GPU work in the window, but after it",
    "no-history": "no history was recorded: only what is alive at the end is known (_record_memory_history())",
    "no-payloads": "communicators and bytes are unknown: the capture has no NCCL payloads or collective metadata",
    "no-payloads/bytes": (
        "bytes are unknown: the capture has no NCCL payloads (nsys export --include-blobs=true keeps them); "
        "{capture_with}"
    ),
    "no-roof": (
        "{kernels} no roof: the report lacks the counters of their arithmetic (`ncu --set roofline` or `--set full` "
        "has them)"
    ),
    "no-session-time": "{without} of {all} files do not say when they began: their times are taken as they are",
    "no-session-time/own": "not every file says when its capture began: times are each file's own",
    "no-stacks": "no stacks were recorded: most blocks are unknown (record with context='all')",
    "ops-before-launch": "rank {rank}: {early:,} of {linked:,} GPU ops start before their launch: the clocks are wrong",
    "profiler-warning": "the profiler warned{times}: {warning}",
    "profiler-warning/more": "the profiler reported {number} more kinds of warning",
    "profiler-warnings": "the profiler reported {number} warnings: `stepscope info` lists them",
    "ranks-recorded-less": "{some} recorded less than ranks that do the same work: not compared with them",
    "shared-gpu": "{who} share one GPU{each}: durations of their ops include time in which the others ran",
    "step-not-on-all-ranks": "{some} did not record {label!r}: left out",
    "step-not-usual": (
        "the captured step is not the usual one: {captured}{more}; the mean of {steps:,} steps is {mean_ns}"
    ),
    "steps-on-the-host": (
        "no GPU activity was recorded: steps are judged by their time on the host, and no cause on the GPU is looked "
        "for"
    ),
    "verify-check": "{text}",
    "waits-inferred": (
        "no event records on {without} of {all} ranks: {number} ops that neither stream nor launch explain are "
        "assumed to have waited for the op that ended last before them"
    ),
    "work-gpu-unknown": (
        "rank {rank}: the GPU of the trace is not a known one, so what good kernels reach on it is unknown"
    ),
    "window-past-capture": (
        "{past} of the window lie before the first or after the last record of the capture: nobody knows whether the "
        "GPU worked then; it counts as idle"
    ),
}
#: Records are missing.
LOSS: dict[str, str] = {
    "chunks-incomplete": "{without} of {all} chunks lack a stage's times: they get no score",
    "chunks-without-period": "{number} chunks have no period: the chunk before them was emitted later, or not recorded",
    "kernels-without-name": (
        "rank {rank}: {unnamed:,} of {kernels:,} kernels have no name: transfers among them count as compute"
    ),
    "launches-without-op": "rank {rank}: {lost:,} of {launches:,} launches have no GPU op: records were lost",
}
