"""Notes of analyses: what an answer rests on, and what it does not say.

What stands in braces is filled in by whoever notes it. Another text under the same code has a name after `/`.
"""

#: Context, or what was inferred.
INFO: dict[str, str] = {
    "backward-by-thread": (
        "no native frames were recorded: blocks without a Python frame are assumed to be allocated by autograd's "
        "threads"
    ),
    "clocks-aligned": (
        "clocks of {files} files aligned by the ends of collectives{shared}: residual p50 {p50}, p95 {p95}; "
        "differences below that are not significant"
    ),
    "clocks-as-recorded": "clocks of {files} files are taken as recorded (--align none)",
    "communication-outside-chunk": "the window is a chunk: {outside}; --step has all of it",
    "communication-outside-window": "the window is a range: {outside}; --step has all of it",
    "convolutions-not-tried": (
        "convolutions take {took} of the step on rank {rank}, and cudnn.benchmark is off, so cuDNN chose their "
        "kernels by rule; torch.backends.cudnn.benchmark = True times the candidates, which pays where sizes do not "
        "change"
    ),
    "dump-time-of-file": "the time of the dumps is taken from the modification time of their files",
    "estimate-assumes": "{text}",
    "experts-even": "experts are assumed to be evenly loaded, without a capacity or padding",
    "findings-together": (
        "mending findings {numbers} together could save {gain} of the {step} {unit} ({share:.0f} %){rest}"
    ),
    "first-rows": (
        "only the first {rows:,} rows are shown: --limit 0 gives all, LIMIT and OFFSET in the query page through them"
    ),
    "first-rows/agent": "only the first {rows:,} rows are shown: aggregate, or use LIMIT and OFFSET",
    "first-uses": (
        "{communications} the first over a link, and NCCL connects (longest: {duration}, {kind}): no finding "
        "counts them; capture after more warm-up steps"
    ),
    "ideal-by-median": "the ideal of {schedule} is computed from the median compute time of chunks: {times}",
    "last-instance-open": "{some}: nothing follows the last instance, so its window ends with its last op",
    "many-waits": (
        "{title}, for {saved} of the step now: waits that come so often cost more as soon as the host is less far ahead"
    ),
    "matched-label": "--match: {label!r} on every rank",
    "measured-matched": "{matched} of {total} in the window ({share} of their time) match measured ones{hows}; {seen}",
    "mfu-convention": "{text}",
    "mfu-declared-and-counted": (
        "the declared model asks for {declared}; shapes of the trace's ops say {counted}{doubt}"
    ),
    "mfu-formula": "{text}",
    "mfu-measured": (
        "{flops} ({share:.0f} % of what was run) are Nsight Compute's counts of {kernels} whose shapes do not say: "
        "they count in HFU but not in MFU, since nothing says how much of them the model asks for"
    ),
    "mfu-optimizer": (
        "{flops} ({flops2:.0f} % of what was run) are the optimizer's matmuls: they count in HFU, not in MFU"
    ),
    "mfu-peak": "peak: {texts}",
    "mfu-recomputed": (
        "{flops} ({share:.0f} % of what was run) are forward ops that run again in the backward pass (activation "
        "checkpointing): they count in HFU, not in MFU"
    ),
    "mfu-uncounted": (
        "{time} of compute kernels ({share:.1f} %) are matmuls, attention, convolutions or unknown, and their FLOPs "
        "are not counted: {names}{more}; so MFU and HFU are too low by that much"
    ),
    "name-chosen": "--name was not given: {name!r}, which takes the longest, is shown",
    "no-communication-in-window": "no communication in the window of {without} of {all} windows ({some})",
    "no-findings": "no findings are drawn: {why}",
    "no-ideal": "no ideal is shown: {why}",
    "no-like-link": (
        "{who} no other of the same size and reach to compare transfers with: a slow link would not show here "
        "(`collectives --by size --peak-gbps` compares with what links could give)"
    ),
    "no-peer": "{number} {have} no peer that does the same work: kernels are compared by their names instead",
    "no-step-range": "no step or chunk range on {some}{why}: the window is the whole capture",
    "no-step-range/chunks": "the trainer marks chunks, but no steps: the step is the whole capture{paced_text}",
    "no-step-range/path": "no range marks the step: the path covers the whole capture",
    "no-straggler": "no rank takes longer than its peers: the waiting comes from the schedule, or is evenly spread",
    "one-clock": "there is one file, so all its ranks share a clock",
    "one-side-says": "only one side records: {missing}",
    "other-capture": "figures come from {name}; the other capture lacks this: {why}",
    "outside-not-estimated": "buffers of NCCL and the CUDA context are outside PyTorch: not counted",
    "path-begins-late": (
        "rank {rank}, on which the path begins, entered the step {late} after the first rank did: its first segment "
        "includes that time"
    ),
    "pipeline-inferred": "inferred: {what}",
    "ranks-without": "none on rank{s} {ranks_named}",
    "ranks-without/rule": "nothing found on {without} of {all} ranks",
    "rows-not-shown": "rows {which}",
    "run-without-steps": (
        "no range marks steps{why}: start-up is the time before kernels run, and all the rest is one stretch"
    ),
    "runs-understood": "{name}: {how}",
    "samples-are-chunks": (
        "each capture holds one step: its chunks are the samples, each compared with the one of the same label"
    ),
    "schedule-bubble": (
        "the {schedule} schedule itself leaves {share:.0f} % of the step idle with {micro_batches} micro-batches on "
        "{stages} stages{then}: that is inherent to the schedule, and no finding counts it"
    ),
    "several-ranks-have-it": "{number} ranks have the {what}: rank {first} is used",
    "slurm-allocation": "SLURM job {job}: {nodes} nodes, {left}",
    "smaller-findings": "{number} smaller {which} below {least:g} % of the {unit}: --least 0 lists {them}",
    "stack-inferred": (
        "{number} of {all} GPU ops have no Python stack of their own: they are credited to the stacks taken before "
        "and after"
    ),
    "stages-on-gpu": "stages are the GPU work launched in {launched} of their ranges{rest}",
    "start-up-before-steps": (
        "start-up before the first step takes {length}, {before} of the capture and as long as {steps:,.0f} steps "
        "({made}): it does not slow steps, but counts in a short run"
    ),
    "steps-in-common": "ranks have {fewest} to {most} {kind}s: the {common} that all of them have are compared",
    "steps-on-host": "no GPU activity was recorded: steps are compared by their time on the host",
    "streams-idle": "{number} streams did nothing in the window: kind and purpose are those of the whole capture",
    "what-if-bound": (
        "what-if: `bound` is a lower bound of the step and `at_most` the most that could be gained: recorded "
        "dependencies are replayed, and whatever else held an op up is left out; `saves` compares that with the same "
        "replay without the change"
    ),
    "work-scaled": "good times were measured on an {measured_on} and are scaled to the peaks of {name}",
}
#: Figures mean less than they seem to.
WARNING: dict[str, str] = {
    "capture-starts-up": (
        "{share} of this capture is start-up, before its kernels run ({parts}): it does not slow steps"
    ),
    "clocks-not-aligned": "clocks of several files are taken as recorded: {why}",
    "clocks-not-aligned/recipe": (
        "{hosts} hosts, each by its own clock: `stepscope clocks` says how far apart these are"
    ),
    "clocks-unconnected": "no common communication aligns ranks {some}: times between them are as recorded",
    "collectives-apart": (
        "{number} collectives end on one rank before they begin on another, by more than clocks explain: the ranks "
        "may not show the same collectives"
    ),
    "comes-once": (
        "{share} of this capture is idle time that occurs once, before kernels that run for the first time or while a "
        "graph is captured ({longest}): it does not slow steps; profile later steps"
    ),
    "dump-time-unknown": "nothing says when the dumps were taken: that the job stands still is an assumption",
    "gate-check": "{status}: {check}: {why}",
    "graph-capture": (
        "{some} captured CUDA graphs: the GPU of rank {worst} ran nothing for {of} of the step during that. This "
        "happens once: profile later steps"
    ),
    "graph-capture/again": (
        "{some} captured CUDA graphs: the GPU of rank {worst} ran nothing for {of} of the step during that. They are "
        "captured again in this step: keep shapes and buffers as they are from step to step"
    ),
    "late-without-cause": (
        "rank {rank} has {share:.0f} % of the lateness, but nothing recorded took longer there than on its peers: it "
        "was already late when the capture began, or did work that was not recorded"
    ),
    "latent-attention": "{text}",
    "measured-ambiguous": (
        "{kernels} ambiguous: name, grid and block are those of a measured one, but nothing says which work it is, or "
        "it took a different time ({listed}{more}): no roof is shown"
    ),
    "measured-elsewhere": (
        "the kernels were measured on another GPU ({measured}): their roofs are not those of this profile"
    ),
    "mesh-by-labels-alone": "the mesh is known from the setup labels alone: {why}",
    "mfu-above-peak": "{names} would run above the peak: the count or the time of its kernels is wrong",
    "mfu-beyond-twice-forward": (
        "the backward pass has {beyond} more than twice the forward pass: some of the forward pass runs again where "
        "no op shows it (within compiled graphs), it is differentiated twice, or forward ops are missing in the "
        "trace; if all of the excess is run again, MFU is {most}, not {mfu}"
    ),
    "mfu-no-peak": "no peak is known for {names}: {flops} are left out of MFU and HFU",
    "mfu-op-unclear": "the FLOPs of some ops cannot be told from the record: {names}",
    "no-anchor-on-ranks": "no range matches --anchor {anchor!r} on {some}: left out",
    "no-replay": "nothing could be replayed: {why}",
    "one-run-each": (
        "the interval covers the {unit}s of one run each: another run may differ by more (give several runs)"
    ),
    "one-run-each/chunks": "the interval covers the chunks of one run each: another run may differ by more",
    "path-on-one-rank": "the critical path stays on one rank: {why}",
    "pipeline-communication-unknown": (
        "no communication is known to be the pipeline's: waiting for another stage may count as busy"
    ),
    "profiler-distortion": "{text}",
    "profilers-differ": (
        "the sides were recorded by two profilers, which slow the host differently: a change of idle time says little "
        "about the program"
    ),
    "ranks-differ": "the base has {base} ranks, the new side {new}: the step of each side is the mean over its ranks",
    "ranks-left-out": "both sides have steps on {some} alone: the other ranks are left out",
    "ranks-left-out/no-step": "{some}: no step with GPU work, left out",
    "run-beyond-the-step": "the run, beyond the analysed step: {said}. `stepscope run` has the account",
    "runs-differ": "its runs differ in {facts}: they are not repetitions of one another",
    "runs-of-unequal-length": (
        "runs have {shortest} to {longest} steps: the median of a short one is noisier than the interval says"
    ),
    "same-capture": "both sides are the same capture: nothing was tested",
    "several-variables": "{number} things differ ({names}{more}): the change cannot be attributed to one of them",
    "stages-on-host": "stages are host ranges: a stage that only launches work ends before the GPU has done it",
    "steps-differ": (
        "ranks differ in their step: {same} of {all} have {label!r}, which is used (--match chooses one that all have)"
    ),
    "steps-of-other-lengths": (
        "steps differ in length: the median one, which is analysed here, takes {median}, the mean is {mean}, "
        "{compute:.0f} % of it compute; --index N shows another (`stepscope iterations` lists them)"
    ),
    "uneven-steps": "{how}: the median is not what the job pays, so the verdict is by means (over whole periods)",
}
#: Records are missing.
LOSS: dict[str, str] = {
    "files-left-out": "{number} of {all} files left out: {why}",
    "peer-unknown": "{number} sends and receives name a peer whose rank is not known: not matched",
    "unmatched-by-label": "{number} ops of {group} differ in number, name or direction between its ranks: not matched",
    "unmatched-by-order": (
        "{number} communication ops carry no communicator, and differ in number, name or time between ranks: not "
        "matched (export nsys with --include-blobs=true, as `capture run` does)"
    ),
    "unmatched-operation": (
        "{number} ops differ in their operation between ranks at the same ordinal ({what}): left out"
    ),
    "unmatched-partial-world": (
        "{number} communication ops carry no communicator; with {here} of {world} ranks in the profile their order "
        "says nothing: not matched"
    ),
}
