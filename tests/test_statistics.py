"""Intervals: textbook values, known answers, and how often they are wrong on noise of all sorts."""

from __future__ import annotations

from collections import Counter
from itertools import accumulate, product

import numpy as np
import polars as pl
import pytest

from stepscope.analyses.pipeline.overlap_score import against
from stepscope.analyses.pipeline.two_stages import TwoStage
from stepscope.statistics.changes import PAIRS, RUNS, STEPS, interval, mean_change, median_change, median_weights
from stepscope.statistics.recurring import mean_weights, period_of, uneven
from stepscope.statistics.student import student

RANDOM = np.random.default_rng(11)


@pytest.mark.parametrize(
    ("freedom", "t"), [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (5, 2.571), (10, 2.228), (38, 2.024)]
)
def test_student_is_the_textbook_s(freedom, t):
    assert student(0.95, freedom) == pytest.approx(t, abs=6e-4)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 20, 101])
def test_weights_give_the_median_and_parts_that_sum_to_it(n):
    parts = RANDOM.random((n, 4)) * 100
    total = parts.sum(axis=1)
    weights = median_weights(total)
    assert weights @ total == pytest.approx(np.median(total))
    assert (weights @ parts).sum() == pytest.approx(np.median(total))


def test_one_outlier_does_not_move_what_a_step_is_made_of():
    parts = np.tile([70.0, 30.0], (20, 1))
    parts[7] = [70.0, 9000.0]
    assert median_weights(parts.sum(axis=1)) @ parts == pytest.approx([70.0, 30.0])


def test_one_sample_a_side_has_no_interval():
    one = np.array([[5.0]])
    found = median_change(one, one, one[:, 0], one[:, 0], STEPS)
    assert found.low is None and found.high is None


def claims(base: np.ndarray, new: np.ndarray, *, steps: bool) -> bool:
    found = median_change(base[:, None], new[:, None], base, new, STEPS if steps else RUNS)
    assert found.low is not None and found.high is not None
    assert found.low[0] <= found.delta[0] <= found.high[0]
    return bool(found.low[0] > 0 or found.high[0] < 0)


def noise(kind: str, n: int, random: np.random.Generator) -> np.ndarray:
    if kind == "skewed":
        return 100 + np.exp(random.standard_normal(n))
    if kind == "two modes":
        return 100 + 0.3 * random.standard_normal(n) + 2 * (random.random(n) < 0.5)
    if kind == "with memory":  # each step half of the one before
        e = random.standard_normal(n + 30)
        x = np.zeros(n + 30)
        for i in range(1, n + 30):
            x[i] = 0.5 * x[i - 1] + e[i]
        return 100 + x[30:]
    return 100 + random.standard_normal(n)


@pytest.mark.parametrize("kind", ["skewed", "two modes", "with memory"])
def test_noise_is_rarely_called_a_change(kind):
    random = np.random.default_rng(5)
    wrong = sum(claims(noise(kind, 20, random), noise(kind, 20, random), steps=True) for _ in range(200))
    assert wrong <= 14  # 5 % of 200, and what chance adds to that in one of forty such tests


@pytest.mark.parametrize(("n", "m"), [(2, 2), (3, 3), (4, 4), (1, 5), (5, 5)])
def test_few_runs_are_not_taken_for_more(n, m):
    """The bootstrap alone claims a difference in a third of the pairs of two runs each."""
    random = np.random.default_rng(7)
    wrong = sum(claims(noise("normal", n, random), noise("normal", m, random), steps=False) for _ in range(200))
    assert wrong <= 16


@pytest.mark.slow
def test_many_rows_hold_together():
    """In at most 5 % of the pairs (7 of 60, with what chance adds) any of 40 rows of noise is called changed."""
    random = np.random.default_rng(3)
    wrong = 0
    for _ in range(60):
        a, b = (100 + random.standard_normal((20, 40)) for _ in range(2))
        found = median_change(a, b, a.sum(axis=1), b.sum(axis=1), STEPS, 40)
        assert found.low is not None and found.high is not None
        wrong += bool(((found.low > 0) | (found.high < 0)).any())
    assert wrong <= 7


