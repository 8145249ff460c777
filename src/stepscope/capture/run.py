"""Run the command under the profiler, watch its steps, export, and put the result in place: all of it or nothing."""

from __future__ import annotations

import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepscope import progress
from stepscope.capture import collecting, content, watch
from stepscope.capture.collecting import LOG, Export
from stepscope.capture.launch import LOGS, Launch, launch
from stepscope.capture.process import Run, carrying
from stepscope.capture.slurm import Allocation
from stepscope.capture.spec import Spec
from stepscope.capture.watchdog import Watchdog
from stepscope.capture.working_folder import alone
from stepscope.errors import BadInput, StepscopeError
from stepscope.files.signals import undisturbed

#: Bytes free on a disk that is as good as full.
_FULL = 1_000_000
#: What torch.compile said of graph breaks and recompiles, a file per rank.
COMPILER_LOGS = "compile"
#: Shows what a command says while it runs.
Show = Callable[[str], None]


@dataclass(frozen=True)
class Captured:
    """One backend's files, in place."""

    backend: str
    folder: Path
    files: tuple[Path, ...]
    manifest: dict[str, Any]

    @property
    def relative(self) -> list[Path]:
        """The files as seen from the folder."""
        return [file.relative_to(self.folder) for file in self.files]


def folders(spec: Spec) -> dict[str, Path]:
    """Where each backend's files will lie."""
    return {b: spec.out / b if len(spec.backends) > 1 else spec.out for b in spec.backends}


def launches(spec: Spec, job: Allocation | None) -> list[Launch]:
    """The commands of a dry run."""
    return [launch(spec, backend, folder.absolute(), "dry-run", job) for backend, folder in folders(spec).items()]


def check_output(spec: Spec) -> None:
    """Refuse to write where something is; the log of a run that failed may be replaced."""
    if spec.out.exists() and (not spec.out.is_dir() or any(p.name != LOG for p in spec.out.iterdir())):
        raise BadInput(f"-o {spec.out}: already exists", "name another folder, or remove it")


def last_lines(spec: Spec, count: int = 10) -> list[str]:
    """The end of the log that a failed run left."""
    try:
        return (spec.out / LOG).read_text("utf-8", "replace").splitlines()[-count:]
    except OSError:
        return []


def capture(spec: Spec, job: Allocation | None, export: Export, show: Show | None = None) -> list[Captured]:
    """Run under each backend. Of a run that fails, the log of the command stays, and nothing else."""
    check_output(spec)
    part = spec.out.absolute().with_name(f".{spec.out.name}.part")
    with alone(part, spec.out):
        try:
            captures = [_one(spec, backend, part, job, export, show) for backend in spec.backends]
            if spec.out.is_dir():
                shutil.rmtree(spec.out)
            part.replace(spec.out)
        except StepscopeError as error:
            if _keep_log(part, spec.out):
                raise type(error)(f"{error.message} (its output: {spec.out / LOG})", error.hint) from None
            raise
        except OSError as error:
            what = f"{error.filename or spec.out}: {error.strerror}"
            raise BadInput(f"cannot write the capture ({what})", "free some space, or choose another -o") from None
        final = folders(spec)
        return [
            Captured(c.backend, final[c.backend], tuple(final[c.backend] / f for f in c.relative), c.manifest)
            for c in captures
        ]


def _keep_log(part: Path, out: Path) -> bool:
    """The newest log of what is thrown away, put where the capture would have been."""
    logs = sorted(part.rglob(LOG), key=lambda p: p.stat().st_mtime)
    if not logs or not logs[-1].stat().st_size:
        return False
    out.mkdir(parents=True, exist_ok=True)
    logs[-1].replace(out / LOG)
    return True


def _one(spec: Spec, backend: str, part: Path, job: Allocation | None, export: Export, show: Show | None) -> Captured:
    """Run under one backend, below the folder `part`."""
    folder = part / backend if len(spec.backends) > 1 else part
    folder.mkdir(parents=True, exist_ok=True)
    token = secrets.token_hex(8)
    what = launch(spec, backend, folder, token, job)
    for path, text in what.files.items():
        path.write_text(text, "utf-8")
        path.chmod(0o755)
    log = folder / LOG
    began = time.time()
    with Watchdog(token, part):
        status, ended, full = _follow(spec, backend, what, folder, log, token, show)
        steps = watch.read(folder)
        _judge(spec, backend, folder, log, steps, status, ended, full)
        with carrying(token):
            files = collecting.collected(spec, backend, folder, export)
    for path in what.files:
        path.unlink(missing_ok=True)
    shutil.rmtree(folder / LOGS, ignore_errors=True)
    _drop_empty(folder / COMPILER_LOGS)
    made = content.of(spec, backend, folder, steps, files, time.time() - began, ended)
    made["captured"]["exit_status"] = status
    collecting.write_manifests(folder, files, made)
    return Captured(backend, folder, tuple(files), made)


