"""The columns of `compile`."""

from __future__ import annotations

from typing import Annotated, TypedDict

from stepscope.model.result import OfRank


class Counts(TypedDict):
    regions: Annotated[int | None, "runs of compiled frames; null where the trace has no annotations of torch.compile"]
    graphs: Annotated[int | None, "runs of compiled graphs, forward and backward"]
    breaks: Annotated[int | None, "regions with a region inside: graph breaks that compiled code followed"]
    recompiled: Annotated[int | None, "frames that ran in a version other than their first"]
    compiles: Annotated[int | None, "compilations in the window"]
    compiling_ns: Annotated[int | None, "host time in them"]


class Gpu(TypedDict):
    """Null where no GPU work is in the window."""

    compiled_ns: Annotated[int | None, "GPU ops launched in a compiled graph"]
    between_ns: Annotated[int | None, "GPU ops launched in a region, outside its graphs"]
    eager_ns: Annotated[int | None, "all other GPU ops of the window"]
    compiled_pct: Annotated[float | None, "compiled share of GPU op time"]


class PerGraph(TypedDict):
    gpu_per_graph_ns: Annotated[int | None, "compiled GPU time per graph"]


class Idle(TypedDict):
    """Null where no calls were recorded."""

    idle_ns: Annotated[int | None, "GPU idle in the window"]
    idle_compile_ns: Annotated[int | None, "of it, while the launching thread compiled"]
    idle_graph_ns: Annotated[int | None, "while it was in a compiled graph"]
    idle_between_ns: Annotated[int | None, "while it was in a region, outside its graphs"]
    idle_eager_ns: Annotated[int | None, "while it was elsewhere"]
    idle_capture_ns: Annotated[
        int | None, "while it captured a CUDA graph, which runs nothing; done once, and no break"
    ]
    idle_other_ns: Annotated[int | None, "not for want of a launch: queued work, or an end that no op marks"]


class Verdict(TypedDict):
    verdict: Annotated[
        str | None, "not compiled, whole, breaks hidden, breaks exposed, host-bound, undecided; null without GPU work"
    ]


class Row(OfRank, Counts, Gpu, PerGraph, Idle, Verdict): ...


class _Step(OfRank):
    index: Annotated[int, "which instance of the anchor"]
    label: Annotated[str, "its text"]


class ByStep(_Step, Counts, Gpu, PerGraph, Idle, Verdict): ...


class ByRegion(OfRank):
    region: Annotated[str, "frame and compile id; `(no region)`: launched outside any, backward graphs too"]
    n: Annotated[int, "runs that began in the window"]
    host_ns: Annotated[int, "their time on the host, regions inside included"]
    graphs: Annotated[int | None, "compiled graphs run in it, not in regions inside"]
    breaks: Annotated[int | None, "runs with a region inside"]
    compiled_ns: Annotated[int, "GPU ops that it launched in compiled graphs"]
    other_ns: Annotated[int, "GPU ops that it launched outside of them"]
