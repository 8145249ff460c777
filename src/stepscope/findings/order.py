"""Who gets the time first: which remedies are in place when what a finding could save is worked out.

A wait, a slow launch and a short kernel can all be blamed for the same idle GPU, and ranks wait for a straggler inside
their communication. What is named more closely is credited first; the others get what is left without it. A finding
that has no row here is credited with what its remedy gives back alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from stepscope.findings.finding import Finding


@dataclass(frozen=True)
class After:
    """A finding (of several kinds of one id, the `kind`), the causes that are credited before it, and why."""

    finding: str
    causes: tuple[str, ...]
    why: str
    kind: str = ""


#: Causes are ids of findings; `first-use` alone has a remedy and no finding (`registry.WITHOUT_FINDING`).
ORDER: tuple[After, ...] = (
    After(
        "data-stall",
        ("launch-bound", "profiler-distortion"),
        "a machine that is slow at launching is slow at fetching too, and so is one that a profiler slows",
    ),
    After(
        "host-sync",
        ("launch-bound", "tiny-kernels", "data-stall", "allocator-churn"),
        "a wait costs the time until the GPU is fed again: what makes the host slow at that has its own finding",
    ),
    *(
        After(finding, ("profiler-distortion",), "what only the profiler costs cannot be recovered by any finding")
        for finding in (
            *("allocator-churn", "attention-by-hand", "casts-and-copies", "host-sync", "late-node", "launch-bound"),
            *("memory-layout", "recomputation", "slow-optimizer", "tiny-kernels", "unfused-kernels"),
        )
    ),
    After(
        "launch-bound",
        ("launch-bound", "tiny-kernels", "graph-breaks"),
        "slow machines, repeated kernels and broken graphs say more closely why launches are late",
        kind="framework",
    ),
    After(
        "launch-bound",
        ("data-stall", "allocator-churn", "profiler-distortion", "host-sync", "late-node"),
        "while the host fetches, allocates, waits or does something else, it is not the framework that keeps launches "
        "back",
        kind="framework",
    ),
    *(
        After(
            finding,
            ("no-tensor-cores", "recomputation"),
            "in half precision kernels move half the bytes, and what is computed twice has its own finding",
        )
        for finding in ("attention-by-hand", "casts-and-copies", "memory-layout", "unfused-kernels")
    ),
    *(
        After(
            finding,
            ("unused-forward", "unused-gradients"),
            "what need not run need not run faster, and the host need not launch it",
        )
        for finding in ("no-tensor-cores", "launch-bound", "below-roof")
    ),
    After(
        "launch-bound",
        ("experts-one-by-one", "slow-indexing", "unused-forward", "unused-gradients"),
        "what need not be launched need not be launched faster",
        kind="framework",
    ),
    *(
        After(finding, ("experts-one-by-one",), "waits and small kernels of a loop over experts end with the loop")
        for finding in ("host-sync", "tiny-kernels", "unfused-kernels", "casts-and-copies")
    ),
    *(
        After(finding, ("profiler-distortion",), "what only the profiler costs cannot be recovered by any finding")
        for finding in (
            *("experts-one-by-one", "slow-algorithms", "slow-indexing", "unused-forward", "unused-gradients"),
        )
    ),
    After(
        "slow-algorithms",
        ("no-tensor-cores", "memory-layout"),
        "half precision and the layout decide first which convolution runs",
    ),
    After(
        "recomputation",
        ("no-tensor-cores",),
        "products that become faster are faster the second time, too",
    ),
    After(
        "slow-optimizer",
        ("tiny-kernels",),
        "where the host launches an optimizer's kernels one by one and is behind, fewer launches come first",
    ),
    After(
        "launch-bound",
        ("attention-by-hand", "casts-and-copies", "recomputation", "slow-optimizer", "unfused-kernels"),
        "what need not be launched need not be launched faster",
        kind="framework",
    ),
    After(
        "low-occupancy",
        ("memory-layout",),
        "batch norms in NCHW have a block for each channel: the layout is the reason",
    ),
    After(
        "below-roof",
        ("attention-by-hand", "unfused-kernels", "memory-layout", "slow-loss", "casts-and-copies", "slow-optimizer"),
        "kernels that need not run, or run apart, are not to be made faster",
    ),
    After(
        "below-roof",
        ("no-tensor-cores", "low-occupancy", "tiny-kernels"),
        "products on the wrong pipe, grids that leave the GPU empty and tiny kernels have findings of their own",
    ),
    After(
        "serialized-communication",
        ("serialized-communication",),
        "waits that are certainly too early are credited before those that may be needed",
        kind="bound",
    ),
    After(
        "serialized-communication",
        ("slow-link", "first-use"),
        "what a slow link or making connections adds to a transfer is not the fault of how it was issued",
        kind="bound",
    ),
    After(
        "compute-imbalance",
        ("expert-imbalance", "straggler"),
        "a rank with more tokens or a slow GPU makes its stage look larger than it is",
    ),
    After(
        "exposed-communication",
        ("slow-link", "first-use"),
        "what a slow link or making connections adds to a transfer would not have to be hidden",
    ),
    After(
        "exposed-communication",
        ("late-node", "expert-imbalance", "straggler"),
        "waiting for a late or slow rank is not the network's time",
    ),
    After(
        "exposed-communication",
        ("repeated-reduction",),
        "reductions that need not be made need not be hidden",
    ),
    After(
        "exposed-communication",
        ("serialized-communication",),
        "what was only issued badly can be hidden by issuing it well",
    ),
    After(
        "in-order-communication",
        ("slow-link", "first-use", "late-node", "expert-imbalance", "straggler"),
        "waiting for a late or slow rank, or on a slow link, is not the fault of the order",
    ),
    After(
        "exposed-copies",
        ("attention-by-hand", "casts-and-copies", "unfused-kernels", "recomputation"),
        "copies within the device that need not be made have a finding that says why they are",
    ),
    After(
        "exposed-copies",
        ("data-stall", "host-sync"),
        "a copy that waits for its batch, or that the host waits for, costs that time once",
    ),
    After(
        "pipeline-bubble",
        ("slow-link", "first-use", "late-node", "serialized-communication"),
        "a stage that waits for late transfers idles for them, not for its schedule",
    ),
    After(
        "pipeline-bubble",
        ("expert-imbalance", "straggler", "compute-imbalance"),
        "the ideal bubble is that of even stages: unevenness has its own findings",
    ),
)


#: What remains where no cause is named: on a GPU that ranks share it takes what the loopback takes.
EFFECT = "exposed-communication"


def causes_first(findings: list[Finding]) -> list[Finding]:
    """The same, with what makes communication exposed before the exposure: for ranks that share a GPU."""
    first = next((i for i, f in enumerate(findings) if f.id == EFFECT), len(findings))
    causes = [f for f in findings[first:] if f.id in credited_before(EFFECT) and f.cause != "possible"]
    return findings[:first] + causes + [f for f in findings[first:] if f not in causes]


def credited_before(finding: str, kind: str = "") -> tuple[str, ...]:
    """The causes that are gone when this finding's time is worked out."""
    return tuple(cause for row in ORDER if (row.finding, row.kind) == (finding, kind) for cause in row.causes)
