"""The GPU side of a Kineto trace: kernels, copies, waits, the ends of flows, and annotations projected on streams."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from stepscope.simulate.kineto.host import HostRows
from stepscope.simulate.kineto.json import EventList, encoded
from stepscope.simulate.trace.hostlinks import innermost
from stepscope.simulate.trace.rankview import CONTEXT, RankView, event_ids, launch_of
from stepscope.simulate.trace.trace import (
    KERNEL,
    MEMCPY,
    MEMSET,
    SYNC_CONTEXT,
    SYNC_EVENT,
    SYNC_STREAM,
    SYNC_STREAM_WAIT,
)

_SMS, _WARP, _MAX_WARPS = 132, 32, 64
_COPY_NAMES = {
    1: "Memcpy HtoD (Pinned -> Device)",
    2: "Memcpy DtoH (Device -> Pinned)",
    8: "Memcpy DtoD (Device -> Device)",
    9: "Memcpy HtoH (Pinned -> Pinned)",
    10: "Memcpy PtoP (Device -> Device)",
}
_SYNC_NAMES = {
    SYNC_EVENT: "Event Sync",
    SYNC_STREAM_WAIT: "Stream Wait Event",
    SYNC_STREAM: "Stream Sync",
    SYNC_CONTEXT: "Context Sync",
}


def write_gpu(
    events: EventList, names: list[str], one: RankView, rows: HostRows, external: npt.NDArray[np.object_]
) -> None:
    """Write everything that Kineto shows under the device."""
    _kernels(events, names, one, rows, external)
    _copies(events, one, external)
    ops, device = one.ops, one.rank.device
    ends = np.flatnonzero(rows.launch >= 0)
    events.add(
        f'{{"ph": "f", "id": %d, "pid": {device}, "tid": %d, "ts": %d.%s, "cat": "ac2g", "name": "ac2g", "bp": "e"}}',
        ops.correlation[ends],
        ops.stream[ends],
        *events.stamp(ops.start[ends]),
    )
    _waits(events, one)
    _annotations(events, one, rows)


def _head(category: str, device: int) -> str:
    return f'{{"ph": "X", "cat": "{category}", "name": %s, "pid": {device}, "tid": %d, "ts": %d.%s, "dur": %d.%s, '


def _kernels(
    events: EventList, names: list[str], one: RankView, rows: HostRows, external: npt.NDArray[np.object_]
) -> None:
    ops, device = one.ops, one.rank.device
    at = np.flatnonzero(ops.kind == KERNEL)
    name = ops.name[at]
    used = np.unique(name)
    launch = np.full(int(used.max(initial=-1)) + 1, "", dtype=object)
    for i in used.tolist():
        launch[i] = _launch_text(names[i], one.rank.batch)
    where = f'"args": {{%s"queued": 0, "device": {device}, "context": {CONTEXT}, "stream": %d, "correlation": %d, '
    events.add(
        _head("kernel", device) + where + "%s%s}}",
        encoded(names, used)[name],
        ops.stream[at],
        *events.stamp(ops.start[at]),
        *events.span(ops.end[at] - ops.start[at]),
        external[at],
        ops.stream[at],
        ops.correlation[at],
        launch[name],
        rows.metadata[at],
    )


def _launch_text(kernel: str, batch: float) -> str:
    launch = launch_of(kernel, batch)
    blocks = launch.grid / _SMS
    warps = blocks * launch.block / _WARP
    return (
        f'"registers per thread": {launch.registers}, "shared memory": {launch.static_shared + launch.dynamic_shared}, '
        f'"blocks per SM": {blocks:.6f}, "warps per SM": {warps:.6f}, "grid": [{launch.grid}, 1, 1], '
        f'"block": [{launch.block}, 1, 1], "est. achieved occupancy %": {min(100, round(100 * warps / _MAX_WARPS))}'
    )


def _copies(events: EventList, one: RankView, external: npt.NDArray[np.object_]) -> None:
    ops, device = one.ops, one.rank.device
    copy_names = np.array([f'"{_COPY_NAMES.get(k, "Memcpy")}"' for k in range(16)], dtype=object)
    where = f'"args": {{%s"device": {device}, "context": {CONTEXT}, "stream": %d, "correlation": %d, '
    for kind, category in ((MEMCPY, "gpu_memcpy"), (MEMSET, "gpu_memset")):
        at = np.flatnonzero(ops.kind == kind)
        length = ops.end[at] - ops.start[at]
        name = copy_names[ops.copy_kind[at]] if kind == MEMCPY else np.full(len(at), '"Memset (Device)"', dtype=object)
        events.add(
            _head(category, device) + where + '"bytes": %d, "memory bandwidth (GB/s)": %r}}',
            name,
            ops.stream[at],
            *events.stamp(ops.start[at]),
            *events.span(length),
            external[at],
            ops.stream[at],
            ops.correlation[at],
            ops.bytes[at],
            ops.bytes[at] / np.maximum(length, 1),
        )


def _waits(events: EventList, one: RankView) -> None:
    """Synchronizations, as the profiler shows them when asked to (`enable_cuda_sync_events`)."""
    syncs, records, device = one.syncs, one.events, one.rank.device
    names = np.array([f'"{_SYNC_NAMES.get(k, "Unknown Sync")}"' for k in range(5)], dtype=object)
    order = np.argsort(records.event, kind="stable")
    at = np.minimum(np.searchsorted(records.event[order], syncs.event), max(len(order) - 1, 0))
    record = order[at] if len(order) else np.zeros(len(syncs.event), dtype=np.intp)
    recorded = (records.event[record] == syncs.event) if len(order) else np.zeros(len(syncs.event), dtype=bool)
    about = np.full(len(syncs.event), "", dtype=object)
    text = '"wait_on_stream": %d, "wait_on_cuda_event_record_corr_id": %d, "wait_on_cuda_event_id": %d, '
    some = np.flatnonzero(recorded & (syncs.event >= 0))
    columns = records.stream[record[some]], records.correlation[record[some]], event_ids(syncs.event[some])
    about[some] = list(map(text.__mod__, zip(*(c.tolist() for c in columns), strict=True)))
    events.add(
        _head("cuda_sync", device)
        + f'"args": {{"cuda_sync_kind": %s, %s"stream": %d, "correlation": %d, "device": {device}, '
        + f'"context": {CONTEXT}}}}}',
        names[syncs.kind],
        syncs.stream,
        *events.stamp(syncs.start),
        *events.span(syncs.end - syncs.start),
        names[syncs.kind],
        about,
        syncs.stream,
        syncs.correlation,
    )


def _annotations(events: EventList, one: RankView, rows: HostRows) -> None:
    """Each annotation over the ops it launched itself (not those of inner ones), once per stream, as Kineto does."""
    ops, calls = one.ops, one.calls
    launched = np.flatnonzero(rows.launch >= 0)
    call = rows.launch[launched]
    notes = np.flatnonzero(~rows.is_op)
    inside = innermost(rows.start[notes], rows.end[notes], rows.tid[notes], calls.start[call], calls.tid[call])
    launched, inside = launched[inside >= 0], inside[inside >= 0]
    if not len(launched):
        return
    note, stream = notes[inside], ops.stream[launched]
    order = np.lexsort((stream, note))
    note, stream, work = note[order], stream[order], launched[order]
    first = np.flatnonzero(np.r_[True, (np.diff(note) != 0) | (np.diff(stream) != 0)])
    start = np.minimum.reduceat(ops.start[work], first)
    end = np.maximum.reduceat(ops.end[work], first)
    names = np.array(rows.name, dtype=object)
    events.add(
        _head("gpu_user_annotation", one.rank.device) + '"args": {"External id": %d}}',
        names[note[first]],
        stream[first],
        *events.stamp(start),
        *events.span(end - start),
        note[first] + 1 + rows.ids_before,
    )