def test_the_same_samples_give_the_same_interval():
    a, b = noise("normal", 20, np.random.default_rng(1)), noise("normal", 20, np.random.default_rng(2))
    first, second = (median_change(a[:, None], b[:, None], a, b, STEPS) for _ in range(2))
    assert (first.low, first.high) == (second.low, second.high)


@pytest.mark.slow
def test_long_runs_need_little_memory():
    long = noise("normal", 5_000, RANDOM)
    found = median_change(long[:, None], long[:, None], long, long, STEPS)
    assert found.delta[0] == 0 and found.high is not None and found.high[0] < 0.2


@pytest.mark.parametrize("n", [3, 7, 20])
def test_pairs_see_what_their_own_spread_hides(n):
    """Chunks that differ by 10 % among each other, and each by 1 % from its pair."""
    base = np.linspace(100, 110, n) + RANDOM.normal(0, 0.05, n)
    new = base * 1.01 + RANDOM.normal(0, 0.05, n)
    paired = median_change(base[:, None], new[:, None], base, new, PAIRS)
    apart = median_change(base[:, None], new[:, None], base, new, STEPS)
    assert paired.low is not None and apart.low is not None
    assert paired.low[0] > 0 > apart.low[0]


def test_one_pair_is_not_enough():
    one = np.array([[5.0]])
    assert median_change(one, one, one[:, 0], one[:, 0], PAIRS).low is None


def exact_bootstrap(base: list[float], new: list[float], shares: list[float]) -> list[float]:
    """Quantiles of the difference of medians over all samples that can be drawn, listed one by one."""
    medians = [
        Counter(sorted(draw)[len(draw) // 2] for draw in product(side, repeat=len(side))) for side in (base, new)
    ]
    off = Counter[float]()
    for (a, n), (b, m) in product(*(side.items() for side in medians)):
        off[b - a] += n * m
    values = sorted(off)
    upto = list(accumulate(off[value] for value in values))
    return [values[next(i for i, n in enumerate(upto) if n > share * upto[-1])] for share in shares]


@pytest.mark.parametrize("seed", range(6))
def test_five_samples_are_drawn_from_as_all_draws_would(seed):
    """Of five and five, all 3125 x 3125 pairs can be listed. 2000 of them place a quantile within 0.8 %."""
    base, new = np.random.default_rng(seed).integers(1000, 2000, (2, 5)).astype(float)
    found = interval(base, new, RUNS)
    assert found is not None
    a, b, c, d = exact_bootstrap(base.tolist(), new.tolist(), [0.017, 0.033, 0.967, 0.983])
    assert a - 1e-9 <= found[0] <= b + 1e-9 and c - 1e-9 <= found[1] <= d + 1e-9


def pipeline(periods: np.ndarray) -> TwoStage:
    """A run whose chunks have these periods."""
    periods = np.round(1000 * periods).astype(np.int64)
    columns = dict.fromkeys(("stage0_ns", "stage1_ns", "hidden_ns"), np.full(len(periods), 1000))
    unknown = dict.fromkeys(("decode_ns", "mesh_idle_ns", "tokens"), np.full(len(periods), None, dtype=object))
    chunks = {"period_ns": periods, **columns, "overlap_score": np.ones(len(periods)), **unknown}
    return TwoStage(pl.DataFrame(chunks))


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "n"), [("with memory", 20), ("normal", 2), ("normal", 3), ("skewed", 20)])
def test_chunks_of_like_pipelines_are_rarely_called_apart(kind, n):
    """The plain bootstrap claims a difference in 16 % with memory, in 37 % of two chunks a side (decision 0013)."""
    random = np.random.default_rng(17)
    verdicts = [
        against(pipeline(noise(kind, n, random)), pipeline(noise(kind, n, random)), 0)["change"]["verdict"]
        for _ in range(200)
    ]
    assert sum("noise" not in verdict for verdict in verdicts) <= 16


