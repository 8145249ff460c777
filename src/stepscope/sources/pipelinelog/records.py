"""The form of a log of pipeline timestamps: one JSON object per line.

    {"unit": "ms", "queue_depth_in": 2, "queue_depth_out": 1}          defaults for the lines below it
    {"k": 7, "rank": 0, "tA0": 81.2, "tA1": 83.0, "tSend": 83.1}       any of the fields, in any number of lines
    {"k": 7, "rank": 4, "role": "leader", "tB0_us": 83150, "tB1_us": 85920}
    {"block": "attention", "ms": 1.25, "synchronized": true, "k": 7}   a block timer: ns, us, ms or s
    {"block": "mlp", "ms": 3, "resolution": "720p", "config": "bf16"}  and what it was timed under

The times of a chunk `k` are tA0, tA1, tSend, tRecv, tDecode, tEmit of one process and tB0, tB1 of one process. Their
unit is the suffix (`_ns`, `_us`, `_ms`, `_s`), else `unit` of the line or of an earlier line without `k`; there is no
default. The process is `rank`; without it `role` (`leader` for the second stage's); without either, the times of the
first stage are rank 0's, and those of the second stage the leader's. `tokens` are those of the chunk, or of every chunk
below a line without `k`; `queue_depth` is that of both queues; `resolution` and `config` are those of a timer, or of
every timer below a line without `k`. Other fields are ignored.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from stepscope.errors import BadInput
from stepscope.model.fields import MOST_RANKS
from stepscope.model.note import Note, noted

FIRST = ("tA0", "tA1", "tSend", "tRecv", "tDecode", "tEmit")
SECOND = ("tB0", "tB1")
LEADER = "leader"

#: Nanoseconds of 146 years: sums of two fit 64 bits.
_FARTHEST = 1 << 62
_SCALE = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_UNITS = "ns, us, ms or s"
#: The field that says how deep a queue is → which queues.
_DEPTHS = {"queue_depth": ("in", "out"), "queue_depth_in": ("in",), "queue_depth_out": ("out",)}
#: Fields that hold for the lines below, where a line is of no chunk.
_DEFAULTS = ("unit", "rank", "role", "tokens", "resolution", "config", "configuration")
#: What a block was timed under.
_UNDER = ("resolution", "config", "configuration")
_FIELDS = {
    f"{name}{suffix}": (name, suffix[1:]) for name in (*FIRST, *SECOND) for suffix in ("", "_ns", "_us", "_ms", "_s")
}

Process = int | str


@dataclass
class Timer:
    """One run of a block."""

    process: Process
    block: str
    k: int | None
    dur_ns: int
    synchronized: bool
    under: str | None = None


@dataclass
class Log:
    """What a log says: times by (process, k, field), timers in order."""

    stamps: dict[tuple[Process, int, str], int] = field(default_factory=dict)
    timers: list[Timer] = field(default_factory=list)
    #: by `in` and `out` of the second stage
    depths: dict[str, int] = field(default_factory=dict)
    tokens: dict[int, int] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)


def parse(lines: Iterable[str], name: str) -> Log:
    """The log that `lines` hold; `name` is the file's, for errors."""
    log = Log()
    defaults: dict[str, Any] = {}
    broken: tuple[int, str] | None = None
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text:
            continue
        if broken is not None:
            raise BadInput(f"{name}:{broken[0]}: {broken[1]}", "write one JSON object per line")
        try:
            record = json.loads(text, parse_float=Decimal)
        except RecursionError:
            raise BadInput(f"{name}:{number}: values nested too deeply", "write one JSON object per line") from None
        except ValueError:
            broken = number, "not JSON"
            continue
        if not isinstance(record, dict):
            raise BadInput(f"{name}:{number}: not an object", "write one JSON object per line")
        _add(log, {**defaults, **record}, f"{name}:{number}")
        _add_tokens(log, record, defaults, f"{name}:{number}")
        if "k" not in record and "block" not in record:
            defaults |= {key: record[key] for key in _DEFAULTS if key in record}
    if broken is not None:
        log.notes.append(noted("file-cut-short/last-line", why=broken[0]))
    return log


