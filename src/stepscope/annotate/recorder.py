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
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepscope.annotate.profilers import (
    Emitter,
    TorchEmitter,
    about,
    meet,
    nsys_start,
    nsys_stop,
    nvtx_emitter,
    synchronize,
    torch_profiler,
)

#: Prefix of the variables that `capture run` sets.
PREFIX = "STEPSCOPE_CAPTURE_"


@dataclass(frozen=True)
class Settings:
    """From the environment: which profiler, which steps, where to write."""

    backend: str  # nsys, torch, or none: steps are timed only
    warmup: int
    steps: int
    out: Path
    trigger: str = "cuda"  # for nsys: cuda or nvtx
    ranks: frozenset[int] | None = None  # those that torch.profiler traces; None for all

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
        )


class Recorder:
    """Counts steps; starts the profiler after the warm-up, stops it after the profiled ones, and times every step."""

    def __init__(self, settings: Settings) -> None:
        self._set = settings
        self.rank = int(os.environ.get("RANK", os.environ.get("SLURM_PROCID", "0")))
        self._seen = 0
        self._on = self._over = False
        self._profiler: Any = None
        self._trigger: Any = None
        self._emit: Emitter | None = None
        self._labelled = False
        self._began = 0

    @property
    def _traced(self) -> bool:
        return self._set.ranks is None or self.rank in self._set.ranks

    def begin(self, number: int, label: str | None) -> Emitter | None:
        """A step begins. What to write ranges to in it; None outside the profiled ones."""
        if self._seen == 0:
            self._log({"about": {"label": label, **about()}})
        if self._seen == self._set.warmup and not self._over:
            self._start(label)
        elif self._set.backend == "torch" and self._seen == self._set.warmup - 1 and self._traced:
            self._profiler = torch_profiler(warm=True)  # one step of its own warm-up, recorded and thrown away
            self._profiler.start()
        elif self._on and self._profiler is not None:
            self._profiler.step()  # ends one ProfilerStep#N and begins the next
        if self._emit is not None:
            self._emit.push(f"step {number}")
        self._began = time.perf_counter_ns()
        return self._emit

    def end(self, number: int, failed: bool = False) -> Emitter | None:
        """The step is over."""
        if not failed:
            synchronize()
        took = time.perf_counter_ns() - self._began
        if self._emit is not None:
            self._emit.pop()
        if failed:  # no meeting with ranks that may be gone; the capture is left unfinished, and so called bad
            return self._emit
        self._log({"step": number, "ordinal": self._seen, "ns": took, "profiled": self._on})
        self._seen += 1
        if self._on and self._seen == self._set.warmup + self._set.steps:
            self._stop()
        return self._emit

    def finish(self) -> Emitter | None:
        """No more steps will come."""
        if self._on:
            self._stop()
        return self._emit

    # -- start and stop ------------------------------------------------------------------------------------------

    def _start(self, label: str | None) -> None:
        synchronize()
        meet("start")
        self._on = True
        if self._set.backend == "nsys":
            self._emit = nvtx_emitter()
            self._trigger = nsys_start(self._set.trigger)
            meet("started")  # ranges of a rank that runs ahead would lie before the capture of the others
        elif self._set.backend == "torch" and self._traced:
            if self._profiler is None:
                self._profiler = torch_profiler(warm=False)
                self._profiler.start()
            else:
                self._profiler.step()
            self._emit = TorchEmitter()
        if label is not None and self._emit is not None:
            self._emit.push(label)
            self._labelled = True

    def _stop(self) -> None:
        """All ranks have done their last profiled step before the first of them stops the profiler."""
        synchronize()
        if self._labelled and self._emit is not None:
            self._emit.pop()
        meet("stop")
        if self._set.backend == "nsys":
            nsys_stop(self._set.trigger, self._trigger)
        elif self._profiler is not None:
            self._profiler.stop()
            self._export()
        meet("stopped")
        self._log({"stopped": True, "rank": self.rank})
        self._emit, self._on, self._over = None, False, True

    def _export(self) -> None:
        """Under the last name only when complete."""
        self._set.out.mkdir(parents=True, exist_ok=True)
        name = f"rank{self.rank}.{socket.gethostname().split('.')[0]}.pt.trace.json"
        part = self._set.out / f".part.{name}.gz"
        self._profiler.export_chrome_trace(str(part))
        part.replace(self._set.out / f"{name}.gz")
        self._profiler = None

    def _log(self, record: dict[str, Any]) -> None:
        """One line to `steps/rankN.jsonl`; `capture run` shows its progress from there, `verify` reads times."""
        with contextlib.suppress(OSError):
            folder = self._set.out / "steps"
            folder.mkdir(parents=True, exist_ok=True)
            with (folder / f"rank{self.rank}.jsonl").open("a") as file:
                file.write(json.dumps(record) + "\n")
