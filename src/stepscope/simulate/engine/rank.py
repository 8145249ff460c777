"""One simulated rank: a host that launches, streams that run, and the record of both.

Times are exact and computed in program order, not in time order: a stream is a first-in first-out queue, so the start
of an op follows from the end of the one before it, its launch, and the events it waits for, all of which are known when
it is launched. Only the end of a communication depends on other ranks. It stays open until they have arrived, and the
rank's program (a generator) yields when it needs an end that is still open.
"""

from __future__ import annotations

from array import array
from collections.abc import Generator
from typing import TYPE_CHECKING, NamedTuple

from stepscope.simulate.engine.record import BY_EVENT, BY_LAUNCH, BY_STREAM, Record, Tables
from stepscope.simulate.job import costs, kernels
from stepscope.simulate.job.blocks import POOL, SHIFT, Block, Names
from stepscope.simulate.job.kernels import COLLECTIVES, COMPUTE, STREAM_IDS
from stepscope.simulate.trace.trace import (
    DOMAIN_NCCL,
    KERNEL,
    MEMCPY,
    SYNC_CONTEXT,
    SYNC_STREAM,
    SYNC_STREAM_WAIT,
)

if TYPE_CHECKING:
    from stepscope.simulate.engine.network import Network, Part, Transfer

#: A piece of a program: it yields where it needs another rank.
Wait = Generator[None, None, None]
_LAST = POOL - 1


class Event(NamedTuple):
    """A recorded event: its number, the last op before it on its stream (-1: none), and that op's open end, if open.

    The event is complete when that op is, and so is what the stream had been told to wait for by then (-1: nothing).
    """

    number: int
    op: int
    part: Part | None
    waited: int


