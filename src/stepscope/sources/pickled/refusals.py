"""What is said of a pickle that cannot be read, or that would run code if it were."""

from __future__ import annotations

import msgspec

from stepscope.errors import BadInput

#: Opcodes by which a pickle runs code or makes objects, for the refusal.
_CALLS = {
    b"c": "a global", b"\x93": "a global", b"i": "an instance", b"o": "an object", b"R": "a call", b"b": "a state",
    b"\x81": "an object", b"\x92": "an object", b"P": "a persistent id", b"Q": "a persistent id",
    b"\x82": "an extension", b"\x83": "an extension", b"\x84": "an extension",
    b"\x97": "a buffer", b"\x98": "a buffer",
}  # fmt: skip


class Kind(msgspec.Struct, frozen=True):
    """What a pickle is supposed to be, for refusals: its noun, how to get another, and what alone it holds."""

    noun: str
    again: str
    holds: str

    def bad(self, name: str, what: str, hint: str | None = None) -> BadInput:
        """The pickle `name` is not to be read, and why."""
        return BadInput(f"{name}: {what}", hint or self.again)

    def refused(self, name: str, opcode: int, at: int) -> BadInput:
        """It has an opcode, at this byte, that such a pickle does not need."""
        code, where = bytes([opcode]), f"at byte {at}"
        if code in _CALLS:
            return self.bad(
                name,
                f"holds {_CALLS[code]} {where}, which could run code: refused, and nothing was run",
                f"{self.holds} holds only lists, dicts, texts and numbers",
            )
        return self.bad(name, f"has the opcode {code!r} {where}, which no {self.noun} has")