def _add(log: Log, record: dict[str, Any], where: str) -> None:
    for key, queues in _DEPTHS.items():
        if record.get(key) is not None:
            _add_depth(log, _integer(record[key], key, where), key, queues, where)
    k = _integer(record["k"], "k", where) if record.get("k") is not None else None
    process = _process(record, where)
    if record.get("block") is not None:
        log.timers.append(_timer(record, k, 0 if process is None else process, where))
    given = {key: value for key, value in record.items() if key in _FIELDS and value is not None}
    if given and k is None:
        raise BadInput(f"{where}: {next(iter(given))} without k", "say which chunk a time belongs to: add k")
    for key, value in given.items():
        stamp, unit = _FIELDS[key]
        who: Process = process if process is not None else (LEADER if stamp in SECOND else 0)
        assert k is not None
        if (who, k, stamp) in log.stamps:
            raise BadInput(f"{where}: {stamp} of chunk {k} again", "write each time once; one log per run")
        log.stamps[who, k, stamp] = _ns(value, unit or record.get("unit"), key, where)


def _add_depth(log: Log, depth: int, key: str, queues: tuple[str, ...], where: str) -> None:
    for queue in queues:
        if log.depths.setdefault(queue, depth) != depth:
            raise BadInput(f"{where}: {key} {depth} after {log.depths[queue]}", "write one log per run")


def _add_tokens(log: Log, record: dict[str, Any], defaults: dict[str, Any], where: str) -> None:
    """What a line of a chunk says itself goes before the default."""
    if record.get("k") is None or not any(key in _FIELDS for key in record):
        return
    k = int(record["k"])
    if record.get("tokens") is not None:
        log.tokens[k] = _integer(record["tokens"], "tokens", where)
    elif defaults.get("tokens") is not None:
        log.tokens.setdefault(k, _integer(defaults["tokens"], "tokens", where))


def _process(record: dict[str, Any], where: str) -> Process | None:
    if record.get("rank") is not None:
        return _integer(record["rank"], "rank", where, MOST_RANKS)
    role = record.get("role")
    return plain_text(role) if role is not None else None


def plain_text(value: Any) -> str:
    """As UTF-8 can hold it: JSON escapes may give half of a character."""
    return str(value).encode("utf-8", "replace").decode()


def _timer(record: dict[str, Any], k: int | None, process: Process, where: str) -> Timer:
    units = [unit for unit in _SCALE if record.get(unit) is not None]
    if len(units) != 1:
        raise BadInput(f"{where}: block {_shown(record['block'])} needs one duration", f"give it {_UNITS}")
    ns = _ns(record[units[0]], units[0], units[0], where)
    if ns < 0:
        raise BadInput(f"{where}: block {_shown(record['block'])} took {ns} ns", "a duration is not negative")
    under = ", ".join(f"{key} {plain_text(record[key])}" for key in _UNDER if record.get(key) is not None)
    return Timer(process, plain_text(record["block"]), k, ns, bool(record.get("synchronized", False)), under or None)


def _ns(value: Any, unit: object, key: str, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise BadInput(f"{where}: {key} is {_shown(value)}, not a number", "write times as numbers")
    if not isinstance(unit, str) or unit not in _SCALE:
        what = f"unit {_shown(unit)} of {key}" if unit is not None else f"{key} has no unit"
        raise BadInput(f"{where}: {what}", f'write {key}_ms, or "unit": {_UNITS}')
    number = Decimal(value)
    # First the number of digits: the product of too many is an error of its own.
    ns = int((number * _SCALE[unit]).to_integral_value()) if number.adjusted() < 20 else _FARTHEST
    if abs(ns) >= _FARTHEST:
        raise BadInput(f"{where}: {key} is {_shown(value)} {unit}: over 146 years", "write times as they are measured")
    return ns


def _integer(value: Any, key: str, where: str, most: int = 1 << 62) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadInput(f"{where}: {key} is {_shown(value)}, not a whole number", "write it as a number")
    if not 0 <= value <= most:
        raise BadInput(f"{where}: {key} is {_shown(value)}, not between 0 and {most}", "count from 0")
    return value


def _shown(value: Any) -> str:
    try:
        text = repr(value) if not isinstance(value, Decimal) else str(value)
    except ValueError:  # too many digits
        text = "a huge number"
    return text if len(text) <= 60 else text[:57] + "..."
