"""Counts the optimizer steps of a program, and starts and stops the profiler between them.

A step begins where the one before it ended: it holds data loading, forward, backward and optimizer. The boundary is put
around `Optimizer.step`, not into torch's global optimizer hooks: these run inside torch's own range of the optimizer
step, and a range or a profiler that ends there would cut that one off.
"""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from stepscope import annotate
from stepscope.annotate import safety
from stepscope.annotate.profilers import common_store, make_stop_common
from stepscope.annotate.recorder import Recorder, Settings
from stepscope.hooks.compiling import unwatch_compile
from stepscope.hooks.cycle import Cycle, End
from stepscope.hooks.facts import facts
from stepscope.hooks.objects import hooked_optimizers, label_of
from stepscope.hooks.ranges import Ranges

#: Optimizers that exist and have not stepped yet are waited for: so many steps, and three warm-ups.
_PATIENCE = 10
#: Ranks agree on a step that none of them can have begun yet.
_AHEAD = 2


def install(module: Any) -> None:
    """Put the driver around the optimizers of `torch.optim.optimizer`, which has just been executed."""
    settings = Settings.of(os.environ)
    if settings is None:
        return
    driver = Driver(sys.modules["torch"], module, Recorder(settings, each=False))
    plain = module.Optimizer.profile_hook_step  # torch wraps every class of optimizers by it, once
    module.Optimizer.profile_hook_step = staticmethod(lambda step: driver.around(plain(step)))


