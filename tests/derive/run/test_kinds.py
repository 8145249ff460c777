"""Kinds, spikes and drift of lengths whose truth is known: 500 random runs of each sort."""

from __future__ import annotations

import numpy as np
import pytest

from stepscope.derive.run.kinds import Kinds, kinds_of, period_of, works

STEPS, RUNS = 30, 500
NUMBER = np.arange(STEPS)


def told(kinds: Kinds) -> tuple[list[tuple[int, int | None]], list[int], bool]:
    """Kinds beside the usual one, spikes, and whether there is a drift."""
    others = sorted((len(k.steps), k.every) for k in kinds.kinds[1:])
    return others, np.flatnonzero(kinds.spike).tolist(), kinds.drift is not None


def runs(seed: int):
    """Random generators with steps of about 100, as noisy as they come."""
    random = np.random.default_rng(seed)
    for _ in range(RUNS):
        noise = float(random.choice([0.002, 0.01, 0.03]))
        yield random, noise, 100.0 * (1.0 + noise * random.standard_normal(STEPS))


def wrong(seed: int, plant) -> int:
    """In how many runs something else is told than what was planted."""
    count = 0
    for random, noise, steps in runs(seed):
        truth = plant(random, noise, steps)
        count += told(kinds_of(steps, NUMBER)) != truth
    return count


def test_healthy_runs_are_not_accused():
    assert wrong(1, lambda *_: ([], [], False)) <= 0.01 * RUNS


@pytest.mark.parametrize("share", [0.02, 0.1, 0.3])
@pytest.mark.parametrize("steps", [8, pytest.param(12, marks=pytest.mark.slow), 29])
def test_long_tails_are_not_spikes(share, steps):
    """Hosts are late at random, with an exponential tail: that is the noise of the run, whatever its scale."""
    random, number = np.random.default_rng(7), np.arange(steps)
    lengths = (100.0 * (1.0 + share * random.exponential(size=steps)) for _ in range(RUNS))
    assert sum(told(kinds_of(each, number)) != ([], [], False) for each in lengths) <= 0.015 * RUNS


def test_the_order_of_lengths_is_no_drift():
    """Steps that differ a lot, in no order: that the longer ones are longer is not a trend."""
    random = np.random.default_rng(8)
    assert (
        sum(kinds_of(100.0 + 5.0 * random.standard_normal(8), np.arange(8)).drift is not None for _ in range(500)) <= 2
    )


@pytest.mark.slow
def test_spikes_are_named():
    def plant(random, noise, steps):
        at = np.sort(random.choice(STEPS, int(random.integers(1, 5)), replace=False))
        steps[at] += 100.0 * random.uniform(max(0.2, 10 * noise), 2.0, len(at))
        return [], at.tolist(), False

    assert wrong(2, plant) <= 0.02 * RUNS


@pytest.mark.slow
def test_what_recurs_is_a_kind():
    def plant(random, noise, steps):
        every = int(random.integers(3, 10))
        at = np.arange(int(random.integers(0, every)), STEPS, every)
        steps[at] += 100.0 * random.uniform(max(0.2, 10 * noise), 5.0)
        return [(len(at), every)], [], False

    assert wrong(3, plant) <= 0.02 * RUNS


@pytest.mark.slow
def test_alternating_steps_are_two_kinds():
    def plant(random, noise, steps):
        steps[::2] *= random.uniform(1.3, 8.0)
        return [(STEPS // 2, 2)], [], False

    assert wrong(4, plant) <= 0.02 * RUNS


@pytest.mark.slow
def test_steps_out_of_turn_are_spikes_beside_what_recurs():
    """Every 15th step saves for 9 ms; three others are 6 ms late: nearer to those that save than to the usual ones."""
    number = np.arange(1, 60)
    lengths = 1.79e6 + 0.01e6 * np.random.default_rng(3).random(59)
    saves = np.isin(number, (15, 30, 45))  # it copies weights: other work
    lengths[saves] += 9.1e6
    lengths[np.isin(number, (9, 31, 47))] += 6e6
    found = kinds_of(lengths, number, saves.astype(np.int64))
    (longer,) = found.kinds[1:]
    assert (longer.every, number[longer.steps].tolist()) == (15, [15, 30, 45])
    assert number[found.spike].tolist() == [9, 31, 47]


def test_drift_is_no_kind():
    def plant(random, noise, steps):
        steps *= 1.0 + random.uniform(0.2, 0.6) * NUMBER / STEPS
        return [], [], True

    assert wrong(5, plant) <= 0.02 * RUNS


def test_a_spike_on_a_drift_is_found():
    steps = 100.0 + 2.0 * NUMBER
    steps[20] += 40.0
    assert told(kinds_of(steps, NUMBER)) == ([], [20], True)


@pytest.mark.parametrize("steps", [[100.0], [100.0, 150.0], [136.5, 147.2, 136.4], [3.7, 3.5, 2.9, 2.8]])
def test_few_steps_tell_nothing(steps):
    assert told(kinds_of(np.array(steps), np.arange(len(steps)))) == ([], [], False)


def test_a_huge_step_is_a_spike_though_there_are_few():
    assert told(kinds_of(np.array([2.75, 879.0, 2.68]), np.arange(3))) == ([], [1], False)


def test_other_work_is_told_by_counts_of_ops():
    usual, other, nearly = [100.0, 50.0], [100.0, 90.0], [101.0, 49.0]
    assert works(np.array([usual, other, nearly, other])).tolist() == [0, 1, 0, 1]
    lengths = np.array([100.0, 100.5, 108.0, 99.5, 100.2, 108.4])  # 8 %: only the work tells
    number = np.arange(6)
    kinds = kinds_of(lengths, number, np.array([0, 0, 1, 0, 0, 1]))
    assert told(kinds) == ([(2, 3)], [], False)
    assert told(kinds_of(lengths, number)) == ([], [], False)


def test_a_period_has_no_gap():
    number = np.arange(12)
    assert period_of(np.array([2, 5, 8, 11]), number) == 3
    assert period_of(np.array([2, 5, 11]), number) is None
    assert period_of(np.array([5, 8, 11]), number) is None  # it would have come at 2
    assert period_of(np.array([2, 5]), number) is None
