"""The pickle of a dump: calls are taken as soon as they are complete, and runs of like ones in one step."""

from __future__ import annotations

from typing import Any

from stepscope.errors import BadInput
from stepscope.sources.flight.layouts import Runs
from stepscope.sources.pickled.machine import Machine
from stepscope.sources.pickled.refusals import Kind
from stepscope.sources.pickled.values import Fields

_MOST_BYTES = 1 << 29
_KIND = Kind("dump", "collect the dump again", "a dump of the flight recorder")
#: The key by which a dict is known to be a call.
_CALL = "profiling_name"


class _Taken:
    """Stands for a call in the list of calls."""


_TAKEN = _Taken()


class Reader:
    """Reads one pickle. Afterwards `value` is its value, whose list of calls is useless: calls are in `slow` and
    `runs`."""

    def __init__(self, name: str, data: bytes) -> None:
        self._name = name
        self._memo: list[Any] = []
        self._decoded: dict[bytes, Any] = {}
        #: calls read one by one: the place among all, and the dict
        self.slow: list[tuple[int, dict[Any, Any]]] = []
        self.runs: list[Runs] = []
        self.count = 0
        if len(data) > _MOST_BYTES:
            raise BadInput(f"{name}: has {len(data)} bytes, more than any dump of a flight recorder", _KIND.again)
        self.value: Any = Machine(name, _KIND, data, self, memo=self._memo).run()

    # -- the sink ------------------------------------------------------------------------------------------------------

    def fields(self, found: Fields) -> object | None:
        if _CALL not in found:
            return None
        self.slow.append((self.count, found))
        self.count += 1
        return _TAKEN

    def items(self, into: object, batch: list[Any]) -> object | None:
        return None

    def seen(self, items: list[Any]) -> object | None:
        return None

    def skip(self, data: bytes, at: int) -> int:
        """Take the calls that follow and are laid out like others."""
        if not self.runs or at >= self.runs[-1].end:
            runs = Runs(data, at, self._memo)
            if not len(runs.starts):
                return at
            self.runs.append(runs)
        at, taken = self.runs[-1].take(at, self.count)
        self.count += taken
        return at

    # -- values of what was taken --------------------------------------------------------------------------------------

    def decoded(self, token: bytes) -> Any:
        """The value of these bytes of a call: the same machine, with the memo of this one."""
        if token not in self._decoded:
            self._decoded[token] = Machine(self._name, _KIND, token + b".", _NoSink(), memo=self._memo).run()
        return self._decoded[token]


class _NoSink:
    skip = None

    def fields(self, found: Fields) -> object | None:
        return None

    def items(self, into: object, batch: list[Any]) -> object | None:
        return None

    def seen(self, items: list[Any]) -> object | None:
        return None