class Driver:
    """Of one process. It does nothing before the first optimizer step; after the capture, it times steps."""

    def __init__(self, torch: Any, optimizers: Any, recorder: Recorder) -> None:
        self._torch, self._optimizers, self._recorder = torch, optimizers, recorder
        self._cycle = Cycle()
        self._ranges = Ranges(torch, recorder.settings.ranges)
        self._number = 0
        self._ids: dict[int, int] = {}
        self._names: list[str] = []
        self._depth = 0  # an optimizer may step within another's step
        self._within: list[Any] = []  # optimizers that stepped within the backward pass
        self._begun = self.over = self._settled = False
        self._wait_until: int | None = None
        self._voted = False
        self._start_at: int | None = None
        self._cost = {False: [0, 0], True: [0, 0]}  # profiled: [steps, nanoseconds]
        safety.at_failure(lambda _: self._retire())

    def around(self, step: Callable[..., Any]) -> Callable[..., Any]:
        """`Optimizer.step`, with a look at it before and after."""
        torch = self._torch

        @functools.wraps(step)
        def watched(*args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_dynamo_compiling() or self.over or safety.failure is not None:
                return step(*args, **kwargs)
            self._enter()
            try:
                result = step(*args, **kwargs)
            except BaseException:
                self._depth -= 1
                raise
            self._leave(args[0])
            return result

        return watched

    # -- what the program does -----------------------------------------------------------------------------------

    @safety.harmless
    def _enter(self) -> None:
        self._depth += 1
        if not self._begun:
            self._begun = True
            if annotate.annotated:
                self._retire()
                return
            dist = self._torch.distributed
            if dist.is_available() and dist.is_initialized():
                self._recorder.rank = dist.get_rank()
            self._ranges.watch_backward(self._backward_begins, self._backward_ends)
            if self._recorder.settings.backend == "nsys":
                make_stop_common(self._own_start, self._own_stop)
            annotate.emitting(self._recorder.begin(0, self._label, ready=False))

    @safety.harmless
    def _leave(self, optimizer: Any) -> None:
        self._depth -= 1
        if self._depth or self.over:
            return
        if self._ranges.in_backward:  # maybe on a thread of autograd's: the step ends with the backward pass
            self._within.append(optimizer)
            return
        self._stepped(optimizer)

    @safety.harmless
    def _backward_begins(self) -> None:
        self._cycle.backward()

    @safety.harmless
    def _backward_ends(self) -> None:
        within, self._within = self._within, []
        for optimizer in within:
            self._stepped(optimizer)

    def _stepped(self, optimizer: Any) -> None:
        if annotate.annotated and not self._recorder.on:  # it marks its own steps after all
            self._retire()
            return
        began = time.perf_counter_ns()
        if id(optimizer) not in self._ids:
            self._ids[id(optimizer)] = len(self._ids)
            self._names.append(type(optimizer).__name__)
        ended = self._cycle.stepped(self._ids[id(optimizer)])
        for when in (End.BEFORE, End.NOW):
            if when in ended and not self.over:
                # Where both end at once, the time since the last end is that of the second: it is logged once.
                self._next_step(began, at_once=when is End.NOW, timed=when is End.NOW or End.NOW not in ended)

    # -- steps ---------------------------------------------------------------------------------------------------

    def _next_step(self, began: int, at_once: bool, timed: bool) -> None:
        """One step is over, and the next begins; the profiler only starts where that is told at once."""
        recorder = self._recorder
        profiled = recorder.on
        if recorder.last:
            self._count(profiled, began)
            self._report()
        emit = recorder.end(self._number, timed=timed)
        annotate.emitting(emit)
        self._number += 1
        if profiled and not recorder.on:
            self._ranges.unwatch()
        if recorder.over:  # steps are timed to the end of the program, and nothing else
            unwatch_compile()
            recorder.begin(self._number, None, ready=False)
            return
        self._count(profiled, began)
        ready = at_once and self._ready()
        if ready and not self._settled:
            self._settled = True
            self._cost[False] = [0, 0]  # learning time is not part of the cost of a step
        if ready and self._number >= recorder.next - 1 and not self._ranges.watching:
            recorder.end_span(profiled=False)
            self._ranges.watch()
        emit = recorder.begin(self._number, self._label, ready=ready and self._agreed(), settled=ready)
        annotate.emitting(emit)
        if recorder.on and not profiled:
            self._ranges.settle()
            self._ranges.taken_ns()

    def _ready(self) -> bool:
        """Whether it is known where steps end, and every optimizer that there is had its turn."""
        if self._cycle.known is None:
            return False
        if self._wait_until is None:
            unseen = [o for o in hooked_optimizers(self._optimizers.Optimizer) if id(o) not in self._ids]
            patience = 3 * self._recorder.settings.warmup + _PATIENCE if unseen else 0
            self._wait_until = self._number + patience
        return self._number >= self._wait_until or len(self._names) > 1

    def _agreed(self) -> bool:
        """Whether the ranks begin at this step. They would wait for each other for ever if one began a step later."""
        store, world = common_store()
        if store is None:
            return True
        if not self._voted:
            self._voted = True
            if store.add("stepscope/learned", 1) == world:
                store.set("stepscope/start", str(self._number + _AHEAD))
        if self._start_at is None and store.check(["stepscope/start"]):
            self._start_at = int(store.get("stepscope/start"))
        return self._start_at is not None and self._number >= self._start_at

    def _label(self) -> str:
        return annotate.label() or label_of(self._recorder.rank, self._torch)

    # -- the end -------------------------------------------------------------------------------------------------

    def _count(self, profiled: bool, began: int) -> None:
        """What the hooks took of the step that is over."""
        self._cost[profiled][0] += 1
        self._cost[profiled][1] += time.perf_counter_ns() - began + self._ranges.taken_ns()

    def _report(self) -> None:
        """What the hooks cost, what they took for a step, and what torch was set to: for the manifest."""
        plain, under = ((ns // steps if steps else None) for steps, ns in (self._cost[False], self._cost[True]))
        order = [[self._names[o] for o in burst] for burst in self._cycle.known or ()]
        measured = {"plain_ns": plain, "profiled_ns": under, "optimizers": order}
        self._recorder.log({"hooks": {**measured, **facts(self._torch)}})

    def _own_start(self) -> None:
        """The program starts the profiler itself: it is left to it."""
        if not self._recorder.on:
            self._retire()

    def _own_stop(self) -> None:
        if not self._recorder.over:
            self._recorder.log_stopped()

    def _retire(self) -> None:
        self.over = True
        annotate.emitting(None)
        self._ranges.remove()
        unwatch_compile()
