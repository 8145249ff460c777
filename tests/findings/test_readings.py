"""What a person reads in every trace of ../shared, beside what `diagnose` says of it: the table of docs/diagnoses.md.

`make diagnoses` writes the table anew. Where a conclusion has changed, read it again and say in docs/readings.toml
whether it is now what the reading says.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from marks import slow_unless

ROOT = Path(__file__).parents[2]


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("readings", ROOT / "docs" / "readings.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["readings"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


book = _load()
READINGS = book.readings()


#: A trace of each profiler and of each vendor, with and without steps, of one rank and of several; the others are slow.
REPRESENTATIVE = {
    "h200/moe4/overlapped.sqlite",
    "h200/train/eager.pt.trace.json.gz",
    "h200/train/slow_dataloader.sqlite",
    "h200/hf/jax_graphs.sqlite",
    "public/a100_cuda_graphs.sqlite",
    "public/a100_saxpy_mpi.rank0.nsys-rep",
    "public/h100x2_after.sqlite",
    "public/invalid_json.json.gz",
    "public/mi300x_4ranks_merged_nccl.json.gz",
    "public/puzzler_cudagraph.json.gz",
    "public/titan_no_kernel_table.sqlite",
    "public/world128.rank0.json.gz, public/world128.rank1.json.gz",
}


def representative(name: str) -> bool:
    return name in REPRESENTATIVE


@cache
def conclusion(name: str):  # type: ignore[no-untyped-def]
    if ".nsys-rep" in name and shutil.which("nsys") is None:
        pytest.skip("nsys is not on the PATH: it is what reads a report")
    return book.conclude(next(r for r in READINGS if r.name == name))


@cache
def table() -> dict[str, list[str]]:
    """The rows of the table, by their trace."""
    text = book.PAGE.read_text("utf-8").split(book.BEGIN)[1].split(book.END)[0]
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| `")]
    return {", ".join(re.findall("`([^`]*)`", cells[0])): cells for cells in rows}


def test_every_reading_is_in_the_table() -> None:
    assert list(table()) == [r.name for r in READINGS]
    assert set(table()) >= REPRESENTATIVE


def test_agreement_is_said_plainly() -> None:
    for reading in READINGS:
        assert reading.agree in ("yes", "partly", "no"), reading.name
        assert reading.why or reading.agree == "yes", f"{reading.name}: say why"
        assert reading.reading.endswith("."), reading.name


def test_every_trace_has_a_reading(shared: Path) -> None:
    read = {path for reading in READINGS for path in reading.paths()}
    missing = [p for p in book.traces() if p not in read and not read & set(p.parents)]
    assert not missing, missing
    assert all(reading.paths() for reading in READINGS)


@pytest.mark.parametrize("name", slow_unless(representative, [r.name for r in READINGS]))
def test_the_table_says_what_diagnose_says(name: str, shared: Path) -> None:
    now = conclusion(name)
    first, _, share = table()[name][3].partition(", ")
    assert first == now.first, "run `make diagnoses`"
    if now.share is not None:
        assert float(share.removesuffix(" %")) == pytest.approx(now.share, abs=2), "run `make diagnoses`"
    judged = next(r.judged for r in READINGS if r.name == name)
    assert now.first == judged, f"it said {judged} when it was read: read it again (docs/readings.toml)"


@pytest.mark.parametrize("name", slow_unless(representative, [r.name for r in READINGS]))
def test_no_all_clear_while_time_is_lost(name: str, shared: Path) -> None:
    now = conclusion(name)
    if now.lost > 5:
        assert not now.statement.startswith("Nothing above"), f"{now.lost:.0f} % of the step is not compute"
