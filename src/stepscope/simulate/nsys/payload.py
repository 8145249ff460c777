"""NCCL's extended NVTX payloads as nsys exports them: schema rows, binary blobs and their JSON.

Every payload is one struct behind a header of four u64: payload count, schema id, struct size, offset of the struct.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stepscope.simulate.trace.trace import I32, I64, SimGroup

#: Ids that a library registers itself start here; NCCL adds its own number of the call.
FIRST_SCHEMA = 1 << 24
REDUCTION_ENUM = FIRST_SCHEMA + 20
REDUCTIONS = ("Sum", "Product", "Max", "Min", "Avg")
_INT32, _UINT64, _SIZE_T = 5, 18, 22
_HEADER_BYTES = 32


class Field(NamedTuple):
    """One member of a payload struct: its label, and its type as nsys numbers types."""

    label: str
    type: int


_COMM = Field("NCCL communicator ID", _UINT64)
_BYTES = Field("Message size [bytes]", _SIZE_T)
_PEER = Field("Peer rank", _INT32)
_ROOT = Field("Root", _INT32)
_REDUCTION = Field("Reduction operation", REDUCTION_ENUM)


class Payload(NamedTuple):
    """The struct of one NCCL call: communicator, size, and what else the call has (all 32 bits wide)."""

    number: int
    more: tuple[Field, ...] = ()

    @property
    def schema(self) -> int:
        return FIRST_SCHEMA + self.number

    @property
    def size(self) -> int:
        return 24 if self.more else 16

    @property
    def entries(self) -> list[tuple[Field, int]]:
        """Each field with its offset."""
        return [(_COMM, 0), (_BYTES, 8), *((f, 16 + 4 * i) for i, f in enumerate(self.more))]


PAYLOADS = {
    "ncclAllGather": Payload(4),
    "ncclAllReduce": Payload(5, (_REDUCTION,)),
    "ncclBroadcast": Payload(6, (_ROOT,)),
    "ncclReduceScatter": Payload(7, (_REDUCTION,)),
    "ncclReduce": Payload(8, (_ROOT, _REDUCTION)),
    "ncclSend": Payload(9, (_PEER,)),
    "ncclRecv": Payload(10, (_PEER,)),
    "ncclAlltoAll": Payload(16),
    "ncclGather": Payload(17, (_ROOT,)),
    "ncclScatter": Payload(18, (_ROOT,)),
}


def communicator_ids(groups: list[SimGroup]) -> npt.NDArray[np.uint64]:
    """Communicator ids as unsigned 64-bit numbers, by group index."""
    return np.array([g.id & (1 << 64) - 1 for g in groups], dtype=np.uint64)


def encode(call: str, comm: npt.NDArray[np.uint64], size: I64, peer: I32) -> tuple[list[bytes], list[str]]:
    """Blob and JSON of each of the payloads of one kind of call.

    The trace has neither roots nor reductions: a root is the peer where one is given, else 0, and reductions are sums.
    """
    payload = PAYLOADS[call]
    rank = np.maximum(peer, 0)
    # Two 32-bit members follow even where only one is used: the struct is padded to 8 bytes.
    tail = [("m0", "<i4"), ("m1", "<i4")] if payload.more else []
    rows = np.zeros(len(comm), dtype=[("header", "<u8", 4), ("comm", "<u8"), ("size", "<u8"), *tail])
    rows["header"] = (1, payload.schema, payload.size, _HEADER_BYTES)
    rows["comm"], rows["size"] = comm, size

    template = f'{{"{_COMM.label}":%d,"{_BYTES.label}":%d'
    columns: list[list[int]] = [comm.tolist(), size.tolist()]
    for i, field in enumerate(payload.more):
        if field is _REDUCTION:
            template += f',"{field.label}":"{REDUCTIONS[0]}"'
        else:
            rows[f"m{i}"] = rank
            template += f',"{field.label}":%d'
            columns.append(rank.tolist())

    data, step = rows.tobytes(), rows.dtype.itemsize
    blobs = [data[i : i + step] for i in range(0, len(data), step)]
    return blobs, list(map((template + "}").__mod__, zip(*columns, strict=True)))
