"""What `capture run` was asked to do."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from stepscope.errors import BadInput

BACKENDS = ("nsys", "torch")
#: Prefix of the variables that `stepscope.annotate` reads.
PREFIX = "STEPSCOPE_CAPTURE_"
#: The range that starts and ends an nsys capture without CUDA.
NVTX_TRIGGER = "stepscope.capture"


@dataclass(frozen=True)
class Spec:
    """One capture, under one backend after the other."""

    command: tuple[str, ...]
    out: Path
    backends: tuple[str, ...] = ("nsys",)
    warmup: int = 5
    steps: int = 1
    #: one report per `node` or per `rank`
    per: str = "node"
    #: what starts and stops nsys: `cuda` (cudaProfilerApi) or `nvtx` (a range)
    trigger: str = "cuda"
    #: processes per node: we start torchrun; 0: the command starts its own
    nproc: int = 0
    #: ranks in all, where known
    world: int | None = None
    ranks: tuple[int, ...] | None = None
    #: ranks may share a GPU
    share_gpu: bool = False
    nsys: str = "nsys"
    trace: str = "cuda,nvtx"
    port: int = 29500
    #: seconds that a run may take after the capture is over, before it is ended
    grace_s: float = 120.0
    #: seconds that one run needs, asked of an allocation
    need_s: float = 600.0
    max_size: int = 200_000_000
    inputs: tuple[Path, ...] = ()
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

    def environment(self, backend: str, out: Path, token: str) -> dict[str, str]:
        """Variables that switch `annotate` on, and mark every process of the run as ours."""
        found = {
            PREFIX + "BACKEND": backend,
            PREFIX + "WARMUP": str(self.warmup),
            PREFIX + "STEPS": str(self.steps),
            PREFIX + "OUT": str(out),
            PREFIX + "ID": token,
        }
        if backend == "nsys":
            found[PREFIX + "TRIGGER"] = self.trigger
            if self.trigger == "nvtx":
                found["NSYS_NVTX_PROFILER_REGISTER_ONLY"] = "0"
        if self.ranks is not None:
            found[PREFIX + "RANKS"] = ",".join(map(str, self.ranks))
        return found
