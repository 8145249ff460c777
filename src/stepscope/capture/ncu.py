"""Measuring a few kernels with Nsight Compute: the command, what it will cost, and whether it can work here.

ncu runs every kernel that it measures again and again, once per pass, with memory saved and restored in between. So
only suspects are measured, by name, and of launches that are alike (same function, grid and block) as few as show what
there is: identical layers once.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from stepscope.errors import BadInput
from stepscope.files.whole import building

#: By question: ncu's set and further sections, and passes on an H200 (ncu 2025.3).
QUESTIONS: dict[str, tuple[tuple[str, ...], int]] = {
    "bound": (("--set", "basic"), 10),
    "roofline": (
        (
            *("--set", "roofline", "--section", "SourceCounters", "--section", "WarpStateStats"),
            *("--section", "LaunchStats", "--section", "Occupancy"),
        ),
        26,
    ),
    "everything": (("--set", "full"), 38),
}
#: Saving and restoring memory, flushing caches and starting again, for each pass: 0.06 s in a program of 1 GB, 0.14 s
#: in one of 5 GB, on an H200.
_PASS_S = 0.1
_PLACES = (
    "/opt/nvidia/nsight-compute/*/ncu",
    "/usr/local/cuda/bin/ncu",
    "/usr/local/cuda*/bin/ncu",
    "/usr/local/NVIDIA-Nsight-Compute*/ncu",
)
_PARAMETERS = Path("/proc/driver/nvidia/params")
_STATUS = Path("/proc/self/status")
_CAP_SYS_ADMIN = 21
_NO_PERMISSION = "ERR_NVGPUCTRPERM"
_ALLOW = (
    "run as root (in a container: with --cap-add=SYS_ADMIN), or let every user profile: "
    "NVreg_RestrictProfilingToAdminUsers=0 for the module nvidia"
)


@dataclass(frozen=True)
class Measurement:
    """What to measure, and how."""

    functions: tuple[str, ...]
    command: tuple[str, ...]
    out: Path
    question: str = "roofline"
    #: instead of what the question asks for: a set of ncu's
    set: str | None = None
    #: launches of each kind that are let pass first, and that are measured then
    skip: int = 0
    count: int = 1
    #: launches that pass the filter, as far as the timeline tells
    launches: int = 1
    range: str | None = None
    clocks: str = "none"
    #: instead of functions: a regular expression of their names; without either, all that the program launches
    pattern: str | None = None

    def argv(self, ncu: str = "ncu") -> list[str]:
        """The command line."""
        sections = ("--set", self.set) if self.set else QUESTIONS[self.question][0]
        names = "|".join(re.escape(name) for name in self.functions)
        regex = self.pattern if self.pattern is not None else f"^({names})$" if names else None
        only = ("--kernel-name", f"regex:{regex}") if regex else ()
        within = ("--nvtx-include", f"{self.range}/") if self.range else ()
        return [
            ncu,
            *sections,
            *("--target-processes", "all", "--clock-control", self.clocks),
            *("--kernel-name-base", "function", *only),
            *("--filter-mode", "per-launch-config", "--launch-skip", str(self.skip), "--launch-count", str(self.count)),
            *("--nvtx", *within),
            *("--force-overwrite", "--export", str(self.report.with_suffix(""))),
            *self.command,
        ]

    @property
    def report(self) -> Path:
        """Where ncu writes to."""
        return self.out if self.out.suffix == ".ncu-rep" else self.out.with_name(f"{self.out.name}.ncu-rep")

    @property
    def passes(self) -> int | None:
        """How often each launch is run, where that is known."""
        return None if self.set else QUESTIONS[self.question][1]

    def cost_s(self, kernel_ns: float) -> float | None:
        """Seconds that measuring adds to the program's own time; `kernel_ns` is a launch of median length."""
        return None if self.passes is None else self.launches * self.passes * (_PASS_S + kernel_ns / 1e9)


def find(program: str) -> str:
    """The ncu to run; refused where there is none."""
    program_path = shutil.which(program)
    if program_path is None and program == "ncu":
        places = sorted(path for pattern in _PLACES for path in Path("/").glob(pattern.removeprefix("/")))
        program_path = str(places[-1]) if places else None
    if program_path is None:
        raise BadInput(
            f"{program}: no Nsight Compute here",
            "install it and put it on the PATH, or give --ncu PATH; --dry-run prints the command for another machine",
        )
    return program_path


def require_permission(parameters: Path = _PARAMETERS, status: Path = _STATUS) -> None:
    """Refuse where the driver keeps counters to administrators, and this is none."""
    try:
        restricted = re.search(r"RmProfilingAdminOnly:\s*1", parameters.read_text())
        capable = re.search(r"CapEff:\s*([0-9a-fA-F]+)", status.read_text())
    except OSError:  # no such driver, or nobody says: ncu will
        return
    admin = bool(int(capable[1], 16) >> _CAP_SYS_ADMIN & 1) if capable else os.geteuid() == 0
    if restricted and not admin:
        raise _forbidden()


def _forbidden() -> BadInput:
    return BadInput("ncu has no permission to read the GPU's counters (ERR_NVGPUCTRPERM)", _ALLOW)


def measure(wanted: Measurement, ncu: str) -> Path:
    """Run it; the report. What ncu and the program print is in a log beside it."""
    log = wanted.report.with_suffix(".log")
    try:
        with log.open("wb") as file:
            done = subprocess.run(
                wanted.argv(ncu), stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, check=False
            )
    except OSError as error:
        raise BadInput(f"{ncu}: cannot be run ({error.strerror})", "check --ncu, and the folder of -o") from None
    text = log.read_text("utf-8", "replace")
    if _NO_PERMISSION in text:
        raise _forbidden()
    if not wanted.report.exists():
        lines = [line for line in text.splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("==ERROR==")]
        last = (errors or lines or ["it printed nothing"])[-1].strip()
        status = f" (status {done.returncode})" if done.returncode else ""
        if "No kernels were profiled" in text:
            raise BadInput(
                f"ncu measured nothing: no launch matched{status}",
                "it may run other kernels, or fewer steps: --warmup 0, or another --from or --kernel; "
                f"{log} has what it printed",
            )
        raise BadInput(f"ncu wrote no report{status}: {last:.200}", f"{log} has all of its output")
    return wanted.report


def raw_page(report: Path, ncu: str) -> Path:
    """The raw page of a report as CSV, for machines without the package that reads reports."""
    page = report.with_suffix(".raw.csv")
    with building(page) as beside, beside.open("wb") as file:
        words: Sequence[str] = (ncu, "--import", str(report), "--page", "raw", "--csv")
        subprocess.run(words, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.DEVNULL, check=False)
    return page
