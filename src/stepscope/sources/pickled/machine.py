"""A reader of pickles that runs nothing: it knows lists, dicts, tuples, texts and numbers, and refuses all else.

Python's own unpickler calls whatever a pickle names, and builds all of it in memory. This one is a loop over opcodes
that has no opcode for a class, a function or an object, so that there is nothing to call. And it hands the items of a
list to a `Sink` as soon as a batch of them is complete (pickle writes lists by the thousand): what the sink takes is
forgotten, and a snapshot of any size needs the memory of its distinct stacks and texts, eight bytes for each entry of
the pickle's memo, and the columns that the sink makes.

What is open at one time is bounded, too: nesting, the size of a batch, lists and dicts that the sink did not take, and
distinct texts. Nothing that PyTorch writes comes near the bounds.

A sink that knows what follows a dict it took may read on by itself (`Sink.skip`).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import Any

from stepscope.errors import BadInput
from stepscope.sources.pickled.refusals import Kind
from stepscope.sources.pickled.values import EMPTY, GONE, Fields, Items, Sink, TooMuch

#: Bytes read at a time.
_BUFFER = 1 << 22
#: No opcode but a text needs more of the buffer than this; a list of stack frames is read in one go up to this size.
_NEAR = 1 << 16
#: Marks open at once: how deep batches nest. A snapshot has eight.
_DEEPEST = 64
#: Values above the last mark: pickle writes batches of 1,000 items, or 1,000 pairs.
_BATCH = 4096
#: Lists and dicts that are kept because the sink did not take them.
_KEPT = 1 << 18
_TEXTS = 1 << 22
_TEXT_BYTES = 1 << 24
#: Indices of the memo that a pickle may skip.
_SKIPPED = 1024
#: What is memoized takes more than so many bytes of a pickle; the first million may take less.
_PER_ENTRY = 8
#: Lists of seen things that are remembered by their bytes: a cache.
_LISTS = 1 << 18

#: `] MEMOIZE ( GET GET … e`: a list of things that were seen before. Stacks are nearly always that.
_SEEN_LIST = re.compile(rb"\x94\(((?>(?:h.|j....)+))e", re.DOTALL)
_SEEN_ITEM = re.compile(rb"h(.)|j(....)", re.DOTALL)


class Machine:
    """Runs one pickle: one that is read bit by bit, or one whose bytes are at hand."""

    def __init__(
        self,
        name: str,
        kind: Kind,
        read: Callable[[int], bytes] | bytes,
        sink: Sink,
        report: Callable[[int], None] = lambda done: None,
        memo: list[Any] | None = None,
    ) -> None:
        self._name, self._kind, self._sink, self._report = name, kind, sink, report
        self._read = _nothing if isinstance(read, bytes) else read
        self._memo: list[Any] = memo if memo is not None else []
        self._kept = self._texts = self._text_bytes = 0
        self._lists: dict[bytes, object] = {}
        self._buffer, self._passed = (read if isinstance(read, bytes) else b""), 0
        self._ended = isinstance(read, bytes)

    def run(self) -> Any:
        """The value of the pickle."""
        try:
            return self._run()
        except TooMuch as error:
            raise self._bad(str(error)) from None
        except (IndexError, struct.error):
            raise self._bad("is cut short, or not a whole pickle") from None
        except (
            TypeError,
            AttributeError,
            ValueError,
            KeyError,
            RecursionError,
        ) as error:  # an operand of another kind than expected
            raise self._bad(f"is not a valid pickle ({type(error).__name__})") from None

    def _bad(self, what: str) -> BadInput:
        return self._kind.bad(self._name, what)

    def _more(self, at: int) -> None:
        """The buffer without what lies before `at`, and with what follows."""
        self._passed += at
        self._report(self._passed)
        more = self._read(_BUFFER)
        self._buffer, self._ended = self._buffer[at:] + more, not more
        if len(self._memo) > _TEXTS + self._passed // _PER_ENTRY:
            raise self._bad("numbers more values than it can hold")

    def _near(self) -> int:
        """From here on the buffer may not hold a whole opcode."""
        return len(self._buffer) - (0 if self._ended else _NEAR)

    def _run(self) -> Any:
        stack: list[Any] = []
        marks: list[int] = []
        memo, lists = self._memo, self._lists
        from_bytes = int.from_bytes
        seen_list = _SEEN_LIST.match
        skip = self._sink.skip
        if not self._ended:
            self._more(0)
        buffer, at, near = self._buffer, 0, self._near()
        push = stack.append
        while True:
            if at > near:
                self._more(at)
                buffer, at, near = self._buffer, 0, self._near()
                if len(stack) - (marks[-1] if marks else 0) > _BATCH:
                    raise self._bad(f"has over {_BATCH} values open at once: nested too deeply")
            code = buffer[at]
            at += 1
            if code == 0x68:  # BINGET
                value = memo[buffer[at]]
                at += 1
                if value is GONE:
                    raise self._bad("refers to an event a second time")
                push(value)
            elif code == 0x6A:  # LONG_BINGET
                value = memo[from_bytes(buffer[at : at + 4], "little")]
                at += 4
                if value is GONE:
                    raise self._bad("refers to an event a second time")
                push(value)
            elif code == 0x94:  # MEMOIZE
                self._memoize(stack[-1], len(memo))
            elif code == 0x8A:  # LONG1
                size = buffer[at]
                if size > 8:
                    push(self._unsigned(buffer[at + 1 : at + 1 + size]))
                else:
                    push(from_bytes(_whole(buffer, at + 1, size), "little", signed=True))
                at += 1 + size
            elif code == 0x4B:  # BININT1
                push(buffer[at])
                at += 1
            elif code == 0x8C:  # SHORT_BINUNICODE
                size = buffer[at]
                push(str(_whole(buffer, at + 1, size), "utf-8", "replace"))
                at += 1 + size
            elif code == 0x28:  # MARK
                marks.append(len(stack))
                if len(marks) > _DEEPEST:
                    raise self._bad(f"is nested more than {_DEEPEST} deep")
            elif code == 0x75:  # SETITEMS
                first = marks.pop()
                target = stack[first - 1]
                target.update(zip(stack[first::2], stack[first + 1 :: 2], strict=True))
                del stack[first:]
                if self._complete(stack, target) and skip is not None:
                    at = skip(buffer, at)
            elif code == 0x5D:  # EMPTY_LIST
                seen = seen_list(buffer, at)
                if seen is not None:
                    known = lists.get(seen[1])
                    if known is None:
                        known = self._seen(seen[1])
                    if known is not None:
                        push(known)
                        memo.append(known)
                        at = seen.end()
                        continue
                self._keep(stack, marks)
                push(Items())
            elif code == 0x7D:  # EMPTY_DICT
                self._keep(stack, marks)
                push(Fields())
            elif code == 0x65:  # APPENDS
                first = marks.pop()
                batch = stack[first:]
                del stack[first:]
                self._append(stack, batch)
            elif code == 0x61:  # APPEND
                self._append(stack, [stack.pop()])
            elif code == 0x4D:  # BININT2
                push(from_bytes(buffer[at : at + 2], "little"))
                at += 2
            elif code == 0x4A:  # BININT
                push(from_bytes(buffer[at : at + 4], "little", signed=True))
                at += 4
            elif code == 0x95:  # FRAME
                at += 8
            elif code == 0x58 or code == 0x8D:  # BINUNICODE, BINUNICODE8
                width = 4 if code == 0x58 else 8
                size = from_bytes(buffer[at : at + width], "little")
                at += width
                if size > _TEXT_BYTES:
                    raise self._bad(f"has a text of {size} bytes")
                while len(buffer) - at < size:
                    if self._ended:
                        raise IndexError
                    self._more(at)
                    buffer, at, near = self._buffer, 0, self._near()
                push(str(buffer[at : at + size], "utf-8", "replace"))
                at += size
            elif code == 0x73:  # SETITEM
                value, key = stack.pop(), stack.pop()
                stack[-1][key] = value
                self._complete(stack, stack[-1])
            elif code == 0x71 or code == 0x72:  # BINPUT, LONG_BINPUT
                width = 1 if code == 0x71 else 4
                self._memoize(stack[-1], from_bytes(buffer[at : at + width], "little"))
                at += width
            elif code == 0x4E:  # NONE
                push(None)
            elif code == 0x88 or code == 0x89:  # NEWTRUE, NEWFALSE
                push(code == 0x88)
            elif code == 0x47:  # BINFLOAT
                push(struct.unpack(">d", buffer[at : at + 8])[0])
                at += 8
            elif code == 0x29:  # EMPTY_TUPLE
                push(())
            elif 0x85 <= code <= 0x87:  # TUPLE1, TUPLE2, TUPLE3
                count = code - 0x84
                stack[-count:] = [_plain(stack[-count:])]
            elif code == 0x74:  # TUPLE
                first = marks.pop()
                stack[first:] = [_plain(stack[first:])]
            elif code == 0x80:  # PROTO
                at += 1
            elif code == 0x2E:  # STOP
                if marks or len(stack) != 1:
                    raise IndexError
                return stack.pop()
            else:
                raise self._kind.refused(self._name, code, self._passed + at - 1)

    def _memoize(self, value: Any, at: int) -> None:
        memo = self._memo
        if at == len(memo):
            memo.append(value)
        elif len(memo) < at <= len(memo) + _SKIPPED:
            memo.extend([GONE] * (at - len(memo)))
            memo.append(value)
        else:
            raise self._bad("numbers its memo out of order")
        kind = type(value)
        if kind is Fields or kind is Items:
            value.at = at
        elif kind is str:
            self._texts += 1
            self._text_bytes += len(value)
            if self._texts > _TEXTS or self._text_bytes > _TEXT_BYTES << 4:
                raise self._bad(f"has over {_TEXTS} different texts, or over {_TEXT_BYTES << 4} bytes of them")

    def _keep(self, stack: list[Any], marks: list[int]) -> None:
        """One more list or dict is open."""
        self._kept += 1
        if self._kept > _KEPT:
            raise self._bad(f"keeps over {_KEPT} lists and dicts that are neither events nor segments")
        if len(stack) - (marks[-1] if marks else 0) > _BATCH:
            raise self._bad(f"has over {_BATCH} values open at once: nested too deeply")

    def _complete(self, stack: list[Any], found: Fields) -> bool:
        """Offer a dict to the sink; what it makes of it takes its place. Returns whether it took the dict."""
        stands = self._sink.fields(found)
        if stands is None:
            return False
        stack[-1] = stands
        self._forget(found, stands)
        return True

    def _unsigned(self, body: bytes) -> int:
        """An unsigned number of 64 bits, which needs a ninth byte for its sign; as C++ has it, so that 2^64-1 is -1."""
        value = int.from_bytes(body, "little", signed=True)
        if not 0 <= value < 1 << 64:
            raise self._bad("has a number of more than 64 bits")
        return value - (1 << 64) if value >> 63 else value

    def _append(self, stack: list[Any], batch: list[Any]) -> None:
        into = stack[-1]
        stands = self._sink.items(into, batch)
        if stands is None:
            into.extend(batch)
            return
        if stands is not into:
            stack[-1] = stands
            if type(into) is Items:
                self._forget(into, stands)
        for item in batch:
            if type(item) is Fields:
                self._forget(item, GONE)
                for value in item.values():
                    if type(value) is Items and value is not EMPTY:
                        self._forget(value, GONE if value else EMPTY)

    def _forget(self, value: Fields | Items, stands: object) -> None:
        self._kept -= 1
        if value.at >= 0:
            self._memo[value.at] = stands

    def _seen(self, body: bytes) -> object | None:
        """What a list of these references is, where the sink knows it."""
        items = [self._memo[i[0] if i else int.from_bytes(j, "little")] for i, j in _SEEN_ITEM.findall(body)]
        known = self._sink.seen(items)
        if known is not None:
            if len(self._lists) >= _LISTS:
                self._lists.clear()
            self._lists[body] = known
        return known


def _nothing(size: int) -> bytes:
    return b""


def _whole(buffer: bytes, at: int, size: int) -> bytes:
    if at + size > len(buffer):
        raise IndexError
    return buffer[at : at + size]


def _plain(items: list[Any]) -> tuple[Any, ...]:
    """A tuple of numbers and texts: none of containers, which could nest without end."""
    if any(isinstance(item, tuple | Fields | Items) for item in items):
        raise TooMuch("has a tuple of containers, which torch does not write")
    return tuple(items)
