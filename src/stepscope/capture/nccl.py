"""What collectives reach on the ranks of a job: a short sweep with torch, kept beside the job's capture.

The ranks are started as `capture run --nproc` starts them: by torchrun, on every node of a SLURM allocation by srun.
`link_sweep.py` is what they run; it writes files in the columns of nccl-tests.
"""

from __future__ import annotations

import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path

from stepscope import progress
from stepscope.capture import launch, link_sweep, manifest, watch
from stepscope.capture.process import Run
from stepscope.capture.slurm import Allocation
from stepscope.capture.spec import PREFIX, Spec
from stepscope.capture.watchdog import Watchdog
from stepscope.errors import BadInput
from stepscope.files.signals import undisturbed

#: Where it is kept within the folder of a capture.
FOLDER = "nccl"
_LOG = "log.txt"
_SCRIPT = Path(link_sweep.__file__)


@dataclass(frozen=True)
class Sweep:
    """What to measure, and with which ranks."""

    folder: Path
    nproc: int
    operations: tuple[str, ...]
    backend: str = "nccl"
    least: int = 1 << 10
    most: int = 1 << 28
    python: str = "python3"
    port: int = 29500

    def argv(self, job: Allocation | None) -> list[str]:
        """The command line that starts all ranks."""
        script = (str(_SCRIPT), str(self.folder.absolute()), "--backend", self.backend)
        what = ("--operations", ",".join(self.operations), "--least", str(self.least), "--most", str(self.most))
        spec = Spec((self.python, *script, *what), self.folder, nproc=self.nproc, port=self.port)
        made = launch.torchrun(spec, self.folder.absolute() / launch.LOGS, job)
        if job is None:
            return made
        return ["srun", f"--nodes={job.nodes}", "--ntasks-per-node=1", "--kill-on-bad-exit=1", "--export=ALL", *made]


def folder_of(output: Path) -> Path:
    """Beside the files of a capture, in a folder of its own; else the folder itself."""
    return output / FOLDER if (output / manifest.FILE).is_file() else output


def check(sweep: Sweep) -> None:
    """Refuse what cannot be measured."""
    if sweep.nproc < 1:
        raise BadInput("no GPU is visible here, so nothing shows how many ranks to start", "give --nproc N")
    if not Path(sweep.python).name.startswith("python"):
        raise BadInput(f"--python {sweep.python}: is not named like one", "name the training environment's bin/python")
    if not 0 < sweep.least <= sweep.most:
        raise BadInput(f"--min {sweep.least} --max {sweep.most}: no sizes lie between", "give other sizes")
    if sweep.folder.exists() and any(p.name != _LOG for p in sweep.folder.iterdir()):
        raise BadInput(f"-o {sweep.folder}: already exists", "name another folder, or remove it")


def run(sweep: Sweep, job: Allocation | None) -> list[Path]:
    """Start the ranks and wait; the files, one for each operation."""
    check(sweep)
    try:
        sweep.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"-o {sweep.folder}: {error.strerror}", "choose another folder") from None
    log, token = sweep.folder / _LOG, secrets.token_hex(8)
    log.unlink(missing_ok=True)
    started: Run | None = None
    try:
        with Watchdog(token, sweep.folder):
            with undisturbed():
                started = Run(tuple(sweep.argv(job)), {PREFIX + "ID": token}, log, token)
            status = started.wait(lambda: _tick(sweep))
    finally:
        if started is not None:
            started.end()
        shutil.rmtree(sweep.folder / launch.LOGS, ignore_errors=True)
    files = sorted(sweep.folder.glob("*_perf.txt"))
    if status or not files:
        for file in files:
            file.unlink()
        raise BadInput(f"the sweep failed with status {status}: {watch.reason(log)} (its output: {log})", _hint(log))
    log.unlink(missing_ok=True)
    return files


def _tick(sweep: Sweep) -> bool:
    progress.report("measuring collectives", len(list(sweep.folder.glob("*_perf.txt"))), len(sweep.operations))
    return False


def _hint(log: Path) -> str:
    output = log.read_text("utf-8", "replace") if log.is_file() else ""
    if "No module named 'torch'" in output:
        return "name the Python of the training environment: --python PATH"
    return "NCCL needs a GPU for each rank: fewer with --nproc, or --backend gloo to try it out without GPUs"


def default_nproc(backend: str) -> int:
    """A rank for each visible GPU; two where there are none to be had."""
    return manifest.visible_gpus() if backend == "nccl" else max(2, manifest.visible_gpus())
