"""What `capture run` was asked to do."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from stepscope.capture.size import BYTES
from stepscope.capture.wants import torch_options
from stepscope.errors import BadInput
from stepscope.model.times import nanoseconds

BACKENDS = ("nsys", "torch")
#: What a backend's profiler is called in answers.
BACKEND_OF = {"nsys": "nsys", "torch.profiler": "torch"}
#: Prefix of the variables that `stepscope.annotate` reads.
PREFIX = "STEPSCOPE_CAPTURE_"
#: The range that starts and ends an nsys capture without CUDA.
NVTX_TRIGGER = "stepscope.capture"
#: On the PYTHONPATH of the command: its sitecustomize finds the steps of programs that nobody annotated.
_SITE = Path(__file__).parents[1] / "hooks" / "site"
_TIME = re.compile(r"time=([^+]+)\+([^+]+)")
TRIGGERS = "cuda|nvtx|nvtx=NAME|time=START+LENGTH|none"
#: Steps that lie between two recordings at least: the last is torch.profiler's warm-up.
_BETWEEN = 2
#: Of a report of nsys and its export together, the report's part (size.BYTES).
_OF_REPORT = BYTES["report"] / (BYTES["report"] + BYTES["export"])
RANGES = "phases|modules[=DEPTH]|none"


@dataclass(frozen=True)
class Spec:
    """One capture, under one backend after the other."""

    command: tuple[str, ...]
    out: Path
    backends: tuple[str, ...] = ("nsys",)
    warmup: int = 5
    steps: int = 1
    #: record so many steps again every `every` steps, as long as `max_size` lasts; 0: once
    every: int = 0
    #: one report per `node` or per `rank`
    per: str = "node"
    #: what starts and stops nsys. By steps: `cuda` (cudaProfilerApi) or `nvtx` (a range of ours). Without steps:
    #: `nvtx=NAME` (a range of the program's), `time=START+LENGTH` (seconds), `none` (all of it)
    trigger: str = "cuda"
    #: ranges that hooks add: `phases`, `modules=DEPTH` or `none`
    ranges: str = "phases"
    #: False where the command's own trainer starts and stops the profiler
    hooks: bool = True
    #: processes per node: we start torchrun; 0: the command starts its own
    nproc: int = 0
    #: ranks in all, where known
    world: int | None = None
    ranks: tuple[int, ...] | None = None
    #: ranks may share a GPU
    share_gpu: bool = False
    nsys: str = "nsys"
    trace: str = "cuda,nvtx"
    #: what `--with` named
    wants: tuple[str, ...] = ()
    #: further options of nsys, and keywords of torch.profiler.profile
    nsys_args: tuple[str, ...] = ()
    torch_args: dict[str, bool] = field(default_factory=dict)
    port: int = 29500
    #: seconds that a run may take after the capture is over, before it is ended
    grace_s: float = 120.0
    #: seconds that one run needs, asked of an allocation
    need_s: float = 600.0
    max_size: int = 200_000_000
    inputs: tuple[Path, ...] = ()
    #: names of the experiment, for the manifest
    tags: tuple[tuple[str, str], ...] = ()
    #: variables that ranks may tell of their environment
    told: tuple[str, ...] = ()
    #: files to write beside the capture first, by name; the command may name them as {out}/NAME
    scripts: dict[str, str] = field(default_factory=dict)
    #: where to run the command; None: here
    cwd: Path | None = None

    def __post_init__(self) -> None:
        if not self.command:
            raise BadInput("no command to run", "write it after --, as in capture run -- torchrun train.py")
        for backend in self.backends:
            if backend not in BACKENDS:
                raise BadInput(f"--backend {backend}: not known", "give nsys, torch or both")
        if self.warmup < 0 or self.steps < 1:
            raise BadInput(f"--warmup {self.warmup} --steps {self.steps}", "give 0 or more, and 1 or more")
        if self.every and not self.by_steps:
            raise BadInput(
                f"--every {self.every} --trigger {self.trigger}: nothing counts steps", "leave one of them out"
            )
        if self.every < 0 or 0 < self.every < self.steps + _BETWEEN:
            raise BadInput(
                f"--every {self.every} --steps {self.steps}: recordings would run into each other",
                f"give --every {self.steps + _BETWEEN} or more",
            )
        if not re.fullmatch(r"phases|none|modules(=[1-9]\d*)?", self.ranges):
            raise BadInput(f"--ranges {self.ranges}: not known", f"give {RANGES}")
        if not re.fullmatch(rf"cuda|none|nvtx(=.+)?|{_TIME.pattern}", self.trigger):
            raise BadInput(f"--trigger {self.trigger}: not known", f"give {TRIGGERS}")
        _ = self.time  # one that cannot be read is said here
        if not self.by_steps and "torch" in self.backends:
            raise BadInput(
                f"--trigger {self.trigger}: torch.profiler starts and stops with steps",
                "give --backend nsys, or leave --trigger out",
            )

    @property
    def by_steps(self) -> bool:
        """Whether the profiler starts and stops with training steps."""
        return self.trigger in ("cuda", "nvtx")

    @property
    def time(self) -> tuple[float, float] | None:
        """Seconds before and of the capture, where it is by time."""
        match = _TIME.fullmatch(self.trigger)
        if match is None:
            return None
        start, length = (nanoseconds(part, "--trigger", "s") / 1e9 for part in match.groups())
        return start, length

    def environment(self, backend: str, out: Path, token: str) -> dict[str, str]:
        """Variables that switch `annotate` on, and mark every process of the run as ours."""
        environment = {PREFIX + "OUT": str(out), PREFIX + "ID": token}
        if self.trigger.startswith("nvtx"):
            environment["NSYS_NVTX_PROFILER_REGISTER_ONLY"] = "0"
        if not self.by_steps:
            return environment
        environment |= {
            PREFIX + "BACKEND": backend,
            PREFIX + "WARMUP": str(self.warmup),
            PREFIX + "STEPS": str(self.steps),
            PREFIX + "RANGES": self.ranges,
        }
        if self.every:
            environment[PREFIX + "EVERY"] = str(self.every)
            environment[PREFIX + "BUDGET"] = str(round(self.max_size * (_OF_REPORT if backend == "nsys" else 1.0)))
        if self.told:
            environment[PREFIX + "TELL"] = ",".join(self.told)
        if backend == "nsys":
            environment[PREFIX + "TRIGGER"] = self.trigger
            if {"pytorch", "shapes"} & set(self.wants):
                environment[PREFIX + "EMIT"] = "shapes" if "shapes" in self.wants else "ops"
        elif options := torch_options(self.wants, self.torch_args):
            environment[PREFIX + "TORCH"] = json.dumps(options, sort_keys=True)
        if self.ranks is not None:
            environment[PREFIX + "RANKS"] = ",".join(map(str, self.ranks))
        if self.hooks:
            environment[PREFIX + "HOOKS"] = "1"
            environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(_SITE), os.environ.get("PYTHONPATH"))))
        return environment
