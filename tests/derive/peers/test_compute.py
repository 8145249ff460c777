"""A rank beside its peers, by hand: who is compared with whom, and what is beyond chance."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepscope.derive.peers.compute import (
    KERNELS,
    WORTH_A_NAME,
    Compared,
    compare,
    longer,
    recorded_by_all,
    recorded_whole,
    same_work,
)

#: name -> (launches, ns in all, variance of one), with blocks of a launch where they matter
Kernels = dict[str, tuple[int, int, float]] | dict[str, tuple[int, int, float, int]]


def table(*ranks: Kernels) -> pl.DataFrame:
    rows = [(r, name, *row, *[0] * (4 - len(row))) for r, kernels in enumerate(ranks) for name, row in kernels.items()]
    return pl.DataFrame(rows, schema=KERNELS, orient="row")


def beside(*ranks: Kernels, groups: dict[int, str] | None = None, whole: set[int] | None = None) -> dict[int, Compared]:
    everyone = set(range(len(ranks)))
    return compare(table(*ranks), groups or dict.fromkeys(everyone, ""), everyone if whole is None else whole)


def job(gemm: int = 1000, norm: int = 500, variance: float = 1.0) -> Kernels:
    return {"gemm": (10, gemm, variance), "norm": (10, norm, variance)}


def named(compared: dict[int, Compared], stretch: int = 2000) -> set[int]:
    return set(longer(compared, stretch))


def test_a_slow_gpu_is_slow_in_all_kernels():
    compared = beside(job(), job(), job(1200, 600), job())
    assert named(compared) == {2}
    slow = compared[2]
    assert (slow.excess_ns, slow.slow_gpu, slow.alone) == (300, True, False)
    assert slow.factors() == {"gemm": pytest.approx(1 / 1.2), "norm": pytest.approx(1 / 1.2)}
    assert slow.slower["name"].to_list() == ["gemm", "norm"]  # most beyond first
    assert [compared[r].excess_ns for r in (0, 1, 3)] == [0, 0, 0]


def test_more_of_one_kernel_is_more_to_do():
    compared = beside(job(), job(1500), job())
    assert named(compared) == {1} and not compared[1].slow_gpu


def test_half_of_the_ranks_may_be_slow():
    assert named(beside(job(), job(1300, 650), job(), job(1300, 650))) == {1, 3}


def test_what_gpus_differ_by_is_not_an_excess():
    assert named(beside(job(), job(1029, 514), job())) == set()
    assert named(beside(job(), job(1040, 520), job())) == {1}


def test_what_a_stretch_would_not_notice_is_not_named():
    compared = beside(job(), job(1200, 600), job())
    assert named(compared, int(300 / WORTH_A_NAME.share)) == {1}
    assert named(compared, int(301 / WORTH_A_NAME.share)) == set()


def test_what_kernels_vary_by_is_chance():
    """300 ns more, over 20 kernels on either side: two standard errors are 300 at a deviation of 24 ns."""
    sure, chance = (beside(job(variance=v), job(1200, 600, variance=v), job(variance=v)) for v in (23.0**2, 25.0**2))
    assert sure[1].chance_ns == pytest.approx(23 * 40**0.5)
    assert (named(sure), named(chance)) == ({1}, set())
    assert set(longer(chance, 2000, known={1})) == {1}  # a longer stretch has shown it


def test_one_kernel_that_took_very_long_is_chance():
    """A kernel that waited for its turn on a shared GPU, once: its own variance says so."""
    usual, once = np.full(20, 100.0), np.append(np.full(19, 100.0), 7000.0)
    ranks = [{"gemm": (20, int(x.sum()), float(x.var(ddof=1)))} for x in (usual, once)]
    assert named(beside(*ranks), 10_000) == set()


def test_kernels_that_no_peer_runs():
    """In place of others they are none; on top of them they are more to do."""
    instead = {"gemm": (10, 1000, 1.0), "norm_v2": (10, 500, 1.0)}
    on_top = {**job(), "extra": (5, 400, 1.0)}
    compared = beside(job(), instead, on_top, job())
    assert (compared[1].excess_ns, compared[2].excess_ns) == (0, 400)
    assert named(compared) == {2}


def test_a_rank_that_recorded_less_is_compared_with_nobody():
    groups = dict.fromkeys(range(3), "")
    whole = recorded_whole({0: 100, 1: 89, 2: 90}, groups)
    assert whole == {0, 2}
    compared = beside(job(), job(10, 5), job(), whole=whole)
    assert set(compared) == {0, 2} and named(compared) == set()


def test_only_ranks_of_a_stage_are_peers():
    groups = {0: "0", 1: "0", 2: "1", 3: "1"}
    compared = beside(job(), job(), job(3000, 1500), job(3000, 1500), groups=groups)
    assert named(compared) == set()
    assert [compared[r].peers for r in range(4)] == [1, 1, 1, 1]


def test_a_rank_alone_is_compared_by_the_mean_of_its_kernels():
    """Stages differ in how many kernels they run; a slow GPU is slow in each of them."""
    more = {"gemm": (20, 2000, 1.0), "norm": (10, 500, 1.0), "head": (1, 900, 0.0)}
    slow = {"gemm": (10, 1300, 1.0), "norm": (10, 650, 1.0)}
    groups = {r: str(r) for r in range(4)}
    compared = beside(job(), more, slow, job(), groups=groups)
    assert named(compared) == {2} and compared[2].alone
    assert compared[1].excess_ns == 0 and "head" not in compared[1].kernels["name"].to_list()
    # Longer in one kernel alone: other shapes, for all that names tell.
    assert named(beside(job(), job(), job(3000), job(), groups=groups)) == set()


def test_two_ranks_or_nothing():
    assert beside(job()) == {} == compare(table(), {}, set())


def test_ranks_do_the_same_work_by_their_labels():
    ranks = pl.DataFrame({"rank": [0, 1, 2], "setup": [f"rank={r}; pp={r // 2}/2 dp=0/1" for r in range(3)]})
    assert same_work(ranks, None) == {0: "0", 1: "0", 2: "1"}
    bare = ranks.with_columns(pl.lit(None, pl.String).alias("setup"))
    assert same_work(bare, None) == dict.fromkeys(range(3), "")


@given(st.lists(st.dictionaries(st.sampled_from("abcd"), st.integers(1, 99), min_size=1), min_size=2, max_size=7))
def test_the_usual_is_the_median_of_the_others(times: list[dict[str, int]]):
    """Against a plain loop, for kernels that some ranks do not run."""
    compared = beside(*({name: (1, ns, 0.0) for name, ns in kernels.items()} for kernels in times))
    for rank, mine in enumerate(times):
        others = [t for r, t in enumerate(times) if r != rank]
        only = sum(ns for name, ns in mine.items() if not any(name in t for t in others))
        more = max(sum(mine.values()) - np.median([sum(t.values()) for t in others]), 0)
        want = {
            name: np.median([t[name] for t in others if name in t])
            if any(name in t for t in others)
            else ns * (1 - min(more / only, 1))
            for name, ns in mine.items()
        }
        assert dict(compared[rank].kernels.select("name", "like_ns").iter_rows()) == pytest.approx(want)


def test_more_launches_of_the_same_length_are_no_slow_gpu():
    """912 products of 445 µs where a peer launches 304 of 446, and so with all else."""
    more = {"gemm": (912, 912 * 445, 1.0), "norm": (60, 60 * 20, 1.0)}
    usual = {"gemm": (304, 304 * 446, 1.0), "norm": (20, 20 * 20, 1.0)}
    one = beside(usual, more)[1]
    assert not one.slow_gpu and one.as_fast and one.size_more is None
    assert one.launches_more == pytest.approx(3.0)


def batch(factor: float, slow: float = 1.0) -> Kernels:
    """A batch so many times as large: products are persistent, their grid says nothing; a fused one is of its own."""
    return {
        "gemm": (10, round(8000 * factor * slow), 1.0, 132),
        "gelu": (10, round(1000 * factor * slow), 1.0, round(1000 * factor)),
        "norm": (10, round(1000 * factor * slow), 1.0, round(500 * factor)),
        "adam": (1, round(400 * slow), 1.0, 400),
    }


def test_larger_launches_are_no_slow_gpu():
    one = beside(batch(1), batch(1.5), batch(1))[1]
    assert not one.slow_gpu and one.as_fast
    assert one.size_more == pytest.approx(1.5) and one.launches_more == 1.0


def test_a_kernel_for_larger_products_takes_the_place_of_the_peers():
    """cuBLAS has another kernel for another size: as many launches in all are not more of them."""
    larger = {"wide gemm" if name == "gemm" else name: row for name, row in batch(1.5).items()}
    one = beside(batch(1), larger, batch(1))[1]
    assert one.launches_beyond == 0 and one.launches_more == 1.0 and one.size_more == pytest.approx(1.5)
    twice = beside(batch(1), {**batch(1), "gemm": (20, 16000, 1.0, 132)}, batch(1))[1]
    assert twice.launches_beyond == 10 and twice.launches_more == pytest.approx(2.0)


def test_a_slow_gpu_is_slow_at_like_launches_whatever_their_size():
    same, larger = (beside(batch(1), batch(factor, slow=1.2), batch(1))[1] for factor in (1, 1.5))
    assert same.slow_gpu and not same.as_fast and same.size_more is None
    assert larger.slow_gpu and larger.ratio_at(0.5) == pytest.approx(1.2, rel=0.01)


def test_a_batch_of_as_many_blocks_leaves_the_others_telling():
    """Grids within 2 % are the same; an odd kernel of another size among many says nothing of the others."""
    one = beside(batch(1), {**batch(1.01, slow=1.3), "copy": (1, 30, 1.0, 7)}, batch(1))[1]
    assert one.slow_gpu and one.size_more is None


def test_ranks_recorded_for_unlike_times_are_compared_where_all_recorded():
    assert recorded_by_all({0: (0, 1000), 1: (10, 990)}) is None
    assert recorded_by_all({0: (0, 1000), 1: (300, 650), 2: (200, 900)}) == (300, 650)
    assert recorded_by_all({0: (0, 1000), 1: (2000, 2100)}) == (2000, 2000)  # nothing in common
