"""Ranges of an unmodified program: data, forward, backward, optimizer; and, where asked for, its modules.

Forward is the outermost call of a module. Hooks stand on single modules, not on all of them (torch's global module
hooks slow every call, and make torch.compile compile again): first on the upper modules of every model, for one step;
then on those alone that the program called itself.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from stepscope import annotate
from stepscope.annotate.safety import harmless
from stepscope.hooks.objects import upper_modules

#: How far below a model the module may lie that the program calls (Lightning calls a part of its module).
_UPPER = 2
#: Modules that `--ranges modules` marks, unless told otherwise: layers, and the parts of a layer.
MODULES_DEPTH = 4


class Ranges:
    """Pushes and pops; the time that this takes is counted."""

    def __init__(self, torch: Any, asked: str) -> None:
        self._torch = torch
        kind, _, depth = asked.partition("=")
        self._wanted = kind != "none"
        self._depth = int(depth or MODULES_DEPTH) if kind == "modules" else 0
        self.watching = False
        self.in_backward = 0
        self._open: list[Any] = []  # where each open range was pushed
        self._calls = 0  # of modules, one within the other
        self._outermost: set[int] = set()
        self._handles: dict[int, list[Any]] = {}
        self._others: list[Callable[[], None]] = []  # what puts the rest back
        self._engine: Callable[[], None] | None = None  # what puts autograd's engine back
        self._took = 0

    def taken_ns(self) -> int:
        """Time taken since the last question."""
        took, self._took = self._took, 0
        return took

    @harmless
    def push(self, text: str) -> None:
        began = time.perf_counter_ns()
        emit = annotate.emitter()
        if emit is not None:
            emit.push(text)
        self._open.append(emit)
        self._took += time.perf_counter_ns() - began

    @harmless
    def pop(self) -> None:
        began = time.perf_counter_ns()
        emit = self._open.pop() if self._open else None
        if emit is not None:
            emit.pop()
        self._took += time.perf_counter_ns() - began

    # -- backward: all the time, as it tells steps apart ---------------------------------------------------------

    def watch_backward(self, begins: Callable[[], None], ends: Callable[[], None]) -> None:
        """Through autograd's engine: `Tensor.backward`, `autograd.grad` and trainers that call it themselves."""
        ranges, variable = self, self._torch.autograd.Variable
        engine = variable._execution_engine

        class Engine(type(engine)):  # type: ignore[misc]
            def run_backward(self, *args: Any, **kwargs: Any) -> Any:
                ranges.in_backward += 1
                if ranges.in_backward > 1:  # of a checkpoint, within another
                    try:
                        return super().run_backward(*args, **kwargs)
                    finally:
                        ranges.in_backward -= 1
                begins()
                ranges.push("backward")
                try:
                    return super().run_backward(*args, **kwargs)
                finally:
                    ranges.in_backward -= 1
                    ranges.pop()
                    ends()

        variable._execution_engine = Engine()

        def put_back() -> None:
            variable._execution_engine = engine

        self._engine = put_back

    # -- the rest: from the last step of the warm-up on -----------------------------------------------------------

    def watch(self) -> None:
        """Data loaders, optimizers, and the modules that may be called first."""
        self.watching = True
        if not self._wanted:
            return
        self._watch_data()
        self._watch_optimizers()
        for name, level, module in upper_modules(self._torch, max(_UPPER, self._depth)):
            text = "forward" if level == 0 else name
            self._handles[id(module)] = self._on_module(module, text, inner=0 < level <= self._depth)

    def settle(self) -> None:
        """Only modules stay watched that the program called itself, or that were asked for."""
        if self._outermost and not self._depth:
            for key in set(self._handles) - self._outermost:
                for handle in self._handles.pop(key):
                    handle.remove()

    def unwatch(self) -> None:
        """Only backward passes stay watched, which tell steps apart: as before `watch`."""
        for handle in (h for handles in self._handles.values() for h in handles):
            handle.remove()
        for put_back in reversed(self._others):
            put_back()
        self._handles, self._others, self._open = {}, [], []
        self._calls, self._outermost, self.watching = 0, set(), False

    def remove(self) -> None:
        """As if nothing had been there."""
        self.unwatch()
        if self._engine is not None:
            self._engine()
            self._engine = None

    def _on_module(self, module: Any, text: str, inner: bool) -> list[Any]:
        key, opened = id(module), []

        @harmless
        def before(*_: Any) -> None:
            if self.in_backward:  # computed again for it
                opened.append(False)
                return
            first = self._calls == 0
            self._calls += 1
            if first:
                self._outermost.add(key)
            opened.append(True)
            self.push("forward" if first else text) if first or inner else self._open.append(None)

        @harmless
        def after(*_: Any) -> None:
            if opened and opened.pop():
                self._calls -= 1
                self.pop()

        return [
            module.register_forward_pre_hook(before, prepend=True),
            module.register_forward_hook(after, always_call=True),
        ]

    def _watch_data(self) -> None:
        loaders = sys.modules.get("torch.utils.data.dataloader")
        if loaders is None:
            return
        iterator, ranges = loaders._BaseDataLoaderIter, self
        plain = iterator.__next__

        def watched(self: Any) -> Any:
            ranges.push("data")
            try:
                return plain(self)
            finally:
                ranges.pop()

        iterator.__next__ = watched
        loader = loaders.DataLoader
        begin = loader.__iter__

        def begun(self: Any) -> Any:
            """An epoch begins: workers are started, or told to begin anew."""
            ranges.push("data")
            try:
                return begin(self)
            finally:
                ranges.pop()

        loader.__iter__ = begun

        def put_back() -> None:
            iterator.__next__ = plain
            loader.__iter__ = begin

        self._others.append(put_back)

    def _watch_optimizers(self) -> None:
        """torch's own hooks: a closure, which computes forward and backward, comes before the optimizer's work."""
        module = sys.modules["torch.optim.optimizer"]
        begun: list[bool] = []

        @harmless
        def before(optimizer: Any, args: Any, kwargs: Any) -> Any:
            closure = kwargs.get("closure") or next((a for a in args[1:] if callable(a)), None)
            begun.append(closure is None)
            if closure is None:
                self.push("optimizer")
                return None

            def then(*given: Any, **named: Any) -> Any:
                result = closure(*given, **named)
                if begun and not begun[-1]:
                    begun[-1] = True
                    self.push("optimizer")
                return result

            if "closure" in kwargs:
                return args, {**kwargs, "closure": then}
            return tuple(then if a is closure else a for a in args), kwargs

        @harmless
        def after(*_: Any) -> None:
            if begun and begun.pop():
                self.pop()

        handles = [module.register_optimizer_step_pre_hook(before), module.register_optimizer_step_post_hook(after)]
        self._others += [handle.remove for handle in handles]