def test_pipelines_that_differ_are_told_apart():
    random = np.random.default_rng(17)
    for _ in range(50):
        other, slower = noise("normal", 20, random), 1.03 * noise("normal", 20, random)
        change = against(pipeline(slower), pipeline(other), 0)["change"]
        assert change["verdict"] == "the period is longer than the other"
        assert 0 < change["interval_low_ns"] <= change["period_ns"] <= change["interval_high_ns"]


def test_one_chunk_each_has_no_interval():
    one = pipeline(np.array([100.0]))
    change = against(one, one, 0)["change"]
    assert change["verdict"].startswith("not enough to tell")
    assert change["interval_low_ns"] is change["interval_high_ns"] is None


# -- steps of very different lengths -----------------------------------------------------------------------------------


def lengths(kind: str, n: int, random: np.random.Generator) -> np.ndarray:
    """Steps whose true mean is 100."""
    noise = 1 + 0.02 * random.standard_normal(n)
    if kind == "alternate":  # 132 ms and 1.4 s, wherever the run begins
        return np.where((np.arange(n) + random.integers(2)) % 2, 132, 1400) * noise * 100 / 766
    if kind == "every fourth":
        return np.where((np.arange(n) + random.integers(4)) % 4, 100, 400) * noise * 100 / 175
    if kind == "by chance":
        return np.where(random.random(n) < 0.5, 132, 1400) * noise * 100 / 766
    return 100 * np.exp(0.5 * random.standard_normal(n) - 0.125)


KINDS = ("alternate", "every fourth", "by chance", "lognormal")


@pytest.mark.parametrize("kind", KINDS)
def test_the_interval_of_means_holds_the_truth(kind):
    """95 % nominally; of 300 pairs, 91 % or more."""
    random = np.random.default_rng(KINDS.index(kind))
    held = claimed = 0
    for _ in range(300):
        base, new = lengths(kind, 20, random), 1.1 * lengths(kind, 20, random)
        found = mean_change(base[:, None], new[:, None], base, new, STEPS)
        held += found.low[0] <= 10 <= found.high[0]
        same = lengths(kind, 20, random)
        found = mean_change(base[:, None], same[:, None], base, same, STEPS)
        claimed += found.low[0] > 0 or found.high[0] < 0
    assert held >= 0.91 * 300 and claimed <= 0.09 * 300


def test_steps_that_alternate_are_told_apart_within_little_noise():
    """Their difference is no noise: a change of 10 % is found, always."""
    random = np.random.default_rng(8)
    for _ in range(50):
        base, new = lengths("alternate", 21, random), 1.1 * lengths("alternate", 21, random)
        found = mean_change(base[:, None], new[:, None], base, new, STEPS)
        assert found.low[0] > 0 and found.high[0] - found.low[0] < 6


def test_what_is_uneven_and_what_recurs():
    random = np.random.default_rng(9)
    assert [period_of(lengths(k, 20, random)) for k in KINDS] == [2, 4, 1, 1]
    assert all(uneven(lengths(k, 20, random)) for k in KINDS)
    usual = 100 * (1 + 0.1 * random.standard_normal(40))
    assert not uneven(usual) and period_of(usual) == 1
    usual[[3, 17]] = 2000  # a checkpoint or two
    assert not uneven(usual)
    assert not uneven(np.array([100.0, 1000.0, 100.0]))  # too few to tell
    assert not uneven(np.full(10, 7.0)) and period_of(np.zeros(8)) == 1
    assert mean_weights(np.array([1.0, 9.0] * 5 + [1.0])) @ np.array([1.0, 9.0] * 5 + [1.0]) == pytest.approx(5)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 12, 21])
def test_nothing_shrinks_by_more_than_all_of_it(n):
    random = np.random.default_rng(n)
    for kind in KINDS:
        base, new = lengths(kind, n, random), 0.05 * lengths(kind, n + 1, random)
        for change in (median_change, mean_change):
            for rows in (1, 50):
                found = change(base[:, None], new[:, None], base, new, STEPS, rows)
                if found.low is not None:
                    assert -found.base[0] <= found.low[0] <= found.delta[0] <= found.high[0]
