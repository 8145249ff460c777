"""A trace in chunks: the metadata before the events, the events some megabytes at a time, the metadata behind them.

Where one event ends and the next begins is guessed by `}`, comma, `{` and proved by decoding: a cut inside a string or
a nested array leaves a value open, so what decodes was cut in the right place, and what does not is cut again
farther on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from stepscope.errors import BadInput
from stepscope.sources.kineto.bytestream import Stream
from stepscope.sources.kineto.decoding import EventDecoder, Malformed, Trailing, Truncated, decode_any
from stepscope.sources.kineto.events import Event
from stepscope.sources.kineto.repair import repaired

#: Small enough that the events of a chunk stay in the processor's cache: 16 MB costs half as much again.
CHUNK_BYTES = 2 << 20
#: An event, or the metadata, is smaller: a megabyte of gzip can hold gigabytes of one string.
_MOST_BYTES = 256 << 20
_SPACE = b" \t\r\n"
_ARRAY = re.compile(rb'"traceEvents"\s*:\s*\[')
#: Longest text of `_ARRAY` that may straddle two reads (white space beyond this is not JSON anybody writes).
_ARRAY_LENGTH = 64
_BROKEN = "the profiler was interrupted, or two of them wrote to the same file: record it again"
_CUT_OFF = "the profiler was probably stopped while writing: record it again, and let the program end by itself"


class EventChunks:
    """Iterate once for (events, their JSON array); then `metadata` is complete."""

    def __init__(self, stream: Stream, chunk_bytes: int = CHUNK_BYTES) -> None:
        self.metadata: dict[str, Any] = {}
        self.mended = False
        self.unclosed = False
        self._decoder = EventDecoder()
        self._stream = stream
        self._size = chunk_bytes
        self._parts: list[bytes] = []  # what was read and not decoded, as it was read: a chunk is copied once
        self._offset = 0  # of the first of those bytes in the (decompressed) file
        self._ended = False
        self._bare = False

    def __iter__(self) -> Iterator[tuple[list[Event], bytes]]:
        self._open_array()
        need = self._size
        while True:
            self._fill(need)
            cut = None if self._ended else self._boundary()
            if cut is None and not self._ended:
                need = 2 * self._length
                continue
            *whole, last = self._parts or [b""]
            text = b"".join((b"[", *whole, memoryview(last)[:cut], b"]"))
            try:
                events, text = self._decode(text)
            except Trailing as trailing:
                text, end = self._text, trailing.end
                yield self._decode(text[:end])
                self._close(text[end:-1] + (last[cut:] if cut is not None else b""), end - 1)
                return
            except Truncated:
                if self._ended:
                    raise self._bad("it ends in the middle of an event", self._length, _CUT_OFF) from None
                need = 2 * self._length
                continue
            yield events, text
            if cut is None:
                if not self._bare:
                    raise self._bad("it ends before the list of events does", self._length, _CUT_OFF)
                self.unclosed = True
                return
            self._consume(sum(map(len, whole)) + cut + 1, last[cut + 1 :])
            need = self._size

    def _decode(self, text: bytes) -> tuple[list[Event], bytes]:
        """The events, and the text that gave them: mended where it had to be."""
        self._text = text
        try:
            return self._decoder.decode(text), text
        except Malformed as flaw:
            self._text = repaired(text)
            if self._text == text:
                raise self._bad(flaw.reason, flaw.position - 1, _BROKEN) from flaw
            self.mended = True
            try:
                return self._decoder.decode(self._text), self._text
            except Malformed as still:
                raise self._bad(still.reason, flaw.position - 1, _BROKEN) from still

    def _open_array(self) -> None:
        """Read up to the first event."""
        self._fill(1)
        start = self._joined().lstrip(b"\xef\xbb\xbf").lstrip(_SPACE)
        self._consume(self._length - len(start), start)
        if start[:1] == b"[":
            self._bare = True
            self._consume(1, start[1:])
            return
        if start[:1] != b"{":
            raise self._bad("it is not JSON", 0, "a torch.profiler trace begins with `{` or `[`")
        search = 0
        while True:
            text = self._joined()
            for found in _ARRAY.finditer(text, search):
                header = self._object(text[: found.start()] + b'"traceEvents":null}')
                if header is not None:
                    self.metadata.update(header)
                    self._consume(found.end(), text[found.end() :])
                    return
            if self._ended:
                break
            search = max(0, len(text) - _ARRAY_LENGTH)
            self._fill(2 * len(text))
        if self._object(text) is None:
            raise self._bad("it ends in the middle", len(text), _CUT_OFF)
        raise BadInput(f"{self._stream.path}: JSON without a `traceEvents` list", "is it a torch.profiler trace?")

    def _object(self, text: bytes, shift: int = 0) -> dict[str, Any] | None:
        """The JSON object, or None where it is cut off; `shift` is where the buffer begins within the text."""
        try:
            value = decode_any(text)
        except Truncated:
            return None
        except Trailing as trailing:
            raise self._bad("it has characters after its end", trailing.end - shift, _BROKEN) from None
        except Malformed as flaw:
            try:
                value = decode_any(repaired(text))
            except Truncated:
                return None
            except (Malformed, Trailing):
                raise self._bad(flaw.reason, flaw.position - shift, _BROKEN) from flaw
            self.mended = True
        return value if isinstance(value, dict) else {}

    def _close(self, tail: bytes, offset: int) -> None:
        """Read what follows the array, which ended `offset` bytes into the buffer."""
        self._consume(offset, tail)
        while not self._ended:
            self._fill(2 * self._length + self._size)
        text = self._joined()
        if self._bare:
            if rest := text.lstrip(_SPACE):
                raise self._bad("it has characters after its end", len(text) - len(rest), _BROKEN)
            return
        prefix = b'{"traceEvents":null'
        trailer = self._object(prefix + text, len(prefix))
        if trailer is None:
            raise self._bad("it ends before its closing brace", len(text), _CUT_OFF)
        self.metadata.update(trailer)

    @property
    def _length(self) -> int:
        return sum(map(len, self._parts))

    def _joined(self) -> bytes:
        """All that was read and not decoded, as one text."""
        if len(self._parts) != 1:
            self._parts = [b"".join(self._parts)]
        return self._parts[0]

    def _boundary(self) -> int | None:
        """Where the last part is cut; where it holds no boundary of its own, it is all that was read."""
        cut = _last_boundary(self._parts[-1])
        return _last_boundary(self._joined()) if cut is None and len(self._parts) > 1 else cut

    def _fill(self, size: int) -> None:
        """Have at least `size` bytes, or note that the file has ended."""
        if self._length > max(_MOST_BYTES, 8 * self._size) and not self._ended:
            raise self._bad(f"it has no end of an event or of its metadata in {self._length >> 20} MB", 0, _BROKEN)
        while (missing := size - self._length) > 0 and not self._ended:
            block = self._stream.read(max(missing, self._size))
            self._ended = not block
            self._parts.append(block)

    def _consume(self, count: int, rest: bytes) -> None:
        """Leave `count` bytes behind; `rest` is what follows them."""
        self._parts = [rest]
        self._offset += count

    def _bad(self, reason: str, position: int, hint: str) -> BadInput:
        where = self._offset + max(0, position)
        return BadInput(f"{self._stream.path}: not a valid JSON trace: {reason} at byte {where}", hint)


def _last_boundary(text: bytes) -> int | None:
    """Index of the comma of the last `}` , `{` in the text."""
    brace = len(text)
    while (brace := text.rfind(b"{", 0, brace)) > 0:
        comma = _skip_space(text, brace)
        if comma > 0 and text[comma - 1] == 0x2C:
            close = _skip_space(text, comma - 1)
            if close > 0 and text[close - 1] == 0x7D:
                return comma - 1
    return None


def _skip_space(text: bytes, end: int) -> int:
    """End of the text before `end` without its trailing white space."""
    while end > 0 and text[end - 1] in _SPACE:
        end -= 1
    return end
