"""What a CUDA or HIP call does, by its name: the one table that says which calls launch, wait, allocate or load.

Names are judged once per name of the string table. The sources strip suffixes of version and default stream
(`_v7000`, `_ptsz`); the patterns allow them all the same. Which calls wait was measured (docs/decisions/0016).
"""

from __future__ import annotations

import re
from enum import IntEnum
from functools import cache

import numpy as np
import polars as pl

from stepscope.derive.rank.data import RankData, coded
from stepscope.intervals.arrays import I8, I64, NONE, Mask, look_up, one_of
from stepscope.model.api_names import SUFFIX
from stepscope.model.threshold import Threshold


class Family(IntEnum):
    """What a call does, as far as any question cares."""

    OTHER = 0
    LAUNCH = 1  # a kernel
    GRAPH_LAUNCH = 2
    DEVICE_SYNC = 3
    STREAM_SYNC = 4
    EVENT_SYNC = 5
    BLOCKING_COPY = 6  # returns when the copy that it makes has ended
    ALLOC = 7
    FREE = 8  # gives memory back, once the device has done all that it was given
    LOAD = 9  # modules, libraries, instantiating graphs
    EVENT_RECORD = 10
    STREAM_WAIT = 11  # makes a stream wait, not the host
    CAPTURE = 12  # begins or ends the capture of a graph


#: Calls that return only when the GPU got somewhere.
WAITING = (Family.DEVICE_SYNC, Family.STREAM_SYNC, Family.EVENT_SYNC, Family.BLOCKING_COPY, Family.FREE)

_BLOCKS = Threshold(
    20.0,
    "µs",
    "calls of sound hosts that only enqueue a copy take up to 10 under a profiler",
    ("decision 0016", "tests/derive/rank/test_cuda_calls.py"),
)

#: What names of calls begin with.
_CALL = r"(?i)^(?:cuda|cu|hip)"
#: What follows; the first that matches counts, and nothing is OTHER.
_TABLE = (
    (Family.GRAPH_LAUNCH, r"GraphLaunch"),
    (Family.LAUNCH, r"(Drv|Ext|Module|ExtModule|HccModule)?Launch(Cooperative|Multi)?Kernel\w*"),
    (Family.LAUNCH, r"Launch(Grid(Async)?|ByPtr)?"),
    (Family.DEVICE_SYNC, r"(Device|Ctx|Thread)Synchronize"),
    (Family.STREAM_SYNC, r"StreamSynchronize"),
    (Family.EVENT_SYNC, r"EventSynchronize"),
    # Asynchronous, and (as measured, and as CUDA documents) what stays within devices.
    (Family.OTHER, r"Memcpy(\w*Async|\w*Peer|[AD]to[AD]|\w*ArrayToArray)"),
    (Family.BLOCKING_COPY, r"Memcpy\w*"),
    (Family.ALLOC, r"(Ext|Host)?Malloc\w*|HostAlloc|HostRegister|FreeAsync"),
    (Family.ALLOC, r"Mem(Alloc\w*|HostAlloc|HostRegister|FreeAsync|Create|Release|Map\w*|Unmap|SetAccess)"),
    (Family.ALLOC, r"Mem(Address(Reserve|Free)|Pool(Create|Destroy|TrimTo))"),
    (Family.FREE, r"Free(Host|Array|MipmappedArray)?|HostFree|MemFree(Host)?|(Mem)?HostUnregister"),
    (Family.LOAD, r"(Module|Library)(Load|Unload|Get)\w*|KernelGetFunction|Link(Create|Add|Complete)\w*"),
    (Family.LOAD, r"Graph(Instantiate\w*|ExecUpdate)"),
    (Family.EVENT_RECORD, r"EventRecord\w*"),
    (Family.STREAM_WAIT, r"Stream(WaitEvent|WaitValue\d*)"),
    (Family.CAPTURE, r"Stream(Begin|End)Capture\w*"),
)


def families(data: RankData) -> I8:
    """The `Family` of each call of the rank."""
    return data.once(_families)


def _families(data: RankData) -> I8:
    if data.calls.height == 0:
        return np.empty(0, np.int8)
    by_call: I8 = look_up(data.per_name(families_of_names), data.calls["name"].to_numpy())
    by_call[_blocked_by_copies(data, by_call)] = Family.BLOCKING_COPY
    again = data.once(_recorded_again)
    return by_call if again is None else np.where(again, np.int8(Family.OTHER), by_call)


def _blocked_by_copies(data: RankData, by_call: I8) -> I64:
    """Asynchronous calls that returned when their copy to the host had ended: the memory was pageable."""
    ops = np.flatnonzero(coded(data.ops["copy_kind"], "DtoH"))
    ops = ops[data.launch[ops] != NONE]
    calls = data.launch[ops]
    start, end = (data.calls[c].to_numpy() for c in ("start_ns", "end_ns"))
    blocked = (data.end[ops] <= end[calls]) & (end[calls] - start[calls] >= _BLOCKS.ns)
    blocked &= by_call[calls] == int(Family.OTHER)
    waiting: I64 = np.unique(calls[blocked])
    return waiting


def _recorded_again(data: RankData) -> Mask | None:
    """Records of a call that has one already, None where none can be.

    Of a call whose stack it took (`--cudabacktrace`), nsys writes two records with one id, the second within the first.
    """
    given = data.calls["correlation"]
    ids = (given.fill_null(0) if given.null_count() else given).to_numpy()
    if not ((ids[1:] == ids[:-1]) & (ids[1:] > 0)).any():  # a record within another comes right after it, somewhere
        return None
    again: Mask = (ids > 0) & ~given.is_first_distinct().to_numpy()
    return again


def of_family(data: RankData, *wanted: Family) -> Mask:
    """Calls of the rank that are of one of these families."""
    return data.once(_of_family, wanted)


def _of_family(data: RankData, wanted: tuple[Family, ...]) -> Mask:
    return one_of(families(data), wanted)


def families_of_names(names: pl.Series) -> I8:
    """The `Family` of each name."""
    family_of = np.full(len(names), Family.OTHER, np.int8)
    calls = names.str.contains(_CALL).to_numpy().nonzero()[0]  # the rest of the string table are kernels and ranges
    family_of[calls] = [_family(text) for text in names.gather(calls).to_list()]
    return family_of


@cache
def _family(name: str) -> Family:
    matched = _rules().search(name)
    return Family.OTHER if matched is None or matched.lastindex is None else _TABLE[matched.lastindex - 1][0]


@cache
def _rules() -> re.Pattern[str]:
    """The table as one expression, a group for each row: compiled when it is first asked."""
    stems = "|".join(rf"((?:{stem.replace('(', '(?:')}){SUFFIX}\Z)" for _, stem in _TABLE)
    return re.compile(rf"{_CALL}(?:{stems})")
