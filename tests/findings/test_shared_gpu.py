"""Ranks that share a GPU can hide communication only while no other of them computes."""

from __future__ import annotations

import numpy as np
import pytest

from fake import Row, call, comm, make, nvtx, op
from stepscope.derive.windows.spec import WindowSpec
from stepscope.findings.case import Case
from stepscope.findings.evidence.shared_gpu import hideable, load_on_others

#: Rank 0 communicates from 100 to 200, and computes itself until 120. Rank 1 computes from 150 to 190.
COMPUTES = ((0, 120), (150, 190))


def two(gpu: tuple[int | None, int | None], host: str = "node0") -> Case:
    tables: dict[str, list[Row]] = {"ops": [], "calls": [], "ranges": []}
    for rank, (start, end) in enumerate(COMPUTES):
        number = 10 * rank + 1
        of_rank = {
            "ops": [op(start, end, call=number)],
            "calls": [call(0, 1, id=number)],
            "ranges": [nvtx(0, 250, "step 0")],
        }
        if rank == 0:
            of_rank["ops"].append(comm(100, 200, call=2))
            of_rank["calls"].append(call(1, 2, id=2))
        for table, rows in of_rank.items():
            tables[table] += [row | {"proc": rank} for row in rows]
    hosts = ("node0", host)
    processes = [{"proc": r, "gpu_id": g, "host": hosts[r]} for r, g in enumerate(gpu)]
    return Case(make(processes, **tables), WindowSpec())


def share(case: Case) -> float:
    data = next(d for d in case.each_rank(lambda _, data, window: data).values() if d.rank == 0)
    return hideable(case, {0: np.flatnonzero(data.end == 200)}).share


def test_what_another_rank_computes_beside_it_cannot_be_hidden() -> None:
    # 80 ns have no compute of rank 0 beside them, and in 40 of these rank 1 computes.
    assert share(two((0, 0))) == pytest.approx(0.5)


@pytest.mark.parametrize(("gpu", "host"), [((0, 1), "node0"), ((0, 0), "node1"), ((None, None), "node0")])
def test_on_a_gpu_of_its_own_all_of_it_can(gpu: tuple[int | None, int | None], host: str) -> None:
    case = two(gpu, host)
    assert share(case) == 1.0
    assert hideable(case, {}).words == ""


@pytest.mark.parametrize(("gpus", "cost"), [((0, 0), 5), ((0, 1), 0)])
def test_the_load_of_a_rank_slows_the_others(gpus: tuple[int, int], cost: int) -> None:
    """Half of rank 1's 40 ns are too much. Rank 0 computes beside them and may lose half of that: half is taken."""
    tables: dict[str, list[Row]] = {
        "ops": [op(0, 250, call=1), op(150, 190, call=11) | {"proc": 1}],
        "calls": [call(0, 1, id=1), call(0, 1, id=11) | {"proc": 1}],
        "ranges": [nvtx(0, 260, "step 0"), nvtx(0, 260, "step 0") | {"proc": 1}],
    }
    case = Case(make([{"proc": r, "gpu_id": g} for r, g in enumerate(gpus)], **tables), WindowSpec())
    assert load_on_others(case, 1, np.array([0]), np.array([0.5])) == cost
