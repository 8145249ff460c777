"""Every question that can be asked of a profile, in the groups of the help: the registry that all front ends read.

A question is a module: `analyses/<name>.py` is the command `<name>`, its function of that name the work. Where it needs
more than one file, it is a package of that name, with the function in its `__init__.py`. It has a docstring whose first
line is the question it answers, `Row`, which declares the columns of a row (and `VARIANTS`, the rows under an option
that changes them), and one function

    def overlap(profile: Profile, window: WindowSpec, *, by: Annotated[By, "what a row is"] = "stage") -> Result

whose keyword-only parameters, with their annotations, become the options of the command line, of the Python method and
of the agents' tool. A question of `profile: Profile | None` can also do without a profile. `ACROSS = True` says that it
reads a profile by parts (`Profile.map`), so that workers can share the reading. `TIMELESS = True` says that it also
answers on files that have no timeline: what Nsight Compute measured of single kernels.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, get_args, get_type_hints

from stepscope.model.option import Option, keyword_options

if TYPE_CHECKING:  # `stepscope --help` reads the registry, and must not import Polars
    from stepscope.model.profile import Profile
    from stepscope.model.result import Col, Result

#: The modules, by name: listing them for the help must not import them.
GROUPS: dict[str, tuple[str, ...]] = {
    "Look": (
        "analyses.info",
        "analyses.setup",
        "analyses.window",
        "analyses.streams",
        "analyses.timeline",
        "analyses.mesh",
    ),
    "One rank": (
        "analyses.breakdown",
        "analyses.overlap",
        "analyses.exposed",
        "analyses.idle",
        "analyses.iterations",
        "analyses.run",
        "analyses.kernels",
        "analyses.compute",
        "analyses.nvtx",
        "analyses.launches",
        "analyses.concurrency",
        "analyses.compile",
        "analyses.source",
    ),
    "All ranks": (
        "analyses.clocks",
        "analyses.collectives",
        "analyses.stragglers",
        "analyses.pipeline",
        "analyses.critical_path",
    ),
    "One kernel": ("analyses.roofline", "analyses.mfu", "analyses.memory"),
    "Conclude": ("findings.diagnose",),
}
#: What to call a file that has no timeline.
_TIMELESS_FORMATS = {
    "ncu-rep": "an Nsight Compute report (kernels measured one by one)",
    "ncu-csv": "a page exported by Nsight Compute (kernels measured one by one)",
}
_MODULES = {m.rsplit(".", 1)[1].replace("_", "-"): m for group in GROUPS.values() for m in group}


@dataclass(frozen=True)
class Analysis:
    """A command: its function, columns and options."""

    name: str
    function: Callable[..., Result]
    question: str
    doc: str
    columns: tuple[Col, ...]
    variants: dict[str, tuple[Col, ...]]
    options: tuple[Option, ...]
    windowed: bool
    needs_profile: bool = True
    across: bool = False  # it reads the ranks apart from each other (`ACROSS`): workers can do that
    timeless: bool = False  # it answers on files without a timeline, too (`TIMELESS`)


def names() -> tuple[str, ...]:
    """Names of all questions, without importing any."""
    return tuple(sorted(_MODULES))


def question(name: str) -> str:
    """The one-line question of an analysis, read from its file: help must not import Polars."""
    place = Path(__file__).parent.joinpath(*_MODULES[name].split("."))
    file = place / "__init__.py"
    source = (file if file.exists() else place.with_suffix(".py")).read_text("utf-8")
    match = re.match(r'\s*"""(.*?)(?:\n|""")', source)
    return match.group(1).strip() if match else ""


@cache
def get(name: str) -> Analysis:
    """The analysis called `name`."""
    from stepscope.model.result import columns

    module = import_module(f"stepscope.{_MODULES[name]}")
    function = getattr(module, name.replace("-", "_"))
    doc = inspect.cleandoc(module.__doc__ or "")
    return Analysis(
        name=name,
        function=function,
        question=doc.split("\n", 1)[0],
        doc=doc,
        columns=columns(module.Row),
        variants={key: columns(row) for key, row in getattr(module, "VARIANTS", {}).items()},
        options=tuple(keyword_options(function)),
        windowed="window" in inspect.signature(function).parameters,
        needs_profile=type(None) not in get_args(get_type_hints(function)["profile"]),
        across=getattr(module, "ACROSS", False),
        timeless=getattr(module, "TIMELESS", False),
    )


def need_timeline(profile: Profile, asked: str) -> None:
    """Refuse what is asked of files without a timeline: what they are, and which questions they answer."""
    if profile.has_timeline:
        return
    from stepscope.errors import CannotAnswer

    first = profile.sources[0]
    kind = _TIMELESS_FORMATS.get(first.format, "a file without a timeline")
    answering = " and ".join(f"`{name}`" for name in names() if get(name).timeless)
    raise CannotAnswer(
        f"{first.file} is {kind} and has no timeline, which `{asked}` needs",
        f"{answering} work on it; give the nsys or torch.profiler trace of the run, alone or with it",
    )