class RankSim(Record):
    """The streams of one rank. Methods that may need another rank are generators."""

    def __init__(self, rank: int, names: Names, tables: Tables, network: Network, start: int) -> None:
        super().__init__(rank, names, tables, start)
        self.network = network
        self.blocked: Part | None = None
        streams = len(STREAM_IDS)
        self._tail, self._tail_op = [0] * streams, [-1] * streams
        self._wait, self._wait_op = [0] * streams, [-1] * streams
        self._open: list[Part | None] = [None] * streams
        self._queue = [array("q") for _ in range(streams)]  # ops by stream, in order of launch
        self._blocks = self._event = 0

    # -- launches ----------------------------------------------------------------------------------------------------

    def compute(self, block: Block, table: list[int] | None = None) -> None:
        """Launch a block of kernels on the compute stream."""
        rows = block.rows
        n = len(rows)
        jitter, host_jitter = table or self.tables.kernel, self.tables.host
        # Jitter goes by the number of the block, so that a fault which adds other work does not reshuffle it.
        self._blocks += 1
        k = (self._blocks * 7919 + self.rank * 10473) & _LAST
        if k + n > 2 * POOL:
            k = 0
        op_start, call_end = self.op_start, self.call_end
        add_start, add_end, add_why = op_start.append, self.op_end.append, self.op_why.append
        add_call, add_return = self.call_start.append, call_end.append
        first, first_call = len(op_start), len(call_end)
        gap, submit, shift = costs.KERNEL_GAP, costs.SUBMIT, SHIFT
        now, tail, waited = self.now, self._tail[COMPUTE], self._wait[COMPUTE]
        if waited > tail + gap:
            tail = waited - gap
        queue = self._queue[COMPUTE]
        oldest = len(queue) - costs.QUEUE_DEPTH + 1
        queue.extend(range(first, first + n))
        for before, call, ns in rows:
            factor = host_jitter[k]
            now += before * factor >> shift
            add_call(now)
            now += call * factor >> shift
            if oldest >= 0 and op_start[queue[oldest]] > now:
                now = op_start[queue[oldest]]
                self.host_wait.append((len(call_end), queue[oldest], True))
            add_return(now)
            oldest += 1
            start = tail + gap
            if start < now + submit:
                start = now + submit
                add_why(BY_LAUNCH)
            else:
                add_why(BY_STREAM)
            add_start(start)
            tail = start + (ns * jitter[k] >> shift)
            add_end(tail)
            k += 1
        if waited > self._tail[COMPUTE] + gap and self.op_why[first] == BY_STREAM:
            self.op_why[first] = BY_EVENT
            self.op_source[first] = self._wait_op[COMPUTE]
        self.now = now
        self._tail[COMPUTE], self._tail_op[COMPUTE] = tail, first + n - 1
        self.op_name.extend(block.kernels)
        self.op_call.extend(range(first_call, first_call + n))
        self.op_range.extend(array("i", [self._enclosing()]) * n)
        self.op_slot.extend(bytes([COMPUTE]) * n)
        self.op_kind.extend(bytes([KERNEL]) * n)
        self.call_name.extend(block.calls)
        self.call_thread.extend(bytes([self.thread]) * n)

    def _launch(self, slot: int, name: str, call: int, kind: int) -> tuple[int, int]:
        """One op on a stream whose end is known; its own end stays to be filled in. Returns op and start."""
        op = len(self.op_start)
        queue = self._queue[slot]
        queue.append(op)
        if len(queue) >= costs.QUEUE_DEPTH:
            oldest = queue[-costs.QUEUE_DEPTH]
            if self.op_start[oldest] > self.now:
                self.now = self.call_end[call] = self.op_start[oldest]
                self.host_wait.append((call, oldest, True))
        ready, queued, waited = self.now + costs.SUBMIT, self._tail[slot] + costs.KERNEL_GAP, self._wait[slot]
        start = max(ready, queued, waited)
        if start == ready:
            why = BY_LAUNCH
        elif start == queued:
            why = BY_STREAM
        else:
            why = BY_EVENT
            self.op_source[op] = self._wait_op[slot]
        self.op_why.append(why)
        self.op_start.append(start)
        self.op_end.append(-1)
        self.op_name.append(self.names(name))
        self.op_call.append(call)
        self.op_range.append(self._enclosing())
        self.op_slot.append(slot)
        self.op_kind.append(kind)
        self._tail_op[slot] = op
        return op, start

    def copy(self, slot: int, size: int, to_host: bool) -> Wait:
        """An asynchronous copy between host and device."""
        yield from self.settle(slot)
        call = self._call(kernels.MEMCPY_ASYNC, costs.COPY_GAP, costs.COPY_CALL)
        name = kernels.MEMCPY_DTOH if to_host else kernels.MEMCPY_HTOD
        op, start = self._launch(slot, name, call, MEMCPY)
        self.op_end[op] = self._tail[slot] = start + costs.COPY_LATENCY + int(size / costs.COPY_BANDWIDTH)
        self.copies.append((op, size, 2 if to_host else 1))

    # -- communication -----------------------------------------------------------------------------------------------

    def collective(self, kind: str, group: int, size: int, slot: int) -> Wait:
        """One collective; `size` as NCCL states it (per rank or per peer where the operation has parts)."""
        yield from self.settle(slot)
        nccl, kernel = COLLECTIVES[kind]
        self.host(costs.C10D)
        index = self._range(nccl, -1, DOMAIN_NCCL, group, size)
        call = self._call(kernels.LAUNCH_EX, costs.NCCL_BEFORE, costs.NCCL_CALL)
        op, start = self._launch(slot, kernel, call, KERNEL)
        self.now += costs.NCCL_AFTER
        self.range_end[index] = self.now
        part, seq = self.network.join(self, kind, group, op, slot, start, size)
        self.comm.append((op, group, seq, size, -1, self.names(kind)))
        self._open[slot] = None if part.done else part
        if slot == COMPUTE:
            yield from self.settle(slot)

    def exchange(self, group: int, transfers: list[Transfer], slot: int) -> Wait:
        """A batch of sends and receives: one kernel, launched at the end of the group."""
        yield from self.settle(slot)
        members = self.network.groups[group].ranks
        self.host(costs.C10D)
        self._group_mark("ncclGroupStart")
        for send, peer, size, _ in transfers:
            self._group_mark("ncclGroupStart")
            index = self._range("ncclSend" if send else "ncclRecv", -1, DOMAIN_NCCL, group, size, members.index(peer))
            self.host(costs.NCCL_BEFORE)
            self.range_end[index] = self.now
            self.now += costs.NVTX_POP
            self._group_mark("ncclGroupEnd")
        index = self._range("ncclGroupEnd", -1, DOMAIN_NCCL)
        call = self._call(kernels.LAUNCH_EX, costs.NCCL_BEFORE, costs.NCCL_CALL)
        op, start = self._launch(slot, kernels.SEND_RECV, call, KERNEL)
        self.now += costs.NCCL_AFTER
        self.range_end[index] = self.now
        part, seq = self.network.exchange(self, group, transfers, op, slot, start)
        first = members.index(transfers[0].peer)
        total = sum(t.size for t in transfers)
        self.comm.append((op, group, seq, total, first, self.names("send_recv")))
        self._open[slot] = None if part.done else part

    def _group_mark(self, text: str) -> None:
        index = self._range(text, -1, DOMAIN_NCCL)
        self.now += costs.NCCL_GROUP_MARK
        self.range_end[index] = self.now
        self.now += costs.NVTX_POP

    def arrived(self, part: Part, end: int) -> None:
        """The network says when an open communication of this rank ends."""
        self.op_end[part.op] = end
        if self._tail_op[part.slot] == part.op:
            self._tail[part.slot] = end
        if self._open[part.slot] is part:
            self._open[part.slot] = None

    # -- order between streams, and waiting ----------------------------------------------------------------------------

    def settle(self, slot: int) -> Wait:
        """Return when the end of the stream's last op is known."""
        part = self._open[slot]
        if part is not None:
            yield from self._until(part)

    def _until(self, part: Part) -> Wait:
        while not part.done:
            self.blocked = part
            yield
        self.blocked = None

    def record(self, slot: int) -> Event:
        """cudaEventRecord."""
        call = self._call(kernels.EVENT_RECORD, costs.EVENT_GAP, costs.EVENT_CALL)
        self._event += 1
        self.events.append((slot, call, self._event))
        return Event(self._event, self._tail_op[slot], self._open[slot], self._wait_op[slot])

    def wait(self, slot: int, event: Event) -> Wait:
        """cudaStreamWaitEvent: later ops of the stream start after the event."""
        call = self._call(kernels.STREAM_WAIT, costs.WAIT_GAP, costs.WAIT_CALL)
        self.syncs.append((SYNC_STREAM_WAIT, slot, call, event.number))
        if event.part is not None:
            yield from self._until(event.part)
        for op in (event.op, event.waited):
            if op >= 0:
                at = self.op_end[op] + costs.EVENT_LATENCY + costs.EVENT_LATENCY_PER_STREAM * slot
                if at > self._wait[slot]:
                    self._wait[slot], self._wait_op[slot] = at, op

    def follow(self, slot: int, other: int) -> Wait:
        """Make a stream wait for all that another has been given."""
        yield from self.wait(slot, self.record(other))

    def sync_stream(self, slot: int) -> Wait:
        """cudaStreamSynchronize."""
        yield from self.settle(slot)
        call = self._block(kernels.STREAM_SYNC, costs.SYNC_GAP, costs.SYNC_CALL, (slot,))
        self.syncs.append((SYNC_STREAM, slot, call, -1))

    def sync_device(self) -> Wait:
        """cudaDeviceSynchronize."""
        yield from self._settle_all()
        call = self._block(kernels.DEVICE_SYNC, costs.SYNC_GAP, costs.SYNC_CALL, range(len(STREAM_IDS)))
        self.syncs.append((SYNC_CONTEXT, -1, call, -1))

    def item(self) -> Wait:
        """`tensor.item()`: a small copy to the host, and waiting for it."""
        yield from self.copy(COMPUTE, 4, to_host=True)
        yield from self.sync_stream(COMPUTE)
        self.host(costs.ITEM_PYTHON)

    def malloc(self) -> None:
        """cudaMalloc: long, but the GPU goes on."""
        self._call(kernels.MALLOC, costs.MALLOC_GAP, costs.MALLOC_CALL)

    def free(self) -> Wait:
        """cudaFree: waits for the whole device first."""
        yield from self._settle_all()
        self._block(kernels.FREE, costs.MALLOC_GAP, costs.FREE_CALL, range(len(STREAM_IDS)))

    def _settle_all(self) -> Wait:
        for slot in range(len(STREAM_IDS)):
            yield from self.settle(slot)

    def _block(self, name: str, gap: int, ns: int, slots: tuple[int, ...] | range) -> int:
        """A call that returns when the GPU has done all that these streams were given."""
        call = self._call(name, gap, ns)
        last = max(slots, key=lambda slot: self._tail[slot])
        done = self._tail[last] + costs.SYNC_RETURN
        if done > self.now and self._tail_op[last] >= 0:
            self.now = self.call_end[call] = done
            self.host_wait.append((call, self._tail_op[last], False))
        return call
