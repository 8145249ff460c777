"""One dump as columns, with tables of its own: groups, signatures, stacks. Pickles and JSON, of all versions of the
format.

Keys that a version does not have are taken as not recorded: nothing here depends on the version that a dump claims.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from stepscope.errors import BadInput
from stepscope.model.flight import COMPLETED, I64, NONE, RECV, SCHEDULED, SEND, STARTED, Frame, Signature
from stepscope.sources.flight.columns import Columns
from stepscope.sources.flight.pickles import Reader

_SIGNATURE = ("profiling_name", "input_sizes", "input_dtypes", "output_sizes", "output_dtypes")
_MILLION = 1_000_000
#: A size of a tensor that is beyond this is not one.
_MOST_ELEMENTS = 1 << 62
_STATES = {"scheduled": SCHEDULED, "started": STARTED, "completed": COMPLETED}
_TIMES = ("time_created_ns", "time_discovered_started_ns", "time_discovered_completed_ns")
_NUMBERS = ("record_id", "collective_seq_id", "p2p_seq_id", "timeout_ms", "pg_id")
#: Ranks as (first, step, count): those of a mesh are few of these, however many ranks there are.
Spans = tuple[tuple[int, int, int], ...]
_HINT = "a dump of the flight recorder has entries, pg_config and version"


class Read(msgspec.Struct):
    """A dump as it was read. `columns` are of its calls in order; numbers of groups, signatures and stacks are its
    own."""

    version: str
    columns: dict[str, I64]
    #: name and purpose of each group that calls name
    groups: list[tuple[str, str]]
    signatures: list[Signature]
    stacks: list[tuple[Frame, ...]]
    #: by name of a group: its members
    members: dict[str, Spans]
    #: by number of a group as status has it: last enqueued, started, completed
    status: dict[str, tuple[int, int, int]]
    #: calls in the dump, of which `columns` may have only the last
    count: int


def read(name: str, data: bytes, tail: int) -> Read:
    """The dump in `data`: of its calls those that are not complete, and of all the last `tail`."""
    if data[:1] == b"{":
        return _of_json(name, data, tail)
    reader = Reader(name, data)
    if not isinstance(reader.value, dict) or not ({"entries", "pg_config"} & set(reader.value)):
        raise BadInput(f"{name}: is a pickle, but not a dump of the flight recorder", _HINT)
    tables = _Tables(name)
    parts = [_slow(tables, [call for _, call in reader.slow])]
    places = [np.array([place for place, _ in reader.slow], np.int64)]
    for runs in reader.runs:
        rows, where = runs.rows()
        kept = _open(Columns(reader, runs, rows)) | (where >= reader.count - tail)
        parts.append(_fast(tables, Columns(reader, runs, rows[kept])))
        places.append(where[kept])
    order = np.argsort(np.concatenate(places), kind="stable")
    columns = {key: np.concatenate([part[key] for part in parts])[order] for key in parts[0]}
    return _made(tables, columns, reader.value, reader.count)


def _of_json(name: str, data: bytes, tail: int) -> Read:
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(f"{name}: is not JSON ({error})", "collect the dump again") from None
    if not isinstance(value, dict) or not ({"entries", "pg_config"} & set(value)):
        raise BadInput(f"{name}: is JSON, but not a dump of the flight recorder", _HINT)
    calls = value.get("entries") or []
    if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
        raise BadInput(f"{name}: its entries are not calls", _HINT)
    first = len(calls) - tail
    tables = _Tables(name)
    kept = [call for n, call in enumerate(calls) if n >= first or call.get("state") != "completed"]
    return _made(tables, _slow(tables, kept), value, len(calls))


class _Tables:
    """Numbers for what repeats."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.groups: dict[tuple[str, str], int] = {}
        self.signatures: dict[Signature, int] = {}
        self.stacks: dict[tuple[int, ...], int] = {}
        self._frames: dict[Frame, int] = {}
        self._seen: dict[int, int] = {}

    def group(self, pair: Any) -> int:
        if isinstance(pair, list | tuple) and pair:
            key = (str(pair[0]), str(pair[1]) if len(pair) > 1 else "")
        else:
            key = (str(pair), "")
        return self.groups.setdefault(key, len(self.groups))

    def signature(self, name: Any, in_sizes: Any, in_types: Any, out_sizes: Any, out_types: Any) -> int:
        kind, source, target = _kind(str(name))
        types = ",".join(dict.fromkeys(map(str, [*_listed(in_types), *_listed(out_types)])))
        signature = Signature(kind, _elements(in_sizes), _elements(out_sizes), types, source, target)
        return self.signatures.setdefault(signature, len(self.signatures))

    def stack(self, frames: Any) -> int:
        rows = [f for f in _listed(frames) if isinstance(f, dict)]
        numbers = tuple(self._frame(f) for f in rows)
        return self.stacks.setdefault(numbers, len(self.stacks))

    def _frame(self, frame: dict[str, Any]) -> int:
        """Dumps refer to a frame that they have written before: its dict is the same object."""
        number = self._seen.get(id(frame))
        if number is None:
            frame_ = Frame(str(frame.get("name", "")), str(frame.get("filename", "")), _int(frame.get("line")))
            number = self._seen[id(frame)] = self._frames.setdefault(frame_, len(self._frames))
        return number

    def listed_stacks(self) -> list[tuple[Frame, ...]]:
        frames = list(self._frames)
        return [tuple(frames[n] for n in numbers) for numbers in self.stacks]


