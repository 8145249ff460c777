"""torch.profiler, nsys and NVTX, as far as a capture needs them; torch is imported only when one of them is used."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from stepscope.annotate import cupti
from stepscope.annotate.safety import harmless

#: The range that starts and ends an nsys capture where there is no CUDA: `--capture-range=nvtx`.
TRIGGER = "stepscope.capture"
_MEETING_S = 600.0
#: A key of the job's store: set where a rank will not come to meetings any more.
_FAILED = "stepscope/failed"
#: What a node is, told by files: the driver's version, and how its CPUs choose their clock.
_FILES = {
    "driver": ("/proc/driver/nvidia/version", r"(?<= )\d+\.\d+(?:\.\d+)?(?= )"),
    "governor": ("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", r"\w+"),
}
#: Keywords that are of torch's CUPTI backend.
_CUPTI = "cupti_"
_ours = False  # whether it is us who start or stop the profiler right now


class Emitter(Protocol):
    """Where ranges go."""

    def push(self, text: str) -> None: ...

    def pop(self) -> None: ...


class TorchEmitter:
    """Ranges as torch.profiler's annotations."""

    def __init__(self) -> None:
        import torch

        self._make = torch.profiler.record_function
        self._open: list[Any] = []

    def push(self, text: str) -> None:
        made = self._make(text)
        made.__enter__()
        self._open.append(made)

    def pop(self) -> None:
        self._open.pop().__exit__(None, None, None)


class _TorchNvtx:
    """NVTX by torch."""

    def __init__(self) -> None:
        import torch

        self.push: Any = torch.cuda.nvtx.range_push
        self.pop: Any = torch.cuda.nvtx.range_pop


class _PlainNvtx:
    """NVTX by the `nvtx` package, where torch was built without CUDA."""

    def __init__(self) -> None:
        import nvtx

        self.push: Any = nvtx.push_range
        self.pop: Any = nvtx.pop_range


def nvtx_emitter() -> Emitter | None:
    """What writes NVTX ranges here; None, with a line on stderr, where nothing does."""
    if _cuda() is not None:
        return _TorchNvtx()
    try:
        return _PlainNvtx()
    except ImportError:
        print("stepscope: no CUDA torch and no `nvtx` package: ranges are not recorded", file=sys.stderr)
        return None


def _cuda() -> Any:
    """torch.cuda where it is usable."""
    torch = sys.modules.get("torch")
    return torch.cuda if torch is not None and torch.cuda.is_available() else None


def synchronize() -> None:
    cuda = _cuda()
    if cuda is not None and cuda.is_initialized():
        cuda.synchronize()


def about() -> dict[str, Any]:
    """What ran, for the manifest."""
    torch, cuda = sys.modules.get("torch"), _cuda()
    if torch is None:
        return {}
    about: dict[str, Any] = {"torch": torch.__version__, "cuda": torch.version.cuda}
    about |= {"host": socket.gethostname().split(".")[0], "python": platform.python_version()}
    about |= {name: text for name, (path, pattern) in _FILES.items() if (text := _first(path, pattern))}
    names = filter(None, os.environ.get("STEPSCOPE_CAPTURE_TELL", "").split(","))
    about["variables"] = {name: os.environ[name] for name in names if name in os.environ}
    if cuda is not None:
        about["gpu"] = cuda.get_device_name()
        with contextlib.suppress(Exception):
            about["nccl"] = ".".join(map(str, cuda.nccl.version()))
    return about


def _first(path: str, pattern: str) -> str | None:
    """What a file of the system says."""
    try:
        with open(path) as file:  # noqa: PTH123
            match = re.search(pattern, file.read())
    except OSError:
        return None
    return match[0] if match else None


