"""`--with`: what is wanted, as options of the profiler; refused, with the reason, where this machine or nsys cannot.

nsys's own `--pytorch` needs a recent nsys; `annotate` has torch write the same ranges itself, with any.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from stepscope.capture.nsys import Nsys
from stepscope.errors import BadInput
from stepscope.model.capturing import WANTS

#: Options of nsys by want; `pytorch` and `shapes` are none of its.
_NSYS: Mapping[str, tuple[str, ...]] = {
    "stacks": ("--cudabacktrace=kernel", "--python-backtrace=cuda"),
    "memory": ("--cuda-memory-usage=true",),
    "gpu-metrics": ("--gpu-metrics-devices=all",),
    "cpu": (),
    "osrt": (),
    "python-sampling": ("--python-sampling=true",),
    "gil": ("--python-sampling=true",),
    "network": ("--nic-metrics=true",),
    "shapes": (),
    "pytorch": (),
}
#: Keywords of torch.profiler.profile by want; what it always records needs none.
TORCH: Mapping[str, tuple[str, ...]] = {
    "stacks": ("with_stack",),
    "shapes": ("record_shapes",),
    "memory": ("profile_memory",),
    "pytorch": (),
}
#: What torch's CUPTI backend records (torch 2.15): told to `annotate`, which makes its configuration of it.
CUPTI: Mapping[str, str] = {"graph": "cupti_graph", "clocks": "cupti_clocks", "pm": "cupti_pm"}
#: What nsys records instead.
_INSTEAD = {"graph": "leave it out", "clocks": "give --with gpu-metrics", "pm": "give --with gpu-metrics"}
#: Keywords that `--torch-args` takes: those that are yes or no.
TORCH_ARGS = ("with_stack", "record_shapes", "profile_memory", "with_flops", "with_modules", "acc_events")
#: Names of options that nsys has had, newest first.
_NAMES = {"--gpu-metrics-devices": ("--gpu-metrics-devices", "--gpu-metrics-device")}
#: Wants for which nsys samples the CPU.
_SAMPLED = frozenset({"cpu", "stacks"})


def parse(texts: Iterable[str]) -> tuple[str, ...]:
    """`--with stacks,memory --with cpu`."""
    wants = tuple(dict.fromkeys(w.strip() for text in texts for w in text.split(",") if w.strip()))
    for want in wants:
        if want not in WANTS:
            raise BadInput(f"--with {want}: not known", f"give {', '.join(WANTS)}")
    return wants


def parse_torch(text: str | None) -> dict[str, bool]:
    """`with_flops,with_modules=false`."""
    options = {}
    for pair in filter(None, (text or "").split(",")):
        name, _, value = pair.partition("=")
        if name not in TORCH_ARGS or value.lower() not in ("", "true", "false"):
            raise BadInput(f"--torch-args {pair}: not known", f"give NAME or NAME=false of {', '.join(TORCH_ARGS)}")
        options[name] = value.lower() != "false"
    return options


def nsys_options(wants: tuple[str, ...], nsys: Nsys | None = None) -> list[str]:
    """What to add to `nsys profile`; by the names that this nsys has for it, where it is there to be asked."""
    sampled = "process-tree" if _SAMPLED & set(wants) else "none"
    made = [f"--sample={sampled}", f"--cpuctxsw={'process-tree' if 'cpu' in wants else 'none'}"]
    for option in (o for want in wants for o in _NSYS.get(want, ())):
        name, _, value = option.partition("=")
        names = [n for n in _NAMES.get(name, (name,)) if nsys is None or nsys.has(n)]
        made.append(f"{(names or [name])[0]}={value}")
    return made


def traces(wants: tuple[str, ...], trace: str) -> str:
    """The list of `--trace`, with what is wanted."""
    wanted = {"osrt": "osrt", "gil": "python-gil"}
    added = [api for want, api in wanted.items() if want in wants and api not in trace.split(",")]
    return ",".join([trace, *added])


def torch_options(wants: tuple[str, ...], more: Mapping[str, bool]) -> dict[str, bool]:
    """Keywords of torch.profiler.profile."""
    backend = {CUPTI[want]: True for want in wants if want in CUPTI}
    return {**{key: True for want in wants for key in TORCH.get(want, ())}, **backend, **more}


def refuse(wants: tuple[str, ...], backends: tuple[str, ...], nsys: Nsys | None, by_steps: bool) -> None:
    """Whatever no chosen profiler can record here is an error, with the reason."""
    for want in wants:
        reasons = [why for why in (_reason(want, b, nsys, by_steps) for b in backends) if why]
        if len(reasons) == len(backends):
            raise BadInput(f"--with {want}: {reasons[0][0]}", reasons[0][1])


def recorded(wants: tuple[str, ...], backend: str, nsys: Nsys | None, by_steps: bool) -> tuple[str, ...]:
    """Those of them that this profiler records, where two are asked for."""
    return tuple(want for want in wants if _reason(want, backend, nsys, by_steps) is None)


def _reason(want: str, backend: str, nsys: Nsys | None, by_steps: bool) -> tuple[str, str] | None:
    """Why not, and what to do."""
    if backend == "torch":
        return None if want in TORCH or want in CUPTI else ("torch.profiler cannot record it", "give --backend nsys")
    if want in CUPTI:
        return "torch's CUPTI backend records it (torch 2.15), not nsys", f"{_INSTEAD[want]}, or give --backend torch"
    if want in ("pytorch", "shapes"):
        why = "torch writes these ranges, and only where steps start the profiler"
        return None if by_steps else (why, "leave --trigger out, or give --nsys-args=--pytorch=autograd-shapes-nvtx")
    if nsys is None:
        return None
    for option in _NSYS[want]:
        name = option.partition("=")[0]
        if not any(nsys.has(n) for n in _NAMES.get(name, (name,))):
            return f"nsys {nsys.shown} has no {name}", "take a newer nsys (--nsys PATH)"
    if want in _SAMPLED and (sampling := nsys.no_sampling()):
        return sampling, "sysctl kernel.perf_event_paranoid=2; in a container, --cap-add=SYS_ADMIN too"
    if want == "gpu-metrics" and (metrics := nsys.no_gpu_metrics()):
        allowed = "run as root, or allow all users: modprobe nvidia NVreg_RestrictProfilingToAdminUsers=0"
        return metrics, "run it where there is a GPU" if "not found" in metrics else allowed
    if want == "network" and not any(Path("/sys/class/infiniband").glob("*")):
        return "no network card that nsys can read (none in /sys/class/infiniband)", "leave it out"
    return None
