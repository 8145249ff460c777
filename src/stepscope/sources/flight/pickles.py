"""A reader of the flight recorder's pickles that runs nothing: it knows lists, dicts, tuples, texts and numbers.

There is no opcode for a class, a function or an object, so that there is nothing to call. A dump is thousands of
dicts with the same keys: what follows a first one is read by a regular expression made of it, which is a hundred
opcodes in one match. Whatever does not match it takes the slow way, opcode by opcode.
"""

from __future__ import annotations

import struct
from typing import Any

from stepscope.errors import BadInput
from stepscope.sources.flight.shapes import MOST_SHAPES, Shape, shape_of

_DEEPEST = 64
_MOST_BYTES = 1 << 29
#: Values on the stack of the machine, and of its memo.
_MOST_OPEN = 1 << 22
#: Opcodes after which the stack is looked at: to look after each would take a tenth of the time.
_BETWEEN_CHECKS = 1 << 16
_LONGEST_TEXT = 1 << 20
_HINT = "collect the dump again"
#: Opcodes by which a pickle runs code or makes objects, for the refusal.
_CALLS = {
    b"c": "a global", b"\x93": "a global", b"i": "an instance", b"o": "an object", b"R": "a call", b"b": "a state",
    b"\x81": "an object", b"\x92": "an object", b"P": "a persistent id", b"Q": "a persistent id",
    b"\x82": "an extension", b"\x83": "an extension", b"\x84": "an extension",
    b"\x97": "a buffer", b"\x98": "a buffer",
}  # fmt: skip

#: The key by which a dict is known to be a call.
_CALL = "profiling_name"


class _Refused(Exception):
    """Why a pickle is not a dump."""


