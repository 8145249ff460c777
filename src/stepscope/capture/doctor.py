"""What is missing before anything starts, on this node: one row per check, with what to do."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from stepscope.capture import environment, manifest
from stepscope.capture.check import Check, check
from stepscope.capture.nsys import version_of
from stepscope.capture.size import show_size
from stepscope.capture.slurm import Allocation
from stepscope.capture.spec import Spec
from stepscope.errors import BadInput

#: The first nsys whose reports we have read.
_OLDEST = (2021, 5)
#: Capturing ranges of several processes by NVTX, and graph nodes, work from here on.
_GOOD = (2023, 1)


def examine(spec: Spec, gpus: int | None = None, program: str | None = None) -> list[Check]:
    """Every check on this node; `gpus` is how many it must have, `program` the Python that trains."""
    made: list[Check] = []
    if "nsys" in spec.backends:
        made.append(_nsys(spec))
    made.append(_gpus(spec, gpus))
    made += [_permission(spec), _disk(spec), _temporary()]
    made += list(_inputs(spec))
    if spec.nproc:
        made.append(_port(spec.port))
    if program is not None:
        made += environment.python(program, spec)
    return made + environment.machine(spec)


def examine_nodes(spec: Spec, job: Allocation, gpus: int | None = None) -> list[Check]:
    """Every check on every node of an allocation: `capture doctor --here`, started there by srun."""
    options = [
        f"--backend={'both' if len(spec.backends) > 1 else spec.backends[0]}", f"--trigger={spec.trigger}",
        f"--nproc={spec.nproc}", f"--nsys={spec.nsys}", f"--port={spec.port}", f"--max-size={spec.max_size}B",
        f"--output={spec.out}", *(f"--input={p}" for p in spec.inputs), *(["--share-gpu"] if spec.share_gpu else []),
        *(f"--with={want}" for want in spec.wants),
        *([f"--gpus={gpus}"] if gpus is not None else []),
    ]  # fmt: skip
    there = [sys.executable, "-m", "stepscope", "capture", "doctor", "--here", "--format=json", *options]
    each = ["srun", f"--nodes={job.nodes}", "--ntasks-per-node=1", *there]
    done = subprocess.run(each, capture_output=True, text=True, errors="replace", check=False)
    checks: list[Check] = []
    answers = 0
    decoder, text = json.JSONDecoder(), done.stdout.strip()
    while text:  # one object after the other, one for each node
        try:
            answer, end = decoder.raw_decode(text)
        except ValueError:
            break
        checks += [Check(**row) for row in answer["rows"]]
        answers += 1
        text = text[end:].lstrip()
    if answers < job.nodes:
        reason = (done.stderr.strip().splitlines() or ["no answer"])[-1]
        raise BadInput(
            f"have answers of {answers} nodes, need {job.nodes}: srun could not look at the others: {reason}",
            "is stepscope installed on all of them? --no-doctor skips the check",
        )
    return checks


def require(checks: list[Check]) -> None:
    """Refuse to start with something missing."""
    missing = [c for c in checks if c.status == "missing"]
    if missing:
        first = missing[0]
        where = f" on {first.node}" if len({c.node for c in checks}) > 1 else ""
        more = f" (and {len(missing) - 1} more: stepscope capture doctor)" if len(missing) > 1 else ""
        raise BadInput(f"{first.check}{where}: {first.found}, need {first.needed}{more}", first.fix)


def _nsys(spec: Spec) -> Check:
    needed = "nsys " + ".".join(map(str, _GOOD)) + " or newer"
    fix = "install Nsight Systems and put it on the PATH, give --nsys PATH, or take --backend torch"
    where = shutil.which(spec.nsys)
    if where is None:
        there = Path(spec.nsys).exists()
        return check(
            "nsys", False, f"{spec.nsys} {'cannot be run (no permission)' if there else 'not found'}", needed, fix
        )
    version = version_of(where)
    if version is None:
        return check("nsys", False, f"{spec.nsys} --version fails", needed, fix)
    shown = ".".join(map(str, version[:3]))
    return check("nsys", version >= _GOOD, shown, needed, "take a newer one", soft=version >= _OLDEST)


def _gpus(spec: Spec, need: int | None) -> Check:
    have = manifest.visible_gpus()
    if spec.trigger != "cuda" and need is None:
        return check("GPUs", True, str(have), "none: the capture is of the host")
    if need is None:
        need = 1 if spec.share_gpu else max(1, spec.nproc)
    fix = f"plan for them (stepscope capture plan --gpus {have})" if have else "--trigger nvtx captures the host alone"
    # torch.profiler works without a GPU: it records the host
    soft = have == 0 and spec.backends == ("torch",)
    return check("GPUs", have >= need, f"have {have}", str(need), fix, soft)


def _permission(spec: Spec) -> Check:
    """Can the capture be written where it was asked to?"""
    folder = spec.out.absolute().parent
    while not folder.exists():
        folder = folder.parent
    needed = "a folder to write to"
    try:
        with tempfile.TemporaryFile(dir=folder):
            return check("output", True, str(spec.out), needed, "")
    except OSError as error:
        return check("output", False, f"{folder}: {error.strerror}", needed, "choose another -o DIR")


def _disk(spec: Spec) -> Check:
    folder = spec.out.absolute().parent
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    need = 3 * spec.max_size * len(spec.backends)  # raw data, report and export stand side by side for a while
    fix = "free some, choose another -o DIR, or a smaller --max-size"
    return check("disk", free >= need, f"have {show_size(free)} free", show_size(need), fix)


def _temporary() -> Check:
    """nsys collects in the temporary folder before it writes the report."""
    try:
        with tempfile.TemporaryFile():
            return check("temporary folder", True, tempfile.gettempdir(), "writable", "")
    except OSError as error:
        return check("temporary folder", False, str(error.strerror), "writable", "set TMPDIR to a folder with space")


def _inputs(spec: Spec) -> Iterator[Check]:
    for path in spec.inputs:
        there = path.exists()
        yield check(f"input {path.name}", there, str(path) if there else f"{path} is not there", "a file or folder",
                     "make it first")  # fmt: skip


def _port(port: int) -> Check:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            return check("rendezvous port", False, f"{port}: {error.strerror}", "a free port", "give another --port")
    return check("rendezvous port", True, f"{port} is free", "a free port", "")
