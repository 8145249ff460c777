"""Goldens of nsys 2023.4.4: where they lie, the traces they are of, and how to compare with them."""

from __future__ import annotations

import csv
import gzip
import io
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from stepscope.model.profile import Profile
from stepscope.nsys.reports import Asker, all_rules, reports
from stepscope.nsys.reports.formats import cells
from stepscope.nsys.reports.registry import find
from stepscope.nsys.reports.units import Units
from stepscope.sources.open import open_sources

csv.field_size_limit(1 << 24)

#: Our own traces, by the name that their goldens go by; the others are in `public`.
H200 = {
    "overlapped": "h200/moe4/overlapped",
    "serialized": "h200/moe4/serialized",
    "moe4mps_overlapped": "h200/moe4mps/overlapped",
    "moe4mps_serialized": "h200/moe4mps/serialized",
    "eager": "h200/train/eager",
    "slow_dataloader": "h200/train/slow_dataloader",
}

#: What nsys sorts by, where that does not fix the order: rows that tie there may come in any order.
_SORTED_BY = {
    "cuda_kern_exec_sum": ["TAvg (ns)"],
    "nvtx_gpu_proj_sum": ["Total Proj Time (ns)"],
    "nvtx_kern_sum": ["NVTX Range", "PID", "TID", "Total Time (ns)"],
    "nvtx_pushpop_trace": ["Start (ns)", "Duration (ns)"],
    "cuda_kern_exec_trace": ["API Start (ns)"],
    "cuda_gpu_mem_size_sum": ["Total (MB)"],
}


@dataclass(frozen=True)
class Golden:
    """One report of one trace."""

    trace: str
    report: str
    file: Path

    def __str__(self) -> str:
        return f"{self.trace}-{self.report}"


def goldens(folder: Path) -> list[Golden]:
    files = sorted(folder.glob("*.csv.gz"))
    return [Golden(*f.name.removesuffix(".csv.gz").rsplit(".", 1), f) for f in files]


@cache
def asker(trace: Path) -> Asker:
    return Asker(Profile(open_sources(trace)))


def table(path: Path) -> list[list[str]]:
    text = gzip.decompress(path.read_bytes()).decode("utf-8", "replace")
    return [row for row in csv.reader(io.StringIO(text)) if row]


def answer(trace: Path, text: str) -> list[list[str]]:
    """What we print, header first."""
    name = text.partition(":")[0]
    found = asker(trace).ask(*find(text, reports() if name in reports() else all_rules()))
    frame = cells(found, Units()).fill_null("")
    return [frame.columns, *(list(row) for row in frame.iter_rows())]


def assert_same(ours: list[list[str]], theirs: list[list[str]], report: str) -> None:
    """The same header, and the same rows in the same order; rows that tie in nsys's order may be exchanged."""
    assert ours[0] == theirs[0]
    if ours == theirs:
        return
    assert sorted(ours) == sorted(theirs)
    header = theirs[0]
    default = ["Total Time (ns)"] if "Total Time (ns)" in header else header[:1]
    key = [header.index(name) for name in _SORTED_BY.get(report, default)]
    assert [[row[i] for i in key] for row in ours] == [[row[i] for i in key] for row in theirs]
