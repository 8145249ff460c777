"""The form of a log of pipeline timestamps: one JSON object per line.

    {"unit": "ms", "queue_depth": 2}                                   defaults for the lines below it
    {"k": 7, "rank": 0, "tA0": 81.2, "tA1": 83.0, "tSend": 83.1}       any of the fields, in any number of lines
    {"k": 7, "rank": 4, "role": "leader", "tB0_us": 83150, "tB1_us": 85920}
    {"block": "attention", "ms": 1.25, "synchronized": true, "k": 7}   a block timer: ns, us, ms or s

The times of a chunk `k` are tA0, tA1, tSend, tRecv, tDecode, tEmit of one process and tB0, tB1 of one process. Their
unit is the suffix (`_ns`, `_us`, `_ms`, `_s`), else `unit` of the line or of an earlier line without `k`; there is no
default. The process is `rank`; without it `role` (`leader` for the second stage's); without either, the times of the
first stage are rank 0's, and those of the second stage the leader's. Other fields are ignored.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from stepscope.errors import BadInput
from stepscope.model.note import Note
from stepscope.model.schema import MOST_RANKS

FIRST = ("tA0", "tA1", "tSend", "tRecv", "tDecode", "tEmit")
SECOND = ("tB0", "tB1")
LEADER = "leader"

#: Nanoseconds of 146 years: sums of two fit 64 bits.
_FARTHEST = 1 << 62
_SCALE = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_UNITS = "ns, us, ms or s"
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


@dataclass
class Log:
    """What a log says: times by (process, k, field), timers in order."""

    stamps: dict[tuple[Process, int, str], int] = field(default_factory=dict)
    timers: list[Timer] = field(default_factory=list)
    queue_depth: int | None = None
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
        if "k" not in record and "block" not in record:
            defaults |= {key: record[key] for key in ("unit", "rank", "role") if key in record}
    if broken is not None:
        log.notes.append(
            Note(
                "file-cut-short", f"the last line ({broken[0]}) is cut off: left out", severity="loss", origin="import"
            )
        )
    return log


def _add(log: Log, record: dict[str, Any], where: str) -> None:
    if record.get("queue_depth") is not None:
        depth = _integer(record["queue_depth"], "queue_depth", where)
        if log.queue_depth not in (None, depth):
            raise BadInput(f"{where}: queue_depth {depth} after {log.queue_depth}", "write one log per run")
        log.queue_depth = depth
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
    return Timer(process, plain_text(record["block"]), k, ns, bool(record.get("synchronized", False)))


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
