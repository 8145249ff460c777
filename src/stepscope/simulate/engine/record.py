"""What one rank did, in columns as they grow; and its host, which is what makes the time pass in them."""

from __future__ import annotations

from array import array
from typing import NamedTuple

from stepscope.simulate.job import costs
from stepscope.simulate.job.blocks import POOL, SHIFT, Names
from stepscope.simulate.trace.trace import DOMAIN_DEFAULT

#: What decided the start of an op: the op before it on its stream, its launch, or an event of another stream.
BY_STREAM, BY_LAUNCH, BY_EVENT = 0, 1, 2
#: Threads of a rank.
MAIN, AUTOGRAD = 0, 1
_LAST = POOL - 1


class Tables(NamedTuple):
    """Jitter of a rank, with its slowness folded in: kernels, those of experts and over the weights, host."""

    kernel: list[int]
    expert: list[int]
    weights: list[int]
    host: list[int]


class Record:
    """Columns of ops, calls and ranges, and the host's clock."""

    def __init__(self, rank: int, names: Names, tables: Tables, start: int) -> None:
        self.rank, self.names, self.tables = rank, names, tables
        self.now, self.thread = start, MAIN
        self._stack: tuple[list[int], list[int]] = ([], [])
        self._singles = 0
        # Ops, in launch order.
        self.op_start, self.op_end = array("q"), array("q")
        self.op_name, self.op_call, self.op_range = array("i"), array("i"), array("i")
        self.op_slot, self.op_kind, self.op_why = bytearray(), bytearray(), bytearray()
        self.op_source: dict[int, int] = {}  # op started by an event -> the op that the event marks
        # Calls, in order of start.
        self.call_start, self.call_end, self.call_name = array("q"), array("q"), array("i")
        self.call_thread = bytearray()
        # Where the host waited for the GPU: call, op, and whether for the op's start (a full queue) or its end.
        self.host_wait: list[tuple[int, int, bool]] = []
        # Ranges, in order of start; `parent` skips NCCL's.
        self.range_start, self.range_end, self.range_bytes = array("q"), array("q"), array("q")
        self.range_name, self.range_parent = array("i"), array("i")
        self.range_group, self.range_peer = array("i"), array("i")
        self.range_thread, self.range_domain = bytearray(), bytearray()
        self.comm: list[tuple[int, int, int, int, int, int]] = []  # op, group, seq, bytes, peer, name of the operation
        self.copies: list[tuple[int, int, int]] = []  # op, bytes, CUPTI's kind
        self.syncs: list[tuple[int, int, int, int]] = []  # kind, slot, call, event
        self.steps: list[tuple[int, int]] = []  # first op of each step, and of what follows it
        self.events: list[tuple[int, int, int]] = []  # slot, call, event

    def host(self, ns: int) -> None:
        """Time of the host in no CUDA call."""
        self.now += ns * self._host_factor() >> SHIFT

    def sleep(self, ns: int) -> None:
        """As `host`, for what a slow host does not make slower."""
        self.now += ns

    def _host_factor(self) -> int:
        self._singles += 1
        return self.tables.host[(self._singles * 31 + self.rank * 523) & _LAST]

    def push(self, text: str) -> int:
        """Open an NVTX range."""
        stack = self._stack[self.thread]
        index = self._range(text, stack[-1] if stack else -1)
        stack.append(index)
        self.now += costs.NVTX_PUSH
        return index

    def pop(self) -> None:
        """Close the innermost range of the thread."""
        self.range_end[self._stack[self.thread].pop()] = self.now
        self.now += costs.NVTX_POP

    def label(self, text: str) -> int:
        """A range that encloses nothing, as far as attribution goes: the setup label."""
        index = self._range(text, -1)
        self.now += costs.NVTX_PUSH
        return index

    def close(self, index: int) -> None:
        """End a `label`."""
        self.range_end[index] = self.now
        self.now += costs.NVTX_POP

    def switch(self, thread: int) -> None:
        """Go on in another thread, while this one waits for it."""
        self.host(costs.THREAD_SWITCH)
        self.thread = thread

    def _range(
        self, text: str, parent: int, domain: int = DOMAIN_DEFAULT, group: int = -1, size: int = 0, peer: int = -1
    ) -> int:
        self.range_start.append(self.now)
        self.range_end.append(-1)
        self.range_name.append(self.names(text))
        self.range_parent.append(parent)
        self.range_thread.append(self.thread)
        self.range_domain.append(domain)
        self.range_group.append(group)
        self.range_bytes.append(size)
        self.range_peer.append(peer)
        return len(self.range_start) - 1

    def _enclosing(self) -> int:
        """The innermost range of the thread, else that of the other thread."""
        stack = self._stack[self.thread] or self._stack[MAIN]
        return stack[-1] if stack else -1

    def _call(self, name: str, gap: int, ns: int) -> int:
        factor = self._host_factor()
        self.now += gap * factor >> SHIFT
        self.call_start.append(self.now)
        self.now += ns * factor >> SHIFT
        self.call_end.append(self.now)
        self.call_name.append(self.names(name))
        self.call_thread.append(self.thread)
        return len(self.call_start) - 1
