"""The nsys of this machine: its version, the options it has, and what it may do here."""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import cached_property


def version_of(program: str) -> tuple[int, ...] | None:
    """The version of an nsys; None where it cannot be run."""
    match = re.search(r"version (\d+(?:\.\d+)+)", _ask(program, "--version") or "")
    return tuple(map(int, match[1].split("."))) if match else None


class Nsys:
    """One program; every question is asked once."""

    def __init__(self, program: str) -> None:
        self._program = program

    @classmethod
    def there(cls, program: str) -> Nsys | None:
        """None where it is not there: doctor says so."""
        return cls(program) if shutil.which(program) else None

    @cached_property
    def version(self) -> tuple[int, ...] | None:
        return version_of(self._program)

    @property
    def shown(self) -> str:
        return ".".join(map(str, (self.version or ())[:3]))

    @cached_property
    def _options(self) -> frozenset[str]:
        return frozenset(re.findall(r"--[a-z][a-z0-9-]*", _ask(self._program, "profile", "--help") or ""))

    def has(self, option: str) -> bool:
        """Whether `nsys profile` knows it; an nsys without a help text is believed to."""
        return not self._options or option in self._options

    def no_sampling(self) -> str | None:
        """Why the CPU cannot be sampled; None where it can, or nsys does not say."""
        answer = _ask(self._program, "status", "--environment") or ""
        if not re.search(r"CPU Profiling Environment \(process-tree\): (?!OK)", answer):
            return None
        level = re.search(r"Paranoid Level = (\S+)", answer)
        return f"nsys may not sample the CPU here (perf_event_paranoid {level[1] if level else 'not known'})"

    def no_gpu_metrics(self) -> str | None:
        """Why the GPU's counters cannot be sampled; None where they can."""
        name = "--gpu-metrics-devices" if self.has("--gpu-metrics-devices") else "--gpu-metrics-device"
        help_text = _ask(self._program, "profile", f"{name}=help", failed=True) or ""
        lines = [line.strip() for line in help_text.splitlines() if line.strip()]
        wrong = [n for n in lines if re.search(r"(?i)not found|not available|not supported|permission|privilege", n)]
        usable = [n for n in lines if re.match(r"\d+:|all:|cuda-visible", n)]
        return f"nsys says: {wrong[0]}" if wrong and not usable else None


def _ask(program: str, *arguments: str, failed: bool = False) -> str | None:
    try:
        done = subprocess.run(
            [program, *arguments], capture_output=True, text=True, errors="replace", check=False, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout + done.stderr if done.returncode == 0 or failed else None
