"""Events of torch's JSON as torch 2.15 lays them out in a .pftrace, with what GPU work waited for.

As torch/profiler/_cuspy/trace.py and torch/csrc/profiler/cuspy/cuspy_pftrace.cpp write it: slices of the host with
torch's arguments, the GPU's work as render stages whose arguments are texts.
"""

from __future__ import annotations

import gzip
import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from stepscope.export.wire import number, text, varint

#: By category: number and name of the stage.
STAGES = {
    "kernel": (1, "Kernel"),
    "gpu_memcpy": (2, "Memcpy"),
    "gpu_memset": (3, "Memset"),
    "gpu_user_annotation": (4, "Annotation"),
    "graph_event_node": (5, "EventRecord"),
    "graph_host_node": (6, "HostNode"),
}
_RENAMED = {"device": "device id", "context": "context id", "stream": "stream id"}
_SEQUENCE, _CLEARED = number(10, 1), number(13, 1)
Event = dict[str, Any]


def json_events(data: bytes) -> tuple[int, list[Event]]:
    """The base and the lasting events of a JSON trace, compressed or not."""
    trace = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    events = [e for e in trace["traceEvents"] if e.get("ph") == "X" and isinstance(e["pid"], int)]
    return trace.get("baseTimeNanoseconds", 0), events


def pftrace(
    base: int,
    events: Sequence[Event],
    waits: Mapping[int, Sequence[int]] | None = None,
    samples: Sequence[tuple[str, int, float]] = (),
) -> bytes:
    """The trace. `waits`: by place among the events of the GPU, the places of those that one waited for.

    `samples` are counters of GPU 0: name, nanoseconds, value.
    """
    host = [e for e in events if e["cat"] not in STAGES]
    gpu = [e for e in events if e["cat"] in STAGES]
    names, categories = ({t: i + 1 for i, t in enumerate(dict.fromkeys(e[k] for e in events))} for k in ("name", "cat"))
    threads = {who: i + 1 for i, who in enumerate(dict.fromkeys((e["pid"], e["tid"]) for e in host))}
    packets = [
        sub(60, number(1, track) + sub(4, number(1, pid) + number(2, tid))) for (pid, tid), track in threads.items()
    ]
    interned = [sub(1, number(1, i) + text(2, t)) for t, i in categories.items()]
    interned += [sub(2, number(1, i) + text(2, t)) for t, i in names.items()]
    interned += [sub(24, number(1, i) + text(2, t)) for i, t in STAGES.values()]
    counters = {name: i for i, name in enumerate(dict.fromkeys(name for name, _, _ in samples))}
    described = b"".join(sub(1, number(1, i) + text(2, name)) for name, i in counters.items())
    interned += [sub(47, number(1, 1) + sub(2, described))] if counters else []
    packets.insert(0, number(8, base) + _SEQUENCE + _CLEARED + sub(12, b"".join(interned)))
    for kind in (1, 2):  # all begins, then all ends
        packets += [_slice(base, e, kind, threads[e["pid"], e["tid"]], names, categories) for e in host]
    packets += [_stage(base, e, place, names, (waits or {}).get(place, ())) for place, e in enumerate(gpu)]
    for name, at, value in samples:
        one = number(1, counters[name]) + varint(3 << 3 | 1) + struct.pack("<d", value)
        packets.append(number(8, base + at) + _SEQUENCE + sub(52, number(3, 0) + sub(2, one)))
    return b"".join(sub(1, packet) for packet in packets)


def sub(field: int, data: bytes) -> bytes:
    """A message within another."""
    return varint(field << 3 | 2) + varint(len(data)) + data


def nanoseconds(micros: float) -> int:
    return round(micros * 1000)


def _slice(
    base: int, event: Event, kind: int, track: int, names: Mapping[str, int], categories: Mapping[str, int]
) -> bytes:
    at = base + nanoseconds(event["ts"]) + (nanoseconds(event["dur"]) if kind == 2 else 0)
    told = number(9, kind) + number(11, track)
    if kind == 1:
        told += number(10, names[event["name"]]) + number(3, categories[event["cat"]])
        told += b"".join(sub(4, text(10, k) + text(9, json.dumps(v))) for k, v in event.get("args", {}).items())
    return number(8, at) + _SEQUENCE + sub(11, told)


def _stage(base: int, event: Event, place: int, names: Mapping[str, int], waits: Sequence[int]) -> bytes:
    told = number(1, place + 1) + number(2, nanoseconds(event["dur"])) + number(11, event["pid"])
    told += number(14, STAGES[event["cat"]][0]) + number(20, names[event["name"]])
    args = {_RENAMED.get(k, k): v for k, v in event.get("args", {}).items() if not isinstance(v, list)}
    told += b"".join(sub(6, text(1, k) + text(2, str(v))) for k, v in args.items())
    told += b"".join(number(18, other + 1) for other in waits)
    return number(8, base + nanoseconds(event["ts"])) + _SEQUENCE + sub(53, told)
