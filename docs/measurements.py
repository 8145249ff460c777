"""The tables of measure.md: which measurement for which question, with the options that the profilers get for it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from stepscope.capture.ncu import QUESTIONS
from stepscope.capture.wants import nsys_options, torch_options, traces
from stepscope.model.capturing import WANTS

#: What `capture run` has nsys trace unless told otherwise.
USUAL = "cuda,nvtx"


@dataclass(frozen=True)
class Measurement:
    """A question, the commands that answer it, and what has to be recorded."""

    question: str
    commands: tuple[str, ...]
    #: names of `capture run --with`
    wants: tuple[str, ...] = ()
    #: further options of `capture run`
    options: str = ""
    #: what `capture ncu --for` takes
    ncu: str = ""
    #: the profilers that record it
    backends: tuple[str, ...] = ("nsys", "torch")

    @property
    def capture(self) -> str:
        if self.ncu:
            return f"capture ncu --from cap --for {self.ncu}"
        parts = ("capture run", self.options, f"--with {','.join(self.wants)}" if self.wants else "")
        return " ".join(filter(None, parts))


MEASUREMENTS = (
    Measurement(
        "Where did the step go? Is communication hidden? What should I change first?",
        ("diagnose", "breakdown", "overlap", "exposed", "idle", "critical-path", "pipeline"),
    ),
    Measurement("Which rank makes the others wait? (all ranks)", ("stragglers", "collectives", "clocks")),
    Measurement("Is the pace steady?", ("iterations",), options="--steps 20"),
    Measurement("Did my change help?", ("compare", "gate"), options="--steps 20"),
    Measurement("Does the host keep the GPU fed?", ("launches", "idle")),
    Measurement("Which module does it belong to?", ("nvtx", "overlap --by range"), options="--ranges modules"),
    Measurement("Which line of Python launched it?", ("source",), ("stacks",)),
    Measurement("What did torch.compile make of it?", ("compile",), ("pytorch",)),
    Measurement("How much of the peak is used?", ("mfu",), ("shapes",)),
    Measurement("What is memory made of?", ("memory",), ("memory",), options="--backend torch", backends=("torch",)),
    Measurement(
        "Do garbage collections stop the step?",
        ("diagnose",),
        ("stacks",),
        options="--backend torch",
        backends=("torch",),
    ),
    Measurement(
        "Do clocks drop? How busy are SMs, tensor cores, DRAM?",
        ("diagnose", "kernels", "timeline --by counter", "recipe gpu_metric_util_sum", "recipe gpu_metric_util_map"),
        ("gpu-metrics",),
        backends=("nsys",),
    ),
    Measurement(
        "The same by torch 2.15: clocks, power, and how busy SMs, tensor cores and DRAM are",
        ("diagnose", "kernels", "timeline --by counter"),
        ("clocks", "pm"),
        options="--backend torch",
        backends=("torch",),
    ),
    Measurement(
        "How busy is the network?", ("recipe network_sum", "recipe nic_metric_map"), ("network",), backends=("nsys",)
    ),
    Measurement("Which calls of the OS block the host?", ("stats --report osrt_sum",), ("osrt",), backends=("nsys",)),
    Measurement(
        "What does the launching thread do while the GPU waits: run, block, or lack a CPU?",
        ("idle --by thread",),
        ("cpu", "osrt"),
        backends=("nsys",),
    ),
    Measurement(
        "What does Python do while the GPU waits?",
        ("idle --by thread", "source"),
        ("python-sampling",),
        backends=("nsys",),
    ),
    Measurement(
        "Do threads of Python wait for each other's lock (GIL)?",
        ("diagnose", "idle --by thread"),
        ("gil",),
        backends=("nsys",),
    ),
    Measurement(
        "Which node of a CUDA graph waits for which?",
        ("critical-path",),
        ("graph",),
        options="--backend torch",
        backends=("torch",),
    ),
    Measurement("What bounds the heavy kernels?", ("roofline", "kernels"), ncu="bound"),
    Measurement("How far from the roof are they, and why?", ("roofline", "kernels", "diagnose"), ncu="roofline"),
    Measurement("All that Nsight Compute knows of them", ("roofline",), ncu="everything"),
)


def timeline_rows() -> Iterator[tuple[str, ...]]:
    """question, commands, how to record it, options of nsys, keywords of torch.profiler."""
    yield from ((*_asked(m), _nsys(m), _torch(m)) for m in MEASUREMENTS if not m.ncu)


def kernel_rows() -> Iterator[tuple[str, ...]]:
    """question, commands, how to record it, set of ncu."""
    yield from ((*_asked(m), _ncu(m)) for m in MEASUREMENTS if m.ncu)


def _asked(m: Measurement) -> tuple[str, ...]:
    return m.question, ", ".join(map(_linked, m.commands)), _codes(m.capture.split(" --"))


def wants_rows() -> Iterator[tuple[str, ...]]:
    """What `--with` takes: what it records, options of nsys, keywords of torch.profiler."""
    for want, about in WANTS.items():
        by_nsys = about.by_hand.startswith("nsys")
        by_torch = "torch.profiler" in about.by_hand
        m = Measurement("", (), (want,), backends=(*(("nsys",) * by_nsys), *(("torch",) * by_torch)))
        yield f"`{want}`", about.gives, _nsys(m), _torch(m)


def _linked(command: str) -> str:
    name = command.split()[0]
    page = {"recipe": f"recipes.md#{command.split()[-1]}", "stats": "reports.md"}.get(name, f"cli.md#{name}")
    return f"[`{command}`]({page})"


def _nsys(m: Measurement) -> str:
    if "nsys" not in m.backends:
        return "–"
    trace = traces(m.wants, USUAL)
    usual = set(nsys_options(()))
    more = [option for option in nsys_options(m.wants) if option not in usual]
    if {"shapes", "pytorch"} & set(m.wants):
        return f"torch's own ranges; by hand `{_by_hand(m.wants, 'nsys ')}`"
    options = [*([f"--trace={trace}"] if trace != USUAL else []), *more]
    return " ".join(f"`{option}`" for option in options) or "the usual"


def _codes(parts: list[str]) -> str:
    """An option at a time, so that a narrow column can break between them."""
    return " ".join([f"`{parts[0]}`", *(f"`--{part}`" for part in parts[1:])])


def _by_hand(wants: tuple[str, ...], program: str) -> str:
    parts = [part for want in wants for part in re.split(r", ", WANTS[want].by_hand) if part.startswith(program)]
    return " ".join(part.removeprefix(program) for part in parts)


def _torch(m: Measurement) -> str:
    if "torch" not in m.backends:
        return "–"
    keywords = torch_options(m.wants, {})
    return ", ".join(f"`{key}`" for key in keywords) if keywords else "the usual"


def _ncu(m: Measurement) -> str:
    options, passes = QUESTIONS[m.ncu]
    return f"{_codes(' '.join(options).split(' --'))}, {passes} passes"
