"""The columns of `memory`, by what a row is."""

from __future__ import annotations

from typing import Annotated, TypedDict

from stepscope.analyses.memory.comparing import Beside


class _OfDevice(TypedDict):
    rank: Annotated[int | None, "rank of the process"]
    device: Annotated[int | None, "CUDA ordinal of the device within the process"]


class _Part(_OfDevice):
    part: Annotated[str, "part of the ledger (semantics §17)"]


class _Size(TypedDict):
    bytes: Annotated[int | None, "at the peak"]


class _Share(_Size):
    share_pct: Annotated[float | None, "share of the reserved bytes at the peak; of an estimate, of its sum"]


class _Why(TypedDict):
    why: Annotated[str | None, "what most of it rests on"]


class Row(_Part, _Share):
    most_bytes: Annotated[int | None, "the most that the part ever holds at once"]
    blocks: Annotated[int | None, "blocks at the peak"]
    estimate_bytes: Annotated[int | None, "the same of the declared model (--model)"]
    grows_with: Annotated[str | None, "what makes it larger"]
    why: Annotated[str | None, "what most of it rests on"]


class To(_Part, _Size, Beside, _Why): ...


class _ToFrame(_Part):
    frame: Annotated[str, "line that allocated it; a line that moved is the same"]


class ToByFrame(_ToFrame, _Size, Beside): ...


class _Frame(_Part):
    frame: Annotated[
        str, "innermost line of the user's code that allocated it (torch and the standard library left out)"
    ]


class ByFrame(_Frame, _Share):
    blocks: Annotated[int | None, "blocks at the peak"]


class ByTime(_OfDevice):
    start_ns: Annotated[int, "time of the slice's highest moment"]
    reserved_bytes: Annotated[int, "what the allocator has of CUDA"]
    allocated_bytes: Annotated[int, "blocks that are given out, rounded as the allocator does"]
    weights_bytes: Annotated[int, "weights, as asked for"]
    gradients_bytes: Annotated[int, "gradients, as asked for"]
    optimizer_states_bytes: Annotated[int, "optimizer states, as asked for"]
    activations_bytes: Annotated[int, "activations, as asked for"]
    temporary_bytes: Annotated[int, "temporary, as asked for"]
    communication_bytes: Annotated[int, "communication, as asked for"]
    KV_cache_bytes: Annotated[int, "KV cache, as asked for"]
    unknown_bytes: Annotated[int, "unknown, as asked for"]


class ByStall(_OfDevice):
    start_ns: Annotated[int, "when"]
    kind: Annotated[str, "what the allocator did: segments asked of CUDA or returned, out of memory"]
    bytes: Annotated[int | None, "at the peak"]
    frame: Annotated[str, "line of the user's code that led to it"]
    call: Annotated[str | None, "CUDA call that it was; null without a timeline"]
    call_ns: Annotated[int | None, "how long the call took"]
    idle_ns: Annotated[int | None, "idle time of the GPU while the host was in it (cause `alloc` of `idle`)"]


class ByChange(_OfDevice):
    change: Annotated[str, "what would be different"]
    bytes: Annotated[int | None, "the peak then"]
    saves_bytes: Annotated[int, "how much less that is; negative where it is more"]
    at_most: Annotated[bool, "it can save no more than that, and may save less"]
    how: Annotated[str, "what is divided, or not kept"]


class ByTerm(_Part):
    term: Annotated[str, "tensor that is alive at the peak of the estimate"]
    formula: Annotated[
        str, "bytes of one: T tokens of a micro-batch, h width, q and k all queries and keys, f, V, P parameters"
    ]
    n: Annotated[int, "how many there are"]
    bytes: Annotated[int, "of all of them"]
    share_pct: Annotated[float | None, "share of the reserved bytes at the peak; of an estimate, of its sum"]
