"""The shape of one event: only the fields that the model needs, so that msgspec skips the rest without building it."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

from msgspec import Raw, Struct, field

NO_RAW = Raw(b"")


def _named(name: str) -> Any:
    return field(name=name, default=None)


class Args(Struct, gc=False):
    """`args` of an event, all categories together: what is absent stays None.

    Fields stand in the order in which Kineto writes them: msgspec looks for a key from the last one found on.
    """

    external: int | None = _named("External id")
    # Kernels, copies, memsets, calls.
    device: int | None = None
    context: int | None = None
    stream: int | None = None
    correlation: int | None = None
    bytes: int | None = None
    registers: int | None = _named("registers per thread")
    shared: int | None = _named("shared memory")
    grid: list[int] | None = None
    block: list[int] | None = None
    occupancy: float | None = _named("est. achieved occupancy %")
    graph_node: int | None = _named("graph node id")
    op_id: int | None = _named("event id")  # of .pftrace only, as the next
    waits: list[int] | None = _named("event wait ids")
    # What the program noted of a graph's node when it captured it (torch.cuda.graph_annotations); its text is `name`.
    autograd_phase: str | None = None
    stack: str | None = None
    # Copies whose name does not say it (torch's CUPTI backend).
    copy_kind: str | int | None = _named("copy kind")
    src_kind: str | int | None = _named("src kind")
    dst_kind: str | int | None = _named("dst kind")
    # Host ops and Python functions.
    sequence: int | None = _named("Sequence number")
    fwd_tid: int | None = _named("Fwd thread id")
    inputs: Raw = field(name="Concrete Inputs", default=NO_RAW)
    types: Raw = field(name="Input type", default=NO_RAW)
    shapes: Raw = field(name="Input Dims", default=NO_RAW)
    python_parent: int | None = _named("Python parent id")
    python_id: int | None = _named("Python id")
    # Collectives.
    collective: str | None = _named("Collective name")
    in_elements: int | None = _named("In msg nelems")
    out_elements: int | None = _named("Out msg nelems")
    group_size: int | None = _named("Group size")
    dtype: str | None = None
    group: str | None = _named("Process Group Name")
    group_desc: str | None = _named("Process Group Description")
    group_ranks: Any = _named("Process Group Ranks")
    comm_seq: int | None = _named("Seq")
    group_start: int | None = _named("Global rank start")
    group_stride: int | None = _named("Global rank stride")
    own_rank: int | None = _named("Rank")
    src_rank: int | None = _named("Src Rank")
    dst_rank: int | None = _named("Dst Rank")
    # Allocator samples.
    reserved: int | None = _named("Total Reserved")
    allocated: int | None = _named("Total Allocated")
    block_bytes: int | None = _named("Bytes")
    device_id: int | None = _named("Device Id")
    address: int | None = _named("Addr")
    finished: bool | None = None
    # Synchronization, and copies between devices.
    wait_stream: int | None = _named("wait_on_stream")
    wait_record: int | None = _named("wait_on_cuda_event_record_corr_id")
    src_device: int | None = _named("fromDevice")
    dst_device: int | None = _named("toDevice")
    # Merged multi-rank files; `name` is that of a process in a metadata event.
    rank: int | None = None
    name: str | None = None


class Event(Struct, gc=False):
    """One element of `traceEvents`."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    ts: float = math.nan
    dur: float = math.nan
    pid: Any = None
    tid: Any = None
    args: Args | None = None


class Times(Struct, gc=False):
    """The times of an event as written."""

    ts: Decimal | None = None
    dur: Decimal | None = None


class Sample(Struct, gc=False):
    """A counter event, whose `args` are its series, under any name."""

    ph: str = ""
    name: str = ""
    args: dict[str, Any] | None = None
