"""Nsight Compute: reports (`.ncu-rep`, through NVIDIA's `ncu-report` package) and what `ncu --csv` prints."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepscope.sources.ncu.source import NcuSource

#: The line that every page of `ncu --csv` begins with, whatever stands before it.
HEADER = re.compile(rb'^"ID","Process ID"', re.MULTILINE)
_SAID = re.compile(rb"^==(PROF|WARNING|ERROR)==", re.MULTILINE)
_COLUMN = b'"Kernel Name"'


def looks_like_ncu_csv(head: bytes) -> bool:
    """Whether a file that begins so is what `ncu --csv` printed: its header, or what ncu says before it."""
    match = HEADER.search(head)
    if match is not None:
        return _COLUMN in head[match.start() : match.start() + (1 << 12)]
    return _SAID.search(head) is not None and b"==PROF== " in head


def open_ncu_report(path: Path | str) -> NcuSource:
    """A report as a source."""
    from stepscope.sources.ncu.report import read_report
    from stepscope.sources.ncu.source import NcuSource

    return NcuSource(Path(path), "ncu-rep", read_report(Path(path)))


def open_ncu_csv(path: Path | str) -> NcuSource:
    """A page that `ncu --csv` printed as a source."""
    from stepscope.sources.ncu.pages import read_page
    from stepscope.sources.ncu.source import NcuSource

    return NcuSource(Path(path), "ncu-csv", read_page(Path(path)))