class Reader:
    """Reads one pickle. Afterwards `value` is its value, whose list of calls is empty: calls are in `slow` and
    `shapes`."""

    def __init__(self, name: str, data: bytes, wanted: frozenset[str]) -> None:
        self._name, self._data, self._wanted = name, data, wanted
        self.memo: list[Any] = []
        self.shapes: list[Shape] = []
        #: calls read one by one: the place among all, and the dict
        self.slow: list[tuple[int, dict[str, Any]]] = []
        self.count = 0
        self.value: Any = None
        if len(data) > _MOST_BYTES:
            raise self._bad(f"has {len(data)} bytes, more than any dump of a flight recorder")
        try:
            self.value = self._run()
        except _Refused as error:
            raise self._bad(str(error)) from None
        except (IndexError, struct.error):
            raise self._bad("is cut short, or not a whole pickle") from None
        except (TypeError, AttributeError, ValueError, KeyError) as error:
            raise self._bad(f"is not a valid pickle ({type(error).__name__})") from None

    def _bad(self, what: str, hint: str = _HINT) -> BadInput:
        return BadInput(f"{self._name}: {what}", hint)

    def _run(self) -> Any:
        data, memo = self._data, self.memo
        stack: list[Any] = []
        marks: list[int] = []
        begins: list[int] = []
        from_bytes = int.from_bytes
        push = stack.append
        at = 0
        while len(stack) <= _MOST_OPEN:
            for _ in range(_BETWEEN_CHECKS):
                code = data[at]
                at += 1
                if code == 0x68:  # BINGET
                    push(memo[data[at]])
                    at += 1
                elif code == 0x6A:  # LONG_BINGET
                    push(memo[from_bytes(data[at : at + 4], "little")])
                    at += 4
                elif code == 0x4B:  # BININT1
                    push(data[at])
                    at += 1
                elif code == 0x4D:  # BININT2
                    push(from_bytes(data[at : at + 2], "little"))
                    at += 2
                elif code == 0x4A:  # BININT
                    push(struct.unpack_from("<i", data, at)[0])
                    at += 4
                elif code == 0x8A:  # LONG1
                    size = data[at]
                    if size > 8:
                        raise _Refused("has a number of more than 64 bits")
                    push(from_bytes(_whole(data, at + 1, size), "little", signed=True))
                    at += 1 + size
                elif code == 0x58 or code == 0x8C:  # BINUNICODE, SHORT_BINUNICODE
                    width = 4 if code == 0x58 else 1
                    size = from_bytes(data[at : at + width], "little")
                    if size > _LONGEST_TEXT:
                        raise _Refused(f"has a text of {size} bytes")
                    push(str(_whole(data, at + width, size), "utf-8", "replace"))
                    at += width + size
                elif code == 0x28:  # MARK
                    marks.append(len(stack))
                    if len(marks) > _DEEPEST:
                        raise _Refused(f"is nested more than {_DEEPEST} deep")
                elif code == 0x7D:  # EMPTY_DICT
                    push({})
                    del begins[len(marks) :]
                    begins += [0] * (len(marks) - len(begins)) + [at - 1]
                elif code == 0x5D:  # EMPTY_LIST
                    push([])
                elif code == 0x75:  # SETITEMS
                    first = marks.pop()
                    target = stack[first - 1]
                    target.update(zip(_keys(stack[first::2]), stack[first + 1 :: 2], strict=True))
                    del stack[first:]
                    if _CALL in target:
                        stack[-1] = None
                        at = self._call(target, begins[len(marks)], at)
                elif code == 0x65:  # APPENDS
                    first = marks.pop()
                    stack[first - 1].extend(stack[first:])
                    del stack[first:]
                elif code == 0x73:  # SETITEM
                    value, key = stack.pop(), stack.pop()
                    stack[-1].update(zip(_keys([key]), [value], strict=True))
                elif code == 0x61:  # APPEND
                    value = stack.pop()
                    stack[-1].append(value)
                elif code == 0x71 or code == 0x72 or code == 0x94:  # BINPUT, LONG_BINPUT, MEMOIZE
                    width = 1 if code == 0x71 else 4 if code == 0x72 else 0
                    if width and from_bytes(_whole(data, at, width), "little") != len(memo):
                        raise _Refused("numbers its memo out of order")
                    memo.append(stack[-1])
                    at += width
                elif code == 0x4E:  # NONE
                    push(None)
                elif code == 0x88 or code == 0x89:  # NEWTRUE, NEWFALSE
                    push(code == 0x88)
                elif code == 0x47:  # BINFLOAT
                    push(struct.unpack_from(">d", data, at)[0])
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
                elif code == 0x95:  # FRAME
                    at += 8
                elif code == 0x2E:  # STOP
                    if marks or len(stack) != 1:
                        raise IndexError
                    return stack.pop()
                else:
                    raise _refusal(code, at - 1)
        raise _Refused(f"has over {_MOST_OPEN} values open at once")

    def _call(self, call: dict[str, Any], begin: int, at: int) -> int:
        """Take a call that ends at `at`, and those after it that are of known shapes; returns where they end."""
        self.slow.append((self.count, call))
        self.count += 1
        if len(self.shapes) < MOST_SHAPES and (shape := self._new_shape(self._data[begin:at], call)):
            self.shapes.insert(0, shape)
        data = self._data
        again = True
        while again:
            again = False
            for shape in self.shapes:
                match, found, before = shape.pattern.match, shape.found, len(shape.found)
                while (seen := match(data, at)) is not None:
                    found.append(seen)
                    at = seen.end()
                if taken := len(found) - before:
                    shape.places.extend(range(self.count, self.count + taken))
                    self.count += taken
                    again = True
        return at

    def _new_shape(self, body: bytes, call: dict[str, Any]) -> Shape | None:
        shape = shape_of(body, call, self._wanted, self._said)
        known = shape is not None and any(s.pattern.pattern == shape.pattern.pattern for s in self.shapes)
        return None if known else shape

    def _said(self, token: bytes) -> Any:
        place = int.from_bytes(token[1:], "little")
        if place >= len(self.memo):
            raise self._bad("is not a valid pickle")
        return self.memo[place]

    def decoded(self, token: bytes) -> Any:
        """The value of what an expression captured."""
        first = token[0]
        if first in b"hj":
            return self._said(token) if len(token) == (2 if first == 0x68 else 5) else self._inside(token)
        if first in b"KM":
            return int.from_bytes(token[1:], "little")
        if first == 0x4A:
            return int.from_bytes(token[1:], "little", signed=True)
        if first == 0x8A:
            return int.from_bytes(token[2:], "little", signed=True)
        if first == 0x4E:
            return None
        if first in b"\x88\x89":
            return first == 0x88
        return struct.unpack_from(">d", token, 1)[0] if first == 0x47 else self._inside(token)

    def _inside(self, token: bytes) -> Any:
        """A list or a pair, read opcode by opcode: the same machine, with the memo of this one."""
        inner = object.__new__(Reader)
        inner._name, inner._data, inner._wanted = self._name, token + b".", self._wanted
        inner.memo, inner.shapes, inner.slow, inner.count = self.memo, [], [], 0
        try:
            return inner._run()
        except (IndexError, struct.error, TypeError, ValueError, _Refused):
            raise self._bad("is not a valid pickle") from None


def _refusal(opcode: int, at: int) -> _Refused:
    code = bytes([opcode])
    if code in _CALLS:
        return _Refused(f"holds {_CALLS[code]} at byte {at}, which could run code: refused, and nothing was run")
    return _Refused(f"has the opcode {code!r} at byte {at}, which no dump has")


def _whole(data: bytes, at: int, size: int) -> bytes:
    if at + size > len(data):
        raise IndexError
    return data[at : at + size]


def _keys(keys: list[Any]) -> list[Any]:
    """Keys of a dict: texts and numbers, or tuples of them."""
    for key in keys:
        if not isinstance(key, str | int | tuple):
            raise _Refused("has a dict with keys that are not texts")
    return keys


def _plain(items: list[Any]) -> tuple[Any, ...]:
    """A tuple of numbers and texts: none of containers, which could nest without end."""
    if any(isinstance(item, tuple | dict | list) for item in items):
        raise _Refused("has a tuple of containers, which no dump has")
    return tuple(items)