def _kind(text: str) -> tuple[str, int, int]:
    """`nccl:send 0->1` as what it is, and its two places in the group."""
    name = text.split(":", 1)[-1]
    kind, _, rest = name.partition(" ")
    for arrow in ("->", "<-"):
        left, arrow_found, right = rest.partition(arrow)
        if arrow_found and left.strip().isdigit() and right.strip().isdigit():
            ends = int(left), int(right)
            return (kind, *ends) if arrow == "->" else (kind, ends[1], ends[0])
    return kind, NONE, NONE


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else list(value) if isinstance(value, tuple) else []


def _elements(sizes: Any) -> int:
    """Elements of all tensors of a call."""
    total = 0
    for size in _listed(sizes)[:4096]:
        dims = [d for d in _listed(size)[:64] if isinstance(d, int) and d >= 0]
        total += math.prod(dims) if dims else 0
    return min(total, _MOST_ELEMENTS)


def _int(value: Any) -> int:
    return int(value) if isinstance(value, int) and -(1 << 63) <= value < 1 << 63 else NONE


def _when(value: Any) -> int:
    """A time; JSON writes 0 for none."""
    return _int(value) or NONE


def _state(state: Any, retired: Any, name: Any) -> int:
    """Gloo has no events: a call that it retired is complete, and others run. NCCL retires what it aborted, too."""
    if _hosted(name):
        return COMPLETED if retired is True or state == "completed" else STARTED
    return _STATES.get(state, SCHEDULED) if isinstance(state, str) else SCHEDULED


def _hosted(name: Any) -> bool:
    return str(name).startswith("gloo")


def _p2p(value: Any, name: Any) -> bool:
    return value if isinstance(value, bool) else _kind(str(name))[0] in (SEND, RECV)


def _slow(tables: _Tables, calls: list[dict[str, Any]]) -> dict[str, I64]:
    """Columns of calls that are dicts."""
    columns: dict[str, list[Any]] = {key: [_int(c.get(key)) for c in calls] for key in _NUMBERS}
    columns |= {key: [_when(c.get(key)) for c in calls] for key in _TIMES}
    names = [c.get("profiling_name") for c in calls]
    columns["group"] = [tables.group(c.get("process_group", c.get("pg_id"))) for c in calls]
    columns["signature"] = [tables.signature(*(c.get(key) for key in _SIGNATURE)) for c in calls]
    columns["stack"] = [tables.stack(c.get("frames")) for c in calls]
    columns["state"] = [_state(c.get("state"), c.get("retired"), name) for c, name in zip(calls, names, strict=True)]
    columns["hosted"] = [_hosted(name) for name in names]
    columns["p2p"] = [_p2p(c.get("is_p2p"), name) for c, name in zip(calls, names, strict=True)]
    return {key: np.array(values, np.int64) for key, values in columns.items()}


def _open(calls: Columns) -> npt.NDArray[np.bool_]:
    """Which calls are not complete."""
    number, values = calls.values("state")
    return np.array([value != "completed" for value in values] or [True], np.bool_)[number]


