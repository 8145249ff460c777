"""What `stepscope.annotate` does under a capture: start and stop a profiler at steps, on all ranks together.

Several ranks can be under one nsys, and the first cudaProfilerStop among them ends the capture for all. So ranks meet
before the start and before the stop; they meet on the job's store, not in a collective: it adds no kernel to the trace.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from stepscope.annotate.cupti import export
from stepscope.annotate.profilers import (
    Emitter,
    TorchEmitter,
    about,
    clocks,
    emit_operators,
    meet,
    no_more_meetings,
    nsys_start,
    nsys_stop,
    nvtx_emitter,
    records_already,
    synchronize,
    torch_profiler,
    watch_graphs,
)
from stepscope.annotate.safety import at_failure
from stepscope.annotate.stretches import Stretches

#: The setup label of this rank, or what makes it when the capture starts.
Label = str | Callable[[], str] | None
#: Prefix of the variables that `capture run` sets.
PREFIX = "STEPSCOPE_CAPTURE_"
#: What hooks heard the program ask of torch.compile.
compiled_with: list[dict[str, Any]] = []


@dataclass(frozen=True)
class Settings:
    """From the environment: which profiler, which steps, where to write."""

    backend: str  # nsys, torch, or none: steps are timed only
    warmup: int
    steps: int
    out: Path
    trigger: str = "cuda"  # for nsys: cuda or nvtx
    ranks: frozenset[int] | None = None  # those that torch.profiler traces; None for all
    torch: Mapping[str, bool] = field(default_factory=dict)  # keywords of torch.profiler.profile
    emit: str = ""  # torch's operators as NVTX ranges: "ops", or "shapes" of their inputs too
    ranges: str = "phases"  # phases, modules=DEPTH, or none: no ranges at all
    every: int = 0  # record again every so many steps; 0: once
    budget: int = 0  # bytes of all recordings together, where they are several; 0: no limit

    @classmethod
    def of(cls, env: Mapping[str, str]) -> Settings | None:
        """What the environment asks for; None outside a capture."""
        backend = env.get(PREFIX + "BACKEND")
        if backend not in ("nsys", "torch", "none"):
            return None
        ranks = env.get(PREFIX + "RANKS", "")
        return cls(
            backend,
            int(env.get(PREFIX + "WARMUP", "5")),
            int(env.get(PREFIX + "STEPS", "1")),
            Path(env.get(PREFIX + "OUT", ".")),
            env.get(PREFIX + "TRIGGER", "cuda"),
            frozenset(int(r) for r in ranks.split(",")) if ranks else None,
            json.loads(env.get(PREFIX + "TORCH", "{}")),
            env.get(PREFIX + "EMIT", ""),
            env.get(PREFIX + "RANGES", "phases"),
            int(env.get(PREFIX + "EVERY", "0")),
            int(env.get(PREFIX + "BUDGET", "0")),
        )


class Recorder:
    """Counts steps; starts the profiler after the warm-up, stops it after the profiled ones, and times every step.

    `each` says that every step ends with a device synchronize, so that its time is its own. Without it, the program is
    left to run ahead: times are then true over spans between two synchronizes, which are logged, too. Once the first
    recording is over, every program is left to run ahead: its steps are timed to the end, and in the mean that is true.
    """

    def __init__(self, settings: Settings, each: bool = True) -> None:
        self._set = settings
        self._each = each
        self.rank = int(os.environ.get("RANK", os.environ.get("SLURM_PROCID", "0")))
        self._seen = self._profiled = 0
        self._stretches = Stretches(settings.warmup, settings.every, settings.budget)
        self.on = self.over = False
        self._profiler: Any = None
        self._trigger: Any = None
        self._operators: Any = None
        self._emit: Emitter | None = None
        self._labelled = False
        self._began = 0
        self._file: IO[str] | None = None
        self._spanned = self._said = False
        self._timed = True
        self._span: tuple[int, int] | None = None  # when it began, and the steps seen by then
        at_failure(self._give_up)

    @property
    def _traced(self) -> bool:
        return self._set.ranks is None or self.rank in self._set.ranks

    @property
    def last(self) -> bool:
        """Whether the capture ends with this step."""
        return self.on and self._profiled + 1 == self._set.steps

    @property
    def settings(self) -> Settings:
        return self._set

    @property
    def next(self) -> int:
        """After how many steps recording begins, or begins again."""
        return self._stretches.next

    def begin(self, number: int, label: Label, ready: bool = True, settled: bool = False) -> Emitter | None:
        """A step begins. What to write ranges to in it; None outside the profiled ones.

        The profiler starts no earlier than the settings say, and only where `ready`. Where `settled`, the program runs
        as it would without us: what it takes from here to the capture is its own time.
        """
        if self._seen == 0:
            self.log({"about": {"label": None if callable(label) else label, **about()}})
            if self._set.backend == "torch" and self._traced:
                watch_graphs(self._set.torch)
        if not (self.on or self.over or self._stretches.goes_on(self._seen, self._set.out, self.rank)):
            self.log_stopped()
        own = self._set.backend == "torch" and self._set.warmup > 0 and self._traced  # a warm-up of the profiler's own
        if self.on and self._profiler is not None:
            self._profiler.step()  # ends one ProfilerStep#N and begins the next
        elif ready and not self.on and not self.over and not self._refused():
            if self._seen >= self.next and (self._profiler is not None or not own):
                self._start(label)
            elif own and self._seen >= self.next - 1 and self._profiler is None:
                self.end_span(profiled=False)
                self._profiler = torch_profiler(True, self._set.torch)  # one step, recorded and thrown away
                self._profiler.start()
        if settled and not self._spanned and not self.on and self._profiler is None:
            self._begin_span()
        if self._emit is not None:
            self._emit.push(f"step {number}")
        if self._timed:
            self._began = time.perf_counter_ns()
        return self._emit

    def end(self, number: int, failed: bool = False, timed: bool = True) -> Emitter | None:
        """The step is over. One that is not `timed` ended when nobody looked: the next is timed from its begin."""
        if self._each and not failed and (self.on or not self._stretches.done):
            synchronize()
        took = time.perf_counter_ns() - self._began
        if self._emit is not None:
            self._emit.pop()
        if failed:  # no meeting with ranks that may be gone; the capture is left unfinished, and so called bad
            return self._emit
        if timed:
            when = {"began_ns": self._began, "rank": self.rank}
            self.log({"step": number, "ordinal": self._seen, "ns": took, "profiled": self.on, **when})
        self._timed = timed
        self._seen += 1
        self._profiled += self.on
        if self.on and self._profiled == self._set.steps:
            self._stop()
        return self._emit

    def _refused(self) -> bool:
        """Not while the program's own torch.profiler records: `capture run` tells why nothing was captured."""
        refused = self._set.backend == "torch" and self._profiler is None and records_already()
        if refused and not self._said:
            self._said = True
            self.log({"refused": "the program runs torch.profiler itself, and two cannot record at once"})
        return refused

    def _begin_span(self) -> None:
        self._spanned = True
        synchronize()
        self._span = (time.perf_counter_ns(), self._seen)

    def end_span(self, profiled: bool) -> None:
        """What comes next is not part of the span that is timed."""
        if self._span is None:
            return
        synchronize()
        (began, seen), self._span = self._span, None
        if self._seen > seen:
            took = time.perf_counter_ns() - began
            self.log({"span": {"steps": self._seen - seen, "ns": took, "profiled": profiled}})

    def finish(self) -> Emitter | None:
        """No more steps will come."""
        if self.on:
            self._stop()
        return self._emit

    # -- start and stop ------------------------------------------------------------------------------------------

    def _start(self, label: Label) -> None:
        self.end_span(profiled=False)
        synchronize()
        meet(self._stretches.name("start"))
        self._stretches.begun(self._seen)
        self._profiled = 0
        if callable(label):
            label = label()
            self.log({"label": label})
        self.on = True
        if self._set.backend == "nsys":
            self._emit = nvtx_emitter()
            self._trigger = nsys_start(self._set.trigger)
            self._operators = emit_operators(self._set.emit)
            # Ranges of a rank that runs ahead would lie before the capture of the others.
            meet(self._stretches.name("started"))
        elif self._set.backend == "torch" and self._traced:
            if self._profiler is None:
                self._profiler = torch_profiler(False, self._set.torch)
                self._profiler.start()
            else:
                self._profiler.step()
            self._emit = TorchEmitter()
        if self._set.ranges == "none":
            self._emit = None
        if label is not None and self._emit is not None:
            self._emit.push(label)
            self._labelled = True
        if not self._each:
            self._begin_span()

    def _stop(self) -> None:
        """All ranks have done their last profiled step before the first of them stops the profiler."""
        synchronize()
        self.end_span(profiled=True)
        if self._labelled and self._emit is not None:
            self._emit.pop()
        meet(self._stretches.name("stop"))
        if self._set.backend == "nsys":
            if self._operators is not None:
                self._operators.__exit__(None, None, None)
            nsys_stop(self._set.trigger, self._trigger)
        elif self._profiler is not None:
            self._profiler.stop()
            self._export()
        meet(self._stretches.name("stopped"))
        if not self._stretches.done:
            self.log({"gpus": clocks()})
        self._emit, self.on, self._labelled, self._operators = None, False, False, None
        self.over = self._stretches.ended()
        self.log_stopped(more=not self.over)

    def _give_up(self, why: str) -> None:
        """Something of ours failed: the profiler stops, and nobody waits for this rank."""
        self.log({"failed": why})
        was_on, self.on, self.over, self._emit = self.on, False, True, None
        with contextlib.suppress(Exception):
            no_more_meetings()
        if self._profiler is not None:
            self._profiler.stop()
        elif was_on and self._set.backend == "nsys":
            nsys_stop(self._set.trigger, self._trigger)

    def log_stopped(self, more: bool = False) -> None:
        """The capture is over, or a stretch of it where `more` may come; also where a trainer stopped its profiler."""
        if compiled_with:
            self.log({"compiled_with": compiled_with})
        self.log({"stopped": True, "rank": self.rank, "more": more})
        self.over = not more

    def _export(self) -> None:
        """Under the last name only when complete."""
        self._set.out.mkdir(parents=True, exist_ok=True)
        name = self._stretches.name(f"rank{self.rank}.{socket.gethostname().split('.')[0]}") + ".pt.trace.json"
        part = self._set.out / f".part.{name}.gz"
        export(self._profiler, str(part))
        part.replace(self._set.out / f"{name}.gz")
        self._profiler = None

    def log(self, record: dict[str, Any]) -> None:
        """One line to `steps/rankN.jsonl`; `capture run` shows its progress from there, `verify` reads times."""
        with contextlib.suppress(OSError):
            if self._file is None:
                folder = self._set.out / "steps"
                folder.mkdir(parents=True, exist_ok=True)
                self._file = (folder / f"rank{self.rank}.jsonl").open("a", buffering=1)
            self._file.write(json.dumps(record) + "\n")
