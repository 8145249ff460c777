"""JSON text to events: strict and fast first, lenient where a field has an unexpected type."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, get_args

import msgspec
from msgspec import Raw

from stepscope.sources.kineto import tagged
from stepscope.sources.kineto.events import Args, Event, Sample, Times


class Truncated(Exception):
    """The text ends inside a value: it was cut at the wrong place, or the file was."""


class Trailing(Exception):
    """The array ended at `end` (just behind its bracket), and the text goes on."""

    def __init__(self, end: int) -> None:
        super().__init__(end)
        self.end = end


class Malformed(Exception):
    """Not JSON, from `position` of the text on."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(reason)
        self.position = position
        self.reason = reason


_EVENTS = msgspec.json.Decoder(list[Event])
_TIMES = msgspec.json.Decoder(list[Times])
_DECIMALS = msgspec.json.Decoder(list[Any], float_hook=Decimal)
_SAMPLES = msgspec.json.Decoder(list[Sample])
_POSITION = re.compile(r"^JSON is malformed: (.*) \(byte (\d+)\)$")


class EventDecoder:
    """Decodes chunk after chunk of one file, by category as long as its chunks allow it."""

    #: A file whose chunks did not allow it so often, one after the other, is not tried again: it is of another kind.
    _PATIENCE = 3

    def __init__(self) -> None:
        self._misses = 0

    def decode(self, text: bytes) -> list[Event]:
        """As `decode_events`; events may be of the types of `tagged.KINDS` instead, all of a chunk or none."""
        if self._misses < self._PATIENCE:
            try:
                events: list[Event] = tagged.DECODER.decode(text)
                self._misses = 0
                return events
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):  # the general decoder tells what it is
                self._misses += 1
        return decode_events(text)


def decode_events(text: bytes) -> list[Event]:
    """The events of a JSON array. Fields of an unexpected type become None, other elements are skipped."""
    try:
        events: list[Event] = _guarded(_EVENTS.decode, text)
        return events
    except msgspec.ValidationError:
        return [_lenient(item) for item in decode_any(text) if isinstance(item, dict)]


def decode_any(text: bytes) -> Any:
    return _guarded(msgspec.json.decode, text)


def decode_times(text: bytes) -> list[tuple[Any, Any]]:
    """`ts` and `dur` of the same events, as decimals or texts."""
    try:
        return [(t.ts, t.dur) for t in _guarded(_TIMES.decode, text)]
    except msgspec.ValidationError:
        items = _guarded(_DECIMALS.decode, text)
        return [(item.get("ts"), item.get("dur")) for item in items if isinstance(item, dict)]


def decode_samples(text: bytes) -> list[Sample]:
    """The same events with whatever `args` they have: for chunks with counters in them."""
    try:
        samples: list[Sample] = _guarded(_SAMPLES.decode, text)
        return samples
    except msgspec.ValidationError:
        return [
            Sample(_text(i.get("ph")), _text(i.get("name")), a if isinstance(a := i.get("args"), dict) else None)
            for i in decode_any(text)
            if isinstance(i, dict)
        ]


def _guarded(decode: Callable[[bytes], Any], text: bytes) -> Any:
    """`decode(text)`, its failures told apart; a ValidationError (valid so far, other types) passes."""
    try:
        return decode(text)
    except RecursionError:
        raise Malformed(0, "values nested too deeply") from None
    except msgspec.ValidationError as error:
        if "out of range" in str(error):  # no type would do: a number that no float holds
            raise Malformed(0, "a number out of range") from error
        raise
    except UnicodeDecodeError as error:
        raise Malformed(error.start, "invalid UTF-8") from error
    except msgspec.DecodeError as error:
        match = _POSITION.match(str(error))
        if match is None:
            if "truncated" in str(error):
                raise Truncated from error
            raise Malformed(0, str(error)) from error
        reason, position = match[1], int(match[2])
        if reason == "trailing characters":
            # msgspec counts the first trailing character as consumed.
            raise Trailing(len(text[: position - 1].rstrip())) from error
        raise Malformed(position, reason) from error


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


def _number(value: Any) -> float:
    try:
        return math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def _integer(value: Any) -> int | None:
    number = _number(value)
    return int(number) if math.isfinite(number) else None


def _lenient(item: dict[str, Any]) -> Event:
    args = item.get("args")
    return Event(
        ph=_text(item.get("ph")),
        cat=_text(item.get("cat")),
        name=_text(item.get("name")),
        ts=_number(item.get("ts")),
        dur=_number(item.get("dur")),
        pid=item.get("pid"),
        tid=item.get("tid"),
        args=_lenient_args(args) if isinstance(args, dict) else None,
    )


def _lenient_args(raw: dict[str, Any]) -> Args:
    args = Args()
    for attribute, name, kind in _ARG_FIELDS:
        value = raw.get(name)
        if value is None:
            continue
        if kind is int:
            value = value if isinstance(value, int) else _integer(value)
        elif kind is float:
            value = _number(value)
        elif kind is str:
            value = _text(value)
        elif kind is bool:
            value = bool(value)
        elif kind is Raw:
            value = Raw(msgspec.json.encode(value))
        elif kind is list:
            value = [v for v in value if isinstance(v, int)] if isinstance(value, list) else None
        setattr(args, attribute, value)
    return args


def _kind(annotation: Any) -> Any:
    """The plain type behind `int | None`, `list[int] | None` and the like."""
    inner = [a for a in get_args(annotation) if a is not type(None)]
    kind = inner[0] if inner else annotation
    return getattr(kind, "__origin__", kind)


_ARG_FIELDS = [(f.name, f.encode_name, _kind(f.type)) for f in msgspec.structs.fields(Args)]
