"""What bounds a window: the part of its exact partition that has the majority, with idle time split by cause.

Nothing here is a threshold, a count or an average: the parts are those of `breakdown` and `idle`, they sum to the
window, and the verdict is the part that takes more than half of it; where none does, the window is `mixed`. Idle time
before the launch of the op that ended it (`host`, `gil`: no CUDA call, `api`: in one) starves the GPU: it waits because
the host has not got there yet. Where more than half of that lies in one gap the host did one long thing (`host-bound`:
a data loader, a checkpoint); else every launch comes late, a little each time (`overhead-bound`).
"""

from __future__ import annotations

from typing import Literal, TypedDict

import numpy as np

from stepscope.derive.accounting.partition import partition
from stepscope.derive.host.idle_causes import API, CAUSES, GIL, HOST, STARVED, Pieces, idle_causes
from stepscope.derive.rank.data import RankData
from stepscope.derive.windows.window import Window
from stepscope.intervals.arrays import one_of

HOST_BOUND, OVERHEAD, MIXED = "host-bound", "overhead-bound", "mixed"
#: Verdict by the part that has the majority.
VERDICT = {
    "compute": "compute-bound",
    "comm_exposed": "communication-bound",
    "copy_exposed": "copy-bound",
    "starved": OVERHEAD,
    "sync": "synchronization-bound",
    "alloc": "allocator-bound",
    "load": "load-bound",
    "queue": "queue-bound",
    "tail": "idle",
    "unlinked": "idle",
}


class _OfWindow(TypedDict):
    rank: int
    index: int
    window_ns: int


class Verdict(_OfWindow):
    """What bounds a window, as the summary has it."""

    verdict: str
    starved_pct: float
    starved_ns: int
    starved_host_ns: int
    starved_api_ns: int
    starved_gaps: int
    starved_longest_ns: int
    starved_range: str | None
    starved_range_ns: int
    largest: str
    largest_pct: float
    second: str | None
    second_pct: float


class Parts(_OfWindow):
    """The parts of a window, which sum to it."""

    compute_ns: int
    comm_exposed_ns: int
    copy_exposed_ns: int
    starved_ns: int
    sync_ns: int
    alloc_ns: int
    load_ns: int
    queue_ns: int
    tail_ns: int
    unlinked_ns: int


Part = Literal[
    "compute_ns",
    "comm_exposed_ns",
    "copy_exposed_ns",
    "starved_ns",
    "sync_ns",
    "alloc_ns",
    "load_ns",
    "queue_ns",
    "tail_ns",
    "unlinked_ns",
]


def verdict(data: RankData, span: Window) -> tuple[Verdict, Parts] | None:
    """What bounds the window, with where the host was while the GPU starved; and the parts that this rests on."""
    if span.gpu_start_ns is None or span.gpu_end_ns is None or span.gpu_ns == 0:
        return None
    parts = partition(data, span.gpu_start_ns, span.gpu_end_ns)
    pieces = idle_causes(data, parts.start, parts.end)
    length = pieces.end - pieces.start
    idle = {name: int(length[pieces.cause == k].sum()) for k, name in enumerate(CAUSES)}
    sizes = {
        "compute": parts.compute.length(),
        "comm_exposed": parts.comm_exposed.length(),
        "copy_exposed": parts.copy_exposed.length(),
        "starved": idle.pop("host") + idle.pop("api") + idle.pop("gil"),
        **idle,
    }
    largest, second = sorted(sizes, key=lambda k: -sizes[k])[:2]
    where, where_ns = _where(data, pieces)
    gaps, longest = _gaps(pieces)
    bound = HOST_BOUND if largest == "starved" and 2 * longest > sizes["starved"] else VERDICT[largest]
    if 2 * sizes[largest] <= span.gpu_ns:
        bound = MIXED
    key: _OfWindow = {"rank": data.rank, "index": span.index, "window_ns": span.gpu_ns}
    bounded: Verdict = {
        **key,
        "verdict": bound,
        "starved_pct": 100.0 * sizes["starved"] / span.gpu_ns,
        "starved_ns": sizes["starved"],
        "starved_host_ns": int(length[one_of(pieces.cause, (HOST, GIL))].sum()),
        "starved_api_ns": int(length[pieces.cause == API].sum()),
        "starved_gaps": gaps,
        "starved_longest_ns": longest,
        "starved_range": where,
        "starved_range_ns": where_ns,
        "largest": largest,
        "largest_pct": 100.0 * sizes[largest] / span.gpu_ns,
        "second": second if sizes[second] else None,
        "second_pct": 100.0 * sizes[second] / span.gpu_ns,
    }
    taken: Parts = {
        **key,
        "compute_ns": sizes["compute"],
        "comm_exposed_ns": sizes["comm_exposed"],
        "copy_exposed_ns": sizes["copy_exposed"],
        "starved_ns": sizes["starved"],
        "sync_ns": idle["sync"],
        "alloc_ns": idle["alloc"],
        "load_ns": idle["load"],
        "queue_ns": idle["queue"],
        "tail_ns": idle["tail"],
        "unlinked_ns": idle["unlinked"],
    }
    return bounded, taken


def _gaps(pieces: Pieces) -> tuple[int, int]:
    """In how many gaps the GPU starved, and for how long in the longest."""
    rows = np.flatnonzero(one_of(pieces.cause, STARVED))
    gap, which = np.unique(pieces.next_op[rows], return_inverse=True)
    total = np.zeros(len(gap), np.int64)
    np.add.at(total, which.reshape(-1), (pieces.end - pieces.start)[rows])
    return len(gap), int(total.max(initial=0))


def _where(data: RankData, pieces: Pieces) -> tuple[str | None, int]:
    """The range in which the launching threads were for most of the starved time; null where they were in none."""
    rows = np.flatnonzero(one_of(pieces.cause, STARVED))
    if len(rows) == 0:
        return None, 0
    at, which = np.unique(pieces.host_range[rows], return_inverse=True)
    text = data.text_of(at)
    total = np.zeros(len(at), np.int64)
    np.add.at(total, which.reshape(-1), (pieces.end - pieces.start)[rows])
    by_text: dict[str | None, int] = {}
    for t, ns in zip(text.to_list(), total.tolist(), strict=True):
        by_text[t] = by_text.get(t, 0) + ns
    top = max(by_text, key=lambda t: by_text[t])
    return top, by_text[top]
