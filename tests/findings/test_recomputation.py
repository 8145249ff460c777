"""What the backward pass computes again, on profiles whose answer is worked out by hand (in µs)."""

from __future__ import annotations

from typing import Any

import cited
from fake import call, make, nvtx, op
from stepscope import api
from stepscope.api.options import window_spec
from stepscope.derive.rank.data import rank_of
from stepscope.derive.work.phases import AGAIN, phases

US = 1000
#: A block of a model: kernels and their lengths.
BLOCK = (
    ("layer_norm_kernel", 20),
    ("bfloat16_copy_kernel", 10),
    ("nvjet_sm90_tst_128x64_TNT", 60),
    ("flash_fwd_kernel", 80),
    ("nvjet_sm90_tst_64x64_TNT", 30),
    ("CUDAFunctor_add", 15),
    ("GeluCUDAKernelImpl", 25),
)
BACKWARD = (
    ("nvjet_sm90_tst_128x64_NNT", 60),
    ("nvjet_sm90_tst_128x64_NTN", 60),
    ("flash_bwd_kernel", 200),
    ("nvjet_sm90_tst_64x64_NNT", 30),
    ("nvjet_sm90_tst_64x64_NTN", 30),
)


def job(*passes: tuple[tuple[tuple[str, int], ...], int], apart: int = 4) -> dict[str, list[dict[str, Any]]]:
    """Kernels of passes, each on a thread, launched one every `apart` µs, in one step."""
    ops, calls, at, launched = [], [], 0, 0
    for kernels, tid in passes:
        for name, long in kernels:
            launched += apart
            calls.append(call(launched * US, (launched + 2) * US, id=len(calls) + 1, tid=tid))
            at = max(at, launched + 3)
            ops.append(op(at * US, (at + long) * US, name, call=len(calls), grid_x=long, grid_y=1, grid_z=1))
            at += long
    return {"ops": ops, "calls": calls, "ranges": [nvtx(0, (at + 10) * US, "step 0")]}


def again(tables: dict[str, list[dict[str, Any]]]) -> list[int]:
    data = rank_of(make(**tables), 0)
    ops = data.by_launch[0]
    return ops[phases(data, ops).phase == AGAIN].tolist()


def test_a_block_that_runs_again_is_told_by_its_kernels() -> None:
    tables = job((BLOCK * 3, 1), (BACKWARD, 2), (BLOCK[:-1], 2), (BACKWARD, 2), (BLOCK[:-1], 2), (BACKWARD, 2))
    first = 3 * len(BLOCK) + len(BACKWARD)
    rows = list(range(first, first + 6))
    assert again(tables) == [*rows, *(row + 6 + len(BACKWARD) for row in rows)]


def test_what_is_alike_by_chance_did_not_run_again() -> None:
    casts = (("bfloat16_copy_kernel", 10),) * 12
    assert again(job((BLOCK + casts, 1), (casts + BACKWARD, 2))) == []  # no product among them
    assert again(job((BLOCK * 3, 1))) == []  # one thread: layers are alike, and none of them is a backward pass
    assert again(job((BLOCK, 1), (BLOCK[1:4] + BACKWARD, 2))) == [
        len(BLOCK) + 2
    ]  # attention alone, as compilers leave it
    longer = tuple((name, long + 1) for name, long in BLOCK if "flash" not in name)
    assert again(job((BLOCK, 1), (longer, 2))) == []  # other grids


def test_what_it_gives_back_is_its_time() -> None:
    tables = job((BLOCK * 3, 1), *(((*BLOCK[:-1], *BACKWARD), 2) for _ in range(3)))
    assert not [text for one in cited.every(make(**tables), window_spec(index=0)) for text in one.wrong]
    row = next(r for r in api.analyse(make(**tables), "diagnose").rows.to_dicts() if r["id"] == "recomputation")
    assert abs(row["recoverable_ns"] - 3 * 215 * US) < 20 * US  # launches are far ahead of the GPU
    assert "18 kernels" in row["title"] and "645 µs" in row["evidence"]


def test_where_the_host_is_behind_its_time_comes_back() -> None:
    """A launch every 200 µs: what is not launched gives that back, not the time of its kernels."""
    tables = job((BLOCK * 3, 1), *(((*BLOCK[:-1], *BACKWARD), 2) for _ in range(3)), apart=200)
    found = {r["id"]: r for r in api.analyse(make(**tables), "diagnose", least=0).rows.to_dicts()}
    row = found["recomputation"]
    assert 3 * 5 * 200 * US <= row["recoverable_ns"] <= 3 * 6 * 205 * US
    assert "is host time: the host is behind" in row["evidence"]