def clocks() -> list[str]:
    """Clocks and power limits of the GPUs of this node; asked by one of its ranks, as it takes a moment."""
    if _cuda() is None or os.environ.get("LOCAL_RANK", "0") != "0":
        return []
    query = "--query-gpu=index,name,clocks.max.sm,clocks.applications.graphics,power.limit"
    try:
        done = subprocess.run(
            ["nvidia-smi", query, "--format=csv,noheader"], capture_output=True, text=True, check=False, timeout=20
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.splitlines() if done.returncode == 0 else []


def emit_operators(what: str) -> Any:
    """torch's operators as NVTX ranges, from now on; None where they are not asked for, or there is no CUDA."""
    if not what or _cuda() is None:
        return None
    import torch

    opened = torch.autograd.profiler.emit_nvtx(record_shapes=what == "shapes")
    opened.__enter__()
    return opened


def records_already() -> bool:
    """Whether the program's own torch.profiler records right now: two cannot."""
    autograd: Any = getattr(sys.modules.get("torch"), "autograd", None)
    enabled = getattr(autograd, "_profiler_enabled", None)
    return bool(enabled is not None and enabled())


def torch_profiler(warm: bool, options: Mapping[str, bool]) -> Any:
    import torch

    backend = {key.removeprefix(_CUPTI) for key, on in options.items() if on and key.startswith(_CUPTI)}
    keywords = {key: on for key, on in options.items() if not key.startswith(_CUPTI)}
    activities: list[Any] = [torch.profiler.ProfilerActivity.CPU]
    if _cuda() is not None:
        cuda = torch.profiler.ProfilerActivity.CUDA
        activities.append({cuda: cupti.configuration(torch.profiler, backend)} if backend else cuda)
    schedule = torch.profiler.schedule(wait=0, warmup=int(warm), active=1 << 30, repeat=1)
    return torch.profiler.profile(activities=activities, schedule=schedule if warm else None, **keywords)


def watch_graphs(options: Mapping[str, bool]) -> None:
    """Edges of a graph are read when it is made, long before it is recorded: once such a profiler was configured."""
    if options.get(f"{_CUPTI}graph") and _cuda() is not None:
        torch_profiler(False, options)


def nsys_start(trigger: str) -> Any:
    if trigger == "nvtx":
        import nvtx

        return nvtx.start_range(TRIGGER)
    import torch

    with _by_us():
        torch.cuda.cudart().cudaProfilerStart()  # type: ignore[no-untyped-call, unused-ignore]
    return None


def nsys_stop(trigger: str, opened: Any) -> None:
    if trigger == "nvtx":
        import nvtx

        nvtx.end_range(opened)
        return
    import torch

    with _by_us():
        torch.cuda.cudart().cudaProfilerStop()  # type: ignore[no-untyped-call, unused-ignore]


@contextlib.contextmanager
def _by_us() -> Iterator[None]:
    """Within it, the profiler is started or stopped by us, not by the program."""
    global _ours
    _ours = True
    try:
        yield
    finally:
        _ours = False


class _CommonStop:
    """The CUDA runtime as torch shows it, with a stop that waits for the device and for all ranks."""

    def __init__(self, runtime: Any, started: Callable[[], None], stopped: Callable[[], None]) -> None:
        self._runtime, self._started, self._stopped = runtime, started, stopped

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runtime, name)

    def cudaProfilerStart(self) -> Any:
        if not _ours:
            harmless(self._started)()
        return self._runtime.cudaProfilerStart()

    def cudaProfilerStop(self) -> Any:
        if _ours:
            return self._runtime.cudaProfilerStop()
        harmless(synchronize)()
        harmless(meet)("stop")
        stopped = self._runtime.cudaProfilerStop()
        harmless(meet)("stopped")
        harmless(self._stopped)()
        return stopped


def make_stop_common(started: Callable[[], None] = lambda: None, stopped: Callable[[], None] = lambda: None) -> None:
    """Put `_CommonStop` in the place of torch.cuda.cudart(); it says when a program starts and stops the profiler."""
    import torch

    plain = torch.cuda.cudart
    torch.cuda.cudart = lambda: _CommonStop(plain(), started, stopped)


def common_store() -> tuple[Any, int]:
    """The key-value store of the job and its number of ranks; no store where there is one rank, or none to be had."""
    torch = sys.modules.get("torch")
    dist = getattr(torch, "distributed", None)
    if dist is None or not dist.is_available() or not dist.is_initialized() or dist.get_world_size() == 1:
        return None, 1
    return getattr(dist.distributed_c10d, "_get_default_store", lambda: None)(), dist.get_world_size()


def meet(name: str) -> None:
    """Wait for all ranks, without a collective: their kernels would be in the trace."""
    store, world = common_store()
    if world == 1:
        return
    if store is None:
        sys.modules["torch"].distributed.barrier()
        return
    key = f"stepscope/{name}"
    store.add(key, 1)
    until = time.monotonic() + _MEETING_S
    while store.add(key, 0) < world:
        if store.add(_FAILED, 0):
            raise RuntimeError("the capture of another rank failed")
        if time.monotonic() > until:
            raise RuntimeError(f"stepscope: not all of {world} ranks came to the {name} of the capture")
        time.sleep(0.001)


def no_more_meetings() -> None:
    """This rank's capture has failed: the others are not to wait for it."""
    store, _ = common_store()
    if store is not None:
        store.add(_FAILED, 1)
