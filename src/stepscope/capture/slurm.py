"""The allocation that we are in: nodes and time left, as SLURM says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

from stepscope.errors import BadInput


@dataclass(frozen=True)
class Allocation:
    """A SLURM job. `left_s` is None where it has no limit or does not say."""

    job: str
    nodes: int
    left_s: float | None
    first_host: str


def allocation(env: Mapping[str, str] = os.environ) -> Allocation | None:
    """The job that this shell is in; None outside of one, and inside a step that srun already started."""
    job = env.get("SLURM_JOB_ID") or env.get("SLURM_JOBID")
    if not job or env.get("SLURM_STEP_ID", "batch").isdigit():
        return None
    for tool in ("srun", "scontrol"):
        if shutil.which(tool, path=env.get("PATH")) is None:
            raise BadInput(
                f"SLURM job {job}, but no {tool} on the PATH", "load SLURM's commands, or unset SLURM_JOB_ID"
            )
    shown = _scontrol(["show", "job", "-o", job])
    nodes = re.search(r"\bNumNodes=(\d+)", shown)
    count = int(nodes[1]) if nodes else int(env.get("SLURM_JOB_NUM_NODES", env.get("SLURM_NNODES", "1")))
    listed = re.search(r"\sNodeList=(\S+)", " " + shown)
    hosts = _scontrol(["show", "hostnames", listed[1]]).split() if listed and listed[1] != "(null)" else []
    return Allocation(job, count, _left(shown), hosts[0] if hosts else "127.0.0.1")


def require(found: Allocation, nodes: int | None, need_s: float) -> None:
    """Refuse an allocation that is too small or too short, with the numbers."""
    if nodes is not None and found.nodes < nodes:
        raise BadInput(
            f"SLURM job {found.job}: have {found.nodes} nodes, need {nodes}",
            f"ask for more (salloc --nodes={nodes}), or plan for {found.nodes}",
        )
    if found.left_s is not None and found.left_s < need_s:
        raise BadInput(
            f"SLURM job {found.job}: have {_minutes(found.left_s)} left, need {_minutes(need_s)}",
            "ask for a longer allocation (salloc --time), or say how long a run takes with --need-time",
        )


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.0f} s"


def _scontrol(arguments: list[str]) -> str:
    done = subprocess.run(
        ["scontrol", *arguments], capture_output=True, text=True, errors="replace", check=False, timeout=60
    )
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[0]
        raise BadInput(f"scontrol {' '.join(arguments)} failed: {reason}", "is the job still there?")
    return done.stdout


def _left(shown: str) -> float | None:
    limit, run = (re.search(rf"\b{key}=(\S+)", shown) for key in ("TimeLimit", "RunTime"))
    if limit is None or run is None:
        return None
    total, used = _seconds(limit[1]), _seconds(run[1])
    return None if total is None or used is None else max(0.0, total - used)


def _seconds(text: str) -> float | None:
    """`1-02:03:04`, `02:03:04`, `03:04`; None for UNLIMITED."""
    match = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", text)
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
