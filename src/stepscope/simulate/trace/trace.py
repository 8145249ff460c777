"""What a simulation produced: plain columns, before any file format.

The engine fills a `SimTrace`; the writers turn it into nsys SQLite or Kineto JSON; the truth is computed from it. All
times are int64 nanoseconds **on the clock of the rank's node** (offset and drift already applied), as a profiler there
would have recorded them. Columns are NumPy arrays of equal length; names are indices into `SimTrace.names`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

I64 = npt.NDArray[np.int64]
I32 = npt.NDArray[np.int32]

#: Values of `SimOps.kind`.
KERNEL, MEMCPY, MEMSET = 0, 1, 2
#: Values of `SimSyncs.kind`.
SYNC_EVENT, SYNC_STREAM_WAIT, SYNC_STREAM, SYNC_CONTEXT = 1, 2, 3, 4
#: Values of `SimRanges.domain`.
DOMAIN_DEFAULT, DOMAIN_NCCL = 0, 1


@dataclass
class SimRank:
    """One process: a rank of the job on a device of a node."""

    rank: int
    pid: int
    node: int
    host: str
    device: int
    setup: str  # the setup label, as the trainer writes it
    coords: dict[str, tuple[int, int]]  # axis -> (rank, size)
    main_tid: int
    batch: float = 1.0  # how much larger than that of the others


@dataclass
class SimGroup:
    """A communicator: its id as NCCL would hash it, its axis, its members as global ranks in communicator order."""

    id: int
    axis: str  # "ep", "dp", "pp", "cp", "tp", "world"
    ranks: tuple[int, ...]


@dataclass
class SimOps:
    """GPU activities, sorted by (rank, start)."""

    rank: I32
    kind: I32
    name: I32
    stream: I32
    start: I64
    end: I64
    correlation: I64  # unique within the process; equals the launching call's
    bytes: I64  # copies and memsets; 0 for kernels
    copy_kind: I32  # CUPTI: 1 HtoD, 2 DtoH, 8 DtoD; 0 for kernels
    group: I32  # index into SimTrace.groups for communication kernels, else -1
    comm_seq: I32  # ordinal of this collective in its communicator, else -1
    comm_bytes: I64  # message size as NCCL's NVTX payload states it, else 0
    peer: I32  # communicator rank of the peer of a point-to-point, else -1


@dataclass
class SimCalls:
    """Host-side CUDA API calls, sorted by (rank, start)."""

    rank: I32
    tid: I32
    name: I32
    start: I64
    end: I64
    correlation: I64
    driver: npt.NDArray[np.bool_]  # a driver call (cuLaunchKernelEx, as NCCL launches) rather than a runtime call


@dataclass
class SimRanges:
    """NVTX push/pop ranges, sorted by (rank, start)."""

    rank: I32
    tid: I32
    name: I32
    start: I64
    end: I64
    domain: I32
    group: I32  # for NCCL's ranges: index into groups, else -1
    bytes: I64  # NCCL payload: message size
    peer: I32  # NCCL payload of Send/Recv: peer rank in the communicator, else -1


@dataclass
class SimSyncs:
    """Rows of CUPTI's synchronization records: host time of the call, and what it waits for."""

    rank: I32
    kind: I32
    stream: I32  # the waiting (stream wait) or waited-for (stream sync) stream; -1 for context
    start: I64
    end: I64
    correlation: I64
    event: I32  # the event waited for (unique per record within the process), else -1


@dataclass
class SimEvents:
    """cudaEventRecord: which stream, at which point of the launch order."""

    rank: I32
    stream: I32
    correlation: I64
    event: I32


@dataclass
class SimTrace:
    """A simulated job, complete."""

    names: list[str]
    ranks: list[SimRank]
    groups: list[SimGroup]
    ops: SimOps
    calls: SimCalls
    ranges: SimRanges
    syncs: SimSyncs
    events: SimEvents
    #: UTC of t=0 as each node's (wrong) clock believes it, by node.
    epoch_ns: list[int] = field(default_factory=list)
    #: every option that made this job, for truth.json
    scenario: dict[str, object] = field(default_factory=dict)
