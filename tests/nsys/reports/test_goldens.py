"""Every report of the real nsys that we hold, cell by cell."""

from __future__ import annotations

from pathlib import Path

import pytest
from goldens import H200, Golden, answer, asker, assert_same, goldens, table

from stepscope.errors import CannotAnswer
from stepscope.nsys.reports import all_rules, reports
from stepscope.nsys.reports.registry import find

HERE = Path(__file__).resolve()
DATA = HERE.parents[2] / "data"
SHARED = HERE.parents[4] / "shared"
FOLDER = "golden/nsys-2023.4.4"

OWN = goldens(DATA / FOLDER)
ALL = goldens(SHARED / FOLDER)

#: Where nsys gave up and we answer: an old schema without the tables that spell out enumerations, and files cut so
#: short that the list of GPUs is gone. docs/differences.md says so.
BEYOND_NSYS = {
    *((f"a100_saxpy_mpi.rank{r}", report) for r in (0, 1) for report in
      ("cuda_api_gpu_sum", "cuda_gpu_mem_size_sum", "cuda_gpu_mem_time_sum", "cuda_gpu_sum", "cuda_gpu_trace",
       "cuda_memcpy_sync")),
    ("h100x2_after", "cuda_gpu_trace"),
    ("h100x2_before", "cuda_gpu_trace"),
}  # fmt: skip


def shared_trace(name: str) -> Path:
    return SHARED / "traces" / f"{H200.get(name, f'public/{name}')}.sqlite"


def test_own_goldens_are_there():
    assert len(OWN) == 55
    assert {g.trace for g in OWN} == {"overlapped", "moe4mps_overlapped", "eager"}


@pytest.mark.parametrize("golden", OWN, ids=str)
def test_equal_on_our_traces(golden: Golden, unpacked):
    assert_same(answer(unpacked(golden.trace), golden.report), table(golden.file), golden.report)


@pytest.mark.skipif(not ALL, reason="no ../shared beside the repository")
@pytest.mark.parametrize("golden", ALL, ids=str)
def test_equal_on_every_trace(golden: Golden):
    assert_same(answer(shared_trace(golden.trace), golden.report), table(golden.file), golden.report)


@pytest.mark.skipif(not ALL, reason="no ../shared beside the repository")
@pytest.mark.parametrize("trace", sorted({g.trace for g in ALL}))
def test_nothing_where_nsys_had_nothing(trace: str):
    """Where there is no golden, nsys found nothing or could not run: nor do we, but for what is listed above."""
    have = {g.report for g in ALL if g.trace == trace}
    every = {**reports(), **all_rules()}
    for name in sorted({g.report for g in ALL} | {"cuda_memcpy_sync", "cuda_memset_sync"}):
        if name in have:
            continue
        try:
            rows = asker(shared_trace(trace)).ask(*find(name, every)).frame.height
        except CannotAnswer:
            rows = 0
        assert bool(rows) == ((trace, name) in BEYOND_NSYS), name
