"""Chrome trace events as text, fast: one `%` template per kind of event, mapped over columns.

A million calls of `json.dumps` take longer than the simulation; here only distinct names are encoded as JSON.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
import numpy.typing as npt

from stepscope.simulate.trace.trace import I64

_CHUNK = 1 << 14
_THREE_DIGITS = np.array([f"{i:03d}" for i in range(1000)], dtype=object)

Column = npt.NDArray[np.generic] | Sequence[object]


class EventList:
    """The members of `traceEvents`, written as they come."""

    def __init__(self, out: BinaryIO, base_ns: int, epoch_ns: int) -> None:
        self._out = out
        self._shift = epoch_ns - base_ns
        self._first = True

    def add(self, template: str, *columns: Column) -> None:
        """One event per row: the template filled with the row's values."""
        for low in range(0, len(columns[0]), _CHUNK):
            parts = [_listed(c[low : low + _CHUNK]) for c in columns]
            self._write(",\n".join(map(template.__mod__, zip(*parts, strict=True))))

    def add_objects(self, events: Sequence[dict[str, object]]) -> None:
        """A few events given as objects, in which ts is nanoseconds of the trace and dur nanoseconds."""
        for event in events:
            times = {key: event[key] for key in ("ts", "dur") if key in event}
            text = json.dumps({key: value for key, value in event.items() if key not in times})
            fields = [f'"{key}": {self._decimal(key, cast(int, value))}' for key, value in times.items()]
            self._write(f"{text[:-1]}, {', '.join(fields)}}}")

    def stamp(self, when: I64) -> tuple[Column, Column]:
        """Microseconds since the base: whole part and three decimals, for `%d.%s`."""
        return self.span(when + self._shift)

    @staticmethod
    def span(duration: I64) -> tuple[Column, Column]:
        """Microseconds: whole part and three decimals, for `%d.%s`. Exact: every nanosecond can be read back."""
        whole = duration // 1000
        return whole, _THREE_DIGITS[duration - whole * 1000]

    def _decimal(self, key: str, value: int) -> str:
        whole, rest = divmod(value + self._shift if key == "ts" else value, 1000)
        return f"{whole}.{rest:03d}"

    def _write(self, text: str) -> None:
        self._out.write((text if self._first else ",\n" + text).encode())
        self._first = False


def _listed(values: Column) -> Sequence[object]:
    if isinstance(values, np.ndarray):
        listed: list[object] = values.tolist()
        return listed
    return values


def encoded(names: list[str], used: npt.NDArray[np.integer]) -> npt.NDArray[np.object_]:
    """The names in `used` as JSON strings, by index."""
    table = np.full(int(used.max(initial=-1)) + 1, None, dtype=object)
    for i in used.tolist():
        table[i] = json.dumps(names[i])
    return table


@contextmanager
def packing(path: Path) -> Iterator[BinaryIO]:
    """The file to write to; gzip where the name ends so, with no time inside."""
    with path.open("wb") as raw:
        if path.suffix == ".gz":
            # Level 1: three times faster than the default, and the events repeat enough to shrink well anyway.
            with gzip.GzipFile(filename="", mode="wb", fileobj=raw, compresslevel=1, mtime=0) as packed:
                yield cast(BinaryIO, packed)
        else:
            yield raw
