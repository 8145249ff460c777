"""What was run, beside what was recorded: the scenario that comparisons need. Nothing private gets in.

Where each node of a job captured into a folder of its own, their manifests are read as one.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec

from stepscope.errors import BadInput
from stepscope.files import whole
from stepscope.model.fields import MOST_RANKS

#: What every rank tells of itself, by rank.
_BY_RANK = ("step_ns", "step_began_ns", "spans", "hooks", "environments")


def merged(contents: Iterable[dict[str, Any]]) -> dict[str, Any] | None:
    """The first, with all others of the same job: the same profiler, and other ranks. Other runs are left out."""
    whole: dict[str, Any] | None = None
    for content in contents:
        if whole is None:
            whole = content
        elif _one_job(whole, content):
            whole = _together(whole, content)
    return whole


def _ranks(content: Mapping[str, Any]) -> set[str]:
    return set(content["captured"].get("step_ns") or ())


def _one_job(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    if a["scenario"].get("backend") != b["scenario"].get("backend"):
        return False
    one, other = _ranks(a), _ranks(b)
    return bool(one and other) and not one & other


def _together(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, Any]:
    one, other = (content["captured"] for content in (a, b))
    captured = {**one, **{key: {**(one.get(key) or {}), **(other.get(key) or {})} for key in _BY_RANK}}
    captured["files"] = [*(one.get("files") or ()), *(other.get("files") or ())]
    captured["took_s"] = max(one.get("took_s") or 0, other.get("took_s") or 0)
    stated = [content["scenario"].get("ranks") or 0 for content in (a, b)]
    traced = [content["scenario"].get("traced") for content in (a, b)]
    scenario = {
        **a["scenario"],
        "ranks": max(*stated, len(captured["step_ns"])),  # a node alone may only have counted its own
        "traced": None if None in traced else sorted({rank for ranks in traced for rank in ranks}),
    }
    return {**a, "scenario": scenario, "captured": captured}


FILE = "manifest.json"
SCHEMA = "stepscope-capture/1"

# fmt: off
#: Variables that change what a run does, and hold nothing private. Everything else stays out, whatever its name.
VARIABLES = frozenset({
    "CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_DEVICE_ORDER", "CUDA_LAUNCH_BLOCKING", "CUDA_MODULE_LOADING",
    "CUDA_VISIBLE_DEVICES", "CUBLAS_WORKSPACE_CONFIG", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES",
    "GPU_MAX_HW_QUEUES", "HSA_ENABLE_SDMA", "NCCL_ALGO", "NCCL_PROTO", "NCCL_BUFFSIZE", "NCCL_NTHREADS",
    "NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS", "NCCL_MIN_CTAS", "NCCL_MAX_CTAS", "NCCL_P2P_DISABLE",
    "NCCL_P2P_LEVEL", "NCCL_SHM_DISABLE", "NCCL_IB_DISABLE", "NCCL_NET_GDR_LEVEL", "NCCL_CROSS_NIC",
    "NCCL_NVLS_ENABLE", "NCCL_CUMEM_ENABLE", "NCCL_NET", "NCCL_LAUNCH_MODE", "NCCL_GRAPH_REGISTER",
    "NCCL_COLLNET_ENABLE", "NCCL_PXN_DISABLE", "NCCL_P2P_NET_CHUNKSIZE", "NCCL_IB_QPS_PER_CONNECTION",
    "NCCL_SOCKET_NTHREADS", "NCCL_NSOCKS_PERTHREAD", "TORCH_NCCL_AVOID_RECORD_STREAMS", "TORCH_NCCL_HIGH_PRIORITY",
    "TORCH_NCCL_BLOCKING_WAIT", "TORCH_NCCL_USE_COMM_NONBLOCKING", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "TORCHINDUCTOR_MAX_AUTOTUNE", "TORCH_COMPILE_DISABLE",
    "TORCHDYNAMO_DISABLE", "NVTE_FLASH_ATTN", "NVTE_FUSED_ATTN", "NVIDIA_TF32_OVERRIDE", "NVSHMEM_DISABLE_P2P",
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "SLURM_JOB_NUM_NODES", "SLURM_NTASKS_PER_NODE", "SLURM_GPUS_PER_NODE",
    "WORLD_SIZE", "STEPSCOPE_CAPTURE_WARMUP", "STEPSCOPE_CAPTURE_STEPS", "STEPSCOPE_CAPTURE_RANKS",
    "STEPSCOPE_CAPTURE_TRIGGER", "STEPSCOPE_CAPTURE_EVERY",
})
# fmt: on
_HIDDEN = "***"
#: What is shorter says yes, no or how many.
_SHORTEST_KEY = 6
_PRIVATE = re.compile(r"token|secret|passw|credential|api[-_]?key|auth|access[-_]?key|private", re.IGNORECASE)
_USER_IN_URL = re.compile(r"(\w+://)[^/@\s]+@")
#: What a token looks like, wherever it stands: long, without a separator, letters and digits mixed.
_LOOKS_SECRET = re.compile(r"^(?:hf_|sk-|ghp_|gho_|github_pat_|glpat-|xox[bp]-|AKIA|wandb_)\S{8,}$|^eyJ\S{20,}$")


#: Numbers and truths alone: a step, in a line of its own, and not in four.
_A_STEP = re.compile(r"\[\s+(?:\d+,\s+)*(?:\d+|true|false)\s+\]")
#: Half a century in ns: times are added and divided.
_LONGEST_NS = 1 << 60
_Ns = Annotated[int, msgspec.Meta(ge=0, le=_LONGEST_NS)]
_Positive = Annotated[int, msgspec.Meta(ge=1, le=_LONGEST_NS)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=MOST_RANKS)]


class _Machine(msgspec.Struct):
    gpus: list[Any] = []


class _Scenario(msgspec.Struct):
    """What is asked of a scenario, beyond what differs between two."""

    ranks: _Count | None = None
    steps: _Count | None = None
    traced: list[_Count] | None = None
    machine: _Machine = msgspec.field(default_factory=_Machine)
    with_: list[str] | None = msgspec.field(default=None, name="with")


class _Captured(msgspec.Struct):
    #: by rank: [ns, profiled] of every step in order
    step_ns: dict[str, list[tuple[_Ns, bool]]] | None = None
    #: by rank: when each of them began, by a clock of the rank
    step_began_ns: dict[str, list[_Ns]] | None = None
    #: by rank: [steps, ns, profiled] between two synchronizes of the device
    spans: dict[str, list[tuple[_Positive, _Positive, bool]]] | None = None
    #: what was asked of torch.compile: backend, mode, dynamic, fullgraph
    compiled_with: list[dict[str, Any]] | None = None
    #: by rank: what the rank itself says of its environment
    environments: dict[Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,9}$")], dict[str, Any]] | None = None
    #: steps that were timed without a profiler, in a run of its own
    unprofiled_step_ns: list[_Ns] | None = None


class _Manifest(msgspec.Struct):
    """The part of a manifest that others rely on: `read` refuses one where it has other types."""

    scenario: _Scenario
    captured: _Captured


def safe_environment(env: Mapping[str, str]) -> dict[str, str]:
    """The allowed variables that are set; a value that looks like a credential is hidden even there."""
    return {k: _HIDDEN if _LOOKS_SECRET.search(env[k]) else env[k] for k in sorted(VARIABLES & set(env))}


def looks_private(name: str, value: str) -> bool:
    """Whether a variable holds a token, a key or a password, as far as its name and value tell; a path is none."""
    named = _PRIVATE.search(name) is not None and len(value) >= _SHORTEST_KEY and value[0] not in "/~"
    return named or bool(_LOOKS_SECRET.search(value) or _USER_IN_URL.search(value))


def safe_command(argv: Sequence[str]) -> list[str]:
    """The command with values of private-looking options hidden, and `NAME=value` kept only where NAME is allowed."""
    shown: list[str] = []
    hide = False
    for word in argv:
        name, eq, value = word.partition("=")
        if hide:
            shown.append(_HIDDEN)
            hide = False
        elif _LOOKS_SECRET.search(word) or _LOOKS_SECRET.search(value):
            shown.append(f"{name}={_HIDDEN}" if eq else _HIDDEN)
        elif word.startswith("-") and _PRIVATE.search(name):
            shown.append(f"{name}={_HIDDEN}" if eq else word)
            hide = not eq
        elif eq and (_PRIVATE.search(name) or (re.fullmatch(r"[A-Z][A-Z0-9_]*", name) and name not in VARIABLES)):
            shown.append(f"{name}={_HIDDEN}")
        else:
            shown.append(_USER_IN_URL.sub(rf"\1{_HIDDEN}@", word))
    return shown


def git_state(folder: Path) -> dict[str, Any] | None:
    """Commit and whether anything was changed since; None outside a repository."""
    head = _ask(["git", "-C", str(folder), "rev-parse", "HEAD"])
    if head is None:
        return None
    changed = _ask(["git", "-C", str(folder), "status", "--porcelain", "--untracked-files=no"]) or ""
    return {"commit": head.strip(), "changed_files": len(changed.splitlines())}


def gpus() -> list[dict[str, str]]:
    """Names, drivers and memory of the GPUs of this node."""
    listed = _ask(["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"])
    rows = [line.split(", ") for line in (listed or "").splitlines() if line.count(", ") == 2]
    return [{"name": n, "driver": d, "memory": m} for n, d, m in rows]


def visible_gpus() -> int:
    """How many GPUs programs may use here."""
    there, visible = len(gpus()), os.environ.get("CUDA_VISIBLE_DEVICES")
    return there if visible is None else min(there, len([d for d in visible.split(",") if d.strip()]))


def machine() -> dict[str, Any]:
    """What of this node matters to a figure."""
    return {"gpus": gpus(), "cpus": os.cpu_count(), "python": platform.python_version(), "system": platform.system()}


def write(folder: Path, content: dict[str, Any]) -> Path:
    """The manifest of a capture, complete or not there."""
    file = folder / FILE
    text = json.dumps({"schema": SCHEMA, **content}, indent=1, sort_keys=True)
    whole.write(file, f"{_A_STEP.sub(_in_a_line, text)}\n".encode(), "{}")
    return file


def _in_a_line(step: re.Match[str]) -> str:
    return re.sub(r"\s+", " ", step[0]).replace("[ ", "[").replace(" ]", "]")


def read(folder: Path) -> dict[str, Any] | None:
    """The manifest beside a capture; None where there is none."""
    file = folder / FILE
    if not file.is_file():
        return None
    try:
        content = msgspec.json.decode(file.read_bytes())
        flat(content)
    except (OSError, ValueError, RecursionError):
        raise BadInput(f"{file}: cannot be read", "remove it, or capture again") from None
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        raise BadInput(f"{file}: not the manifest of a capture", "remove it, or capture again")
    try:
        msgspec.convert(content, _Manifest)
    except msgspec.ValidationError as error:
        raise BadInput(f"{file}: {told(error)}", "remove it, or capture again") from None
    return content


def told(error: msgspec.ValidationError) -> str:
    """`scenario.ranks: Expected int, got str`."""
    what, _, where = str(error).partition(" - at ")
    return f"{where.strip('`').removeprefix('$.') or 'it'}: {what}"


def of(paths: Iterable[Path]) -> dict[str, Any] | None:
    """The manifest that `capture run` left beside the first of these files that has one."""
    return of_folders(p.parent for p in paths)


def of_folders(folders: Iterable[Path], backend: str | None = None) -> dict[str, Any] | None:
    """The manifest of the first of these folders that has one, with those of the job's other nodes among them.

    Where `backend` is given, only of captures by that profiler.
    """
    manifests = map(read, {folder.absolute(): folder for folder in folders}.values())
    return merged(c for c in manifests if c is not None and backend in (None, c["scenario"].get("backend")))


def differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """What differs between two scenarios: (key, in a, in b). Times, sizes and files are not part of a scenario."""
    left, right = flat(a.get("scenario", {})), flat(b.get("scenario", {}))
    return [(k, left.get(k), right.get(k)) for k in sorted(left.keys() | right.keys()) if left.get(k) != right.get(k)]


def flat(value: Any, at: str = "") -> dict[str, Any]:
    """What lies within, by dotted names."""
    if not isinstance(value, dict):
        return {at: value}
    return {k: v for key, inner in value.items() for k, v in flat(inner, f"{at}.{key}" if at else str(key)).items()}


def _ask(argv: list[str]) -> str | None:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, errors="replace", check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