def _drop_empty(folder: Path) -> None:
    """Logs of torch.compile where nothing was compiled, or all went well."""
    for file in folder.glob("*.log"):
        if not file.stat().st_size:
            file.unlink()
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def _follow(
    spec: Spec, backend: str, what: Launch, folder: Path, log: Path, token: str, show: Show | None
) -> tuple[int | None, bool, bool]:
    """Until the command ends, or has had its grace after the capture: (exit status, whether we ended it, whether a disk
    was full at a time: programs die of that in many ways, and what they had written is gone when they are)."""
    total = spec.warmup + spec.steps
    watcher = watch.Watcher(folder)
    over_at: list[float] = []
    full_at: list[float] = []

    log.touch()
    output = log.open("r", encoding="utf-8", errors="replace") if show is not None else None

    def tell() -> None:
        if output is not None and show is not None and (text := output.read()):
            show(text)

    def tick() -> bool:
        tell()
        steps = watcher.read()
        if not full_at and _full(folder):
            full_at.append(time.monotonic())
        done = min(steps.done, total)
        progress.report(
            f"{backend}: waiting for the first step" if not done else f"{backend}: step", done or None, total
        )
        if steps.over and steps.over == steps.ranks and not over_at:
            over_at.append(time.monotonic())
        return bool(over_at) and time.monotonic() - over_at[0] > spec.grace_s

    run: Run | None = None
    try:
        with undisturbed():  # a signal between starting it and knowing of it would leave it running
            run = Run(what.argv, what.env, log, token, what.cwd)
        status = run.wait(tick)
        tell()
    finally:
        if run is not None:
            run.end()  # also what a command that has ended left running, or one that goes on after the capture
        if output is not None:
            output.close()
    return status, status is None, bool(full_at) or _full(folder)


def _judge(
    spec: Spec, backend: str, folder: Path, log: Path, steps: watch.Steps, status: int | None, ended: bool, full: bool
) -> None:
    """Whether there is a capture at all; if not, why, in one line."""
    # A job that fails after the capture, while it tears down, has been captured all the same.
    complete = (
        steps.ranks and steps.stopped == steps.ranks and collecting.reports(folder, backend) and not watch.no_space(log)
    )
    if not ended and status and not complete:
        where = f" in step {steps.done}" if steps.ranks else " before its first step"
        why = watch.reason(log)
        if watch.no_space(log) or full:
            raise BadInput(f"no space left on the device{where} ({why})", "free some, or choose another -o and TMPDIR")
        raise BadInput(f"the command failed with status {status}{where}: {why}", _hint(why))
    need = spec.warmup + spec.steps
    if steps.ranks and steps.stopped < steps.ranks and steps.refused:
        raise BadInput(steps.refused, "switch its profiler off, or give --backend nsys")
    if steps.ranks and steps.stopped < steps.ranks and steps.failed:
        raise BadInput(
            f"the capture failed in stepscope's hooks, not in the command, which went on: {steps.failed}",
            "pip install nvtx" if "'nvtx'" in steps.failed else "report it with log.txt, or mark steps yourself",
        )
    if steps.ranks and steps.stopped < steps.ranks:
        raise BadInput(
            f"the command ended after {steps.done} steps, need {need} ({spec.warmup} warm-up, {spec.steps} profiled)",
            "let it run longer, or give --warmup and --steps",
        )
    if not steps.ranks and not collecting.reports(folder, backend):
        if spec.time is not None:
            what = f"nothing was captured: the command ended within {spec.time[0]:g} s"
            raise BadInput(what, "give --trigger an earlier time=START+LENGTH")
        raise BadInput(
            "nothing was captured: the command stepped no torch optimizer, and did not start the profiler itself",
            "without torch, give --trigger none, nvtx=NAME or time=START+LENGTH; or mark steps: docs/capture.md",
        )


def _hint(why: str) -> str:
    """What to do about a command that failed."""
    if "No module named 'stepscope'" in why:
        return "it must be importable there too: pip install --no-deps stepscope, or its src on the PYTHONPATH"
    if "No module named 'torch'" in why:
        return "name the Python of the training environment in the command"
    if re.search(r"OutOfMemoryError|CUDA out of memory", why):
        return (
            "call torch.cuda.memory._record_memory_history() first and _dump_snapshot('oom.pickle') where it fails: "
            "`stepscope memory oom.pickle` says what would fit"
        )
    return "run it without capture first"


def _full(folder: Path) -> bool:
    """Whether nothing more can be written there, or to the temporary folder."""
    return any(shutil.disk_usage(place).free < _FULL for place in (folder, tempfile.gettempdir()))
