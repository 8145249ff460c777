"""A two-stage pipeline, simulated event by event: two processes, bounded queues between them, every moment known.

The first process works on one item at a time: it decodes what has come back, else begins the next item if the queue
into the second stage has room. The second takes items in order, and holds its result until the queue out of it has
room.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fake import Row, call, nvtx, op

#: The second process's clock is so far off.
FAR = 7_000_000_000_000


@dataclass(eq=False)
class Item:
    """Its lengths, and then its moments, ns."""

    a: int
    b: int
    decode: int
    at: dict[str, int] = field(default_factory=dict)


def simulate(
    items: Sequence[Item], queue_in: int, queue_out: int, transfer: int = 0, in_flight: int | None = None
) -> None:
    """Fill in `at` of every item. `in_flight`: so many at most between their begin and their emitting."""
    todo, sent, inbox, done, back = deque(items), deque[Item](), deque[Item](), deque[Item](), deque[Item]()
    events: list[tuple[int, int, str, Item]] = []
    busy: dict[str, Item | None] = {"first": None, "second": None}
    held: Item | None = None
    alive = 0

    order = itertools.count()  # of events at one moment

    def later(at: int, what: str, item: Item) -> None:
        heapq.heappush(events, (at, next(order), what, item))

    now = 0
    while True:
        moved = True
        while moved:  # whatever can begin now
            moved = False
            if held is not None and len(done) + len(back) < queue_out:
                done.append(held)
                later(now + transfer, "returned", held)
                held, moved = None, True
            if busy["second"] is None and held is None and inbox:
                item = busy["second"] = inbox.popleft()
                item.at["tB0"] = now
                later(now + item.b, "second", item)
                moved = True
            if busy["first"] is None and back:
                item = busy["first"] = back.popleft()
                item.at["tRecv"] = now
                later(now + item.decode, "decoded", item)
                moved = True
            room = len(sent) + len(inbox) < queue_in and (in_flight is None or alive < in_flight)
            if busy["first"] is None and todo and room:
                item = busy["first"] = todo.popleft()
                alive += 1
                item.at["tA0"] = now
                later(now + item.a, "first", item)
                moved = True
        if not events:
            return
        now, _, what, item = heapq.heappop(events)
        if what == "first":
            item.at["tA1"] = item.at["tSend"] = now
            busy["first"] = None
            sent.append(item)
            later(now + transfer, "arrived", item)
        elif what == "arrived":
            sent.remove(item)
            inbox.append(item)
        elif what == "second":
            item.at["tB1"] = now
            busy["second"], held = None, item
        elif what == "returned":
            done.remove(item)
            back.append(item)
        else:
            item.at["tDecode"] = item.at["tEmit"] = now
            busy["first"] = None
            alive -= 1


def lines(items: Sequence[Item], **header: int) -> list[dict[str, Any]]:
    """As a log of two processes, each with a clock of its own."""
    made: list[dict[str, Any]] = [{"unit": "ns", **header}]
    for k, item in enumerate(items):
        made.append({"k": k, "rank": 0, **{t: at for t, at in item.at.items() if not t.startswith("tB")}})
        made.append({"k": k, "rank": 1, "tB0": FAR + item.at["tB0"], "tB1": FAR + item.at["tB1"]})
    return made


def launched_ahead(items: Sequence[Item], prefix: str = "pp:", lead: int = 1) -> dict[str, list[Row]]:
    """As a profile: GPU work at these moments, in two ops of which one covers the other, launched by short ranges."""
    tables: dict[str, list[Row]] = {"ops": [], "calls": [], "ranges": []}
    parts = (("stage0:A", "tA0", "tA1", 0), ("stage1:B", "tB0", "tB1", 1), ("stage0:decode", "tRecv", "tDecode", 0))
    id = 0
    for k, item in enumerate(items):
        for text, first, last, proc in parts:
            start, end = (10_000 + item.at[t] + FAR * proc for t in (first, last))
            tables["ranges"].append(nvtx(start - 6 * lead, start - lead, f"{prefix}{text} k={k}") | {"proc": proc})
            middle = (start + end) // 2
            for n, span in enumerate(((start, end), (start, middle))):
                id += 1
                tables["calls"].append(
                    call(start - (4 - 2 * n) * lead, start - (3 - 2 * n) * lead, id) | {"proc": proc}
                )
                tables["ops"].append(op(*span, stream=7 + n, call=id) | {"proc": proc})
    emits = [item.at["tEmit"] + 10_000 for item in items]
    tables["ranges"] += [nvtx(at, at, f"{prefix}emit k={k}", kind="mark") for k, at in enumerate(emits)]
    return tables