def _fast(tables: _Tables, calls: Columns) -> dict[str, I64]:
    """Columns of calls that are laid out alike: equal bytes are equal values, and decoded once."""
    columns = {key: calls.numbers(key) for key in _NUMBERS}
    for key in _TIMES:
        times = calls.numbers(key)
        columns[key] = np.where(times == 0, NONE, times)
    columns["group"] = calls.numbered(tables.group, ("process_group",), otherwise=("pg_id",))
    columns["signature"] = calls.numbered(tables.signature, _SIGNATURE[:1], _SIGNATURE[1:])
    columns["stack"] = calls.numbered(tables.stack, ("frames",))
    columns["state"] = calls.numbered(_state, ("state",), ("retired",), ("profiling_name",))
    columns["hosted"] = calls.numbered(_hosted, ("profiling_name",))
    columns["p2p"] = calls.numbered(_p2p, ("is_p2p",), ("profiling_name",))
    return columns


def _made(tables: _Tables, columns: dict[str, I64], value: dict[Any, Any], count: int) -> Read:
    late = columns["time_discovered_completed_ns"] - columns["time_created_ns"]
    timeout = columns["timeout_ms"]
    known = (columns["time_discovered_completed_ns"] != NONE) & (timeout > 0) & (timeout < (1 << 40))
    # An abort ends kernels that hang, and they count as complete: after their timeout, which no call outlives.
    aborted = known & (late >= np.where(known, timeout, 0) * _MILLION) & (columns["state"] == COMPLETED)
    columns["state"] = np.where(aborted, STARTED, columns["state"])
    return Read(
        str(value.get("version", "")),
        columns,
        list(tables.groups),
        list(tables.signatures),
        tables.listed_stacks(),
        _members(value.get("pg_config")),
        _status(value.get("pg_status")),
        count,
    )


def _members(config: Any) -> dict[str, Spans]:
    """By group, its ranks: `[0, 1]` as a text or a list."""
    members: dict[str, Spans] = {}
    for name, about in config.items() if isinstance(config, dict) else ():
        ranks = about.get("ranks") if isinstance(about, dict) else None
        spans = spans_of(ranks if isinstance(ranks, str) else tuple(map(str, _listed(ranks))))
        if spans:
            members[str(name)] = spans
    return members


@lru_cache(4096)
def spans_of(ranks: str | tuple[str, ...]) -> Spans:
    """Ranks that are listed, as spans. Every dump lists the whole default group: it is read once in each process."""
    words = ranks.strip("[] ").replace(",", " ").split() if isinstance(ranks, str) else ranks
    numbers = np.array([int(word) for word in words if word.isdigit() and len(word) < 10], np.int64)
    if not len(numbers):
        return ()
    steps = np.diff(numbers, append=0)
    # A span ends where the distance to the next rank changes.
    ends = np.append(np.flatnonzero(np.diff(steps[:-1])) + 1, len(numbers) - 1)
    spans: list[tuple[int, int, int]] = []
    at = 0
    for end in ends.tolist():
        if end >= at:
            spans.append((int(numbers[at]), int(steps[at]) if end > at else 0, end - at + 1))
            at = end + 1
    return tuple(spans)


def size_of(spans: Spans) -> int:
    """How many ranks they have."""
    return sum(count for _, _, count in spans)


@lru_cache(4096)
def ranks_of(spans: Spans) -> tuple[int, ...]:
    """The ranks of spans, one object for equal ones."""
    return tuple(first + step * n for first, step, count in spans for n in range(count))


def _status(status: Any) -> dict[str, tuple[int, int, int]]:
    keys = ("last_enqueued_collective", "last_started_collective", "last_completed_collective")
    by_group: dict[str, tuple[int, int, int]] = {}
    for name, about in status.items() if isinstance(status, dict) else ():
        if isinstance(about, dict):
            enqueued, started, completed = (_number(about.get(key)) for key in keys)
            by_group[str(name)] = (enqueued, started, completed)
    return by_group


def _number(value: Any) -> int:
    if isinstance(value, str) and value.lstrip("-").isdigit() and len(value) < 20:
        return int(value)
    return _int(value)
