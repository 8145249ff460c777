"""The environment of a capture: the Python that trains, and what of this machine spoils figures or forbids them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

from stepscope.capture.check import Check, check
from stepscope.capture.nsys import Nsys
from stepscope.capture.spec import Spec

#: Asked of the Python that trains.
_IMPORTS = """
import importlib.util, json, sys
found = {"python": sys.version.split()[0], "nvtx": importlib.util.find_spec("nvtx") is not None}
try:
    import torch
    found |= {"torch": torch.__version__, "cuda": torch.cuda.is_available()}
    from torch.optim.optimizer import Optimizer
    found["hooks"] = hasattr(Optimizer, "profile_hook_step") and hasattr(torch.autograd.Variable, "_execution_engine")
except Exception as error:
    found["error"] = f"{type(error).__name__}: {error}"
print(json.dumps(found))
"""
#: Reasons for which a GPU runs slower than it could, in nvidia-smi's words; idle is none.
_SLOWED = ("hw_slowdown", "hw_thermal_slowdown", "sw_thermal_slowdown", "hw_power_brake_slowdown")


def python(program: str, spec: Spec) -> list[Check]:
    """Whether it imports what the capture needs."""
    name = "training Python"
    if shutil.which(program) is None:
        return [check(name, False, f"{program} is not there", "a Python", "name it in the command")]
    try:
        done = subprocess.run([program, "-c", _IMPORTS], capture_output=True, text=True, check=False, timeout=180)
        answer = json.loads(done.stdout.strip().splitlines()[-1])
    except (OSError, subprocess.TimeoutExpired, ValueError, IndexError):
        return [check(name, False, f"{program} answers nothing", "a Python that runs", "run it by hand")]
    if not spec.by_steps:
        return [check(name, True, answer["python"], "any, as nothing starts by steps")]
    if "torch" not in answer:
        fix = "name the Python of the training environment; without torch, give --trigger none, nvtx=NAME or time=…"
        return [check(name, False, answer.get("error", "no torch"), "torch", fix)]
    shown = f"Python {answer['python']}, torch {answer['torch']}" + ("" if answer["cuda"] else " without a GPU")
    made = [check(name, True, shown, "torch")]
    fix = "take torch 2.0 or newer, or mark steps with stepscope.annotate"
    made.append(check("torch's hooks", bool(answer["hooks"]), "there" if answer["hooks"] else "missing", "there", fix))
    if "nsys" in spec.backends and (spec.trigger == "nvtx" or not answer["cuda"]):
        there = answer["nvtx"]
        needed = "to start the capture (--trigger nvtx)" if spec.trigger == "nvtx" else "to write ranges without a GPU"
        found_text = "there" if there else "missing"
        made.append(check("nvtx package", there, found_text, needed, "pip install nvtx==0.2.10"))
    return made


def machine(spec: Spec) -> list[Check]:
    """Permission for counters and samples, containers, clocks: what is wrong spoils figures, and is a warning."""
    made = []
    level = _read("/proc/sys/kernel/perf_event_paranoid")
    where = "a container" if _contained() else "no container"
    if level is not None:
        wanted = {"cpu", "stacks"} & set(spec.wants)
        fix = "sysctl kernel.perf_event_paranoid=2" + ("; start it with --cap-add=SYS_ADMIN" if _contained() else "")
        made.append(
            check("CPU samples", int(level) <= 2 or os.geteuid() == 0, f"perf_event_paranoid {level}, {where}",
                  "at most 2 (--with cpu, stacks)", fix, soft=not wanted)
        )  # fmt: skip
    nsys = Nsys.there(spec.nsys) if "nsys" in spec.backends else None
    if nsys is not None and (gpu := _smi("name")):
        why = nsys.no_gpu_metrics()
        fix = "run as root, or modprobe nvidia NVreg_RestrictProfilingToAdminUsers=0"
        made.append(
            check("GPU counters", why is None, why or f"{len(gpu)} GPUs", "permitted (--with gpu-metrics)", fix,
                  soft="gpu-metrics" not in spec.wants)
        )  # fmt: skip
    return made + _clocks()


def _clocks() -> list[Check]:
    rows = _smi(",".join(f"clocks_event_reasons.{reason}" for reason in _SLOWED)) or _smi(
        ",".join(f"clocks_throttle_reasons.{reason}" for reason in _SLOWED)
    )
    if not rows:
        return []
    slowed = {i: [r for r, v in zip(_SLOWED, row, strict=False) if v == "Active"] for i, row in enumerate(rows)}
    slowed = {i: reasons for i, reasons in slowed.items() if reasons}
    slow = "; ".join(f"GPU {i}: {', '.join(reasons)}" for i, reasons in slowed.items()) or "none is slowed down"
    fix = "check cooling and power (nvidia-smi -q -d PERFORMANCE); figures of such a GPU do not carry over to others"
    return [check("clocks", not slowed, slow, "no GPU slowed down", fix, soft=True)]


def _contained() -> bool:
    return any(Path(p).exists() for p in ("/.dockerenv", "/run/.containerenv", "/.singularity.d"))


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return None


def _smi(query: str) -> list[list[str]]:
    try:
        done = subprocess.run(
            ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"], capture_output=True, text=True,
            errors="replace", check=False, timeout=30,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [[v.strip() for v in line.split(",")] for line in done.stdout.splitlines()] if done.returncode == 0 else []
