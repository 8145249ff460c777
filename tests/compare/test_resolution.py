"""What a baseline says that it can tell: a planted change of that size is seen as often as said."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from stepscope import api
from stepscope.cli.main import run
from stepscope.compare.changing import matched, step_change
from stepscope.compare.resolution import MOST_STEPS, resolution, steps_needed
from stepscope.compare.run import PARTS, Run, Table
from stepscope.compare.side import Side
from stepscope.errors import GateFailed
from stepscope.simulate.job.scenario import Scenario
from stepscope.simulate.run import simulate_to
from stepscope.statistics.student import FEWEST, RATE

STEP_NS = 1e8
TRIALS = 80
#: Three standard errors of such a rate in so many trials.
WITHIN = 0.1
JOB = {"schedule": "ddp", "pp": 1, "ep": 1, "dp": 2, "layers": 2, "micro_batches": 1}


def side(*runs: np.ndarray) -> Side:
    """Runs whose steps are of these lengths, all of it compute."""
    made = []
    for lengths in runs:
        ns = np.zeros((len(lengths), 1, len(PARTS)))
        ns[:, 0, 0] = lengths
        labels = [str(k) for k in range(len(lengths))]
        made.append(Run(labels, "step", [0], {"part": Table(["step"], ns, np.ones((len(lengths), 1)))}))
    return Side(made, {})


def sees(base: Side, new: Side) -> bool:
    first, second, design = matched(base, new)
    low = step_change(first, second, design).judged[2]
    return low is not None and low > 0


def normal(random: np.random.Generator, n: int) -> np.ndarray:
    return STEP_NS * (1 + 0.02 * random.standard_normal(n))


def heavy(random: np.random.Generator, n: int) -> np.ndarray:
    return STEP_NS * (1 + 0.01 * random.standard_t(3, n))


def rate_seen(sides: Callable[[], Side]) -> float:
    """How often a change of the size that a side tells is seen beside it."""
    seen = []
    for _ in range(TRIALS):
        base, new = sides(), sides()
        found = resolution(base)
        size = found.detectable_pct / 100 * found.step_ns
        seen.append(sees(base, side(*(run.step_ns + size for run in new.runs))))
    return float(np.mean(seen))


@pytest.mark.parametrize(("n", "noise"), [(3, normal), (4, normal), (8, normal), (8, heavy), (30, normal)])
def test_a_change_of_that_size_is_seen_at_that_rate(n, noise):
    random = np.random.default_rng(n)
    assert abs(rate_seen(lambda: side(noise(random, n))) - RATE.share) <= WITHIN


def test_runs_are_the_samples_where_there_are_several():
    random = np.random.default_rng(5)

    def runs() -> Side:
        return side(*(normal(random, 8) + 0.03 * STEP_NS * random.standard_normal() for _ in range(4)))

    found = resolution(runs())
    assert (found.unit, found.samples) == ("run", 4)
    assert abs(rate_seen(runs) - RATE.share) <= WITHIN


def test_one_step_tells_nothing():
    assert resolution(side(np.array([STEP_NS]))) is None


def test_as_many_steps_as_the_limit_needs():
    random = np.random.default_rng(8)
    base = side(normal(random, 60))
    needed = {limit: steps_needed(base, limit) for limit in (1.5, 2.0, 3.0, 30.0)}
    assert needed[1.5] > needed[2.0] > needed[3.0] >= needed[30.0] == FEWEST.count
    assert steps_needed(base, 0.1) is None
    assert steps_needed(side(np.full(6, STEP_NS)), 2.0) == FEWEST.count
    assert max(needed.values()) <= MOST_STEPS
    fresh = [(side(normal(random, 60)), side(normal(random, needed[2.0]) + 0.02 * STEP_NS)) for _ in range(TRIALS)]
    assert np.mean([sees(*pair) for pair in fresh]) >= RATE.share - WITHIN


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("traces")
    for name, steps, jitter in (("quiet", 12, 0.01), ("noisy", 3, 0.2), ("once", 1, 0.0)):
        simulate_to(Scenario(**JOB, steps=steps, jitter=jitter), root / name, ("nsys",))
    return root


@pytest.mark.parametrize("name", ["quiet", "noisy", "once"])
def test_a_baseline_beside_itself_tests_nothing(traces, name, tmp_path):
    path = api.save_baseline(traces / name, str(tmp_path / "base.json"), cache=False)
    with pytest.raises(GateFailed, match=r"nothing was tested.*a capture of the new run would decide") as failed:
        api.gate(path, traces / name, limits=["step=2", "idle=0"], cache=False)
    result = failed.value.result
    assert set(result.rows["status"]) == {"inconclusive"} and not result.summary["pass"]
    allowed = api.gate(path, traces / name, limits=["step=2"], cache=False, allow_inconclusive=True)
    assert allowed.summary["pass"] and set(allowed.rows["status"]) == {"inconclusive"}
    assert result.notes[0].code == "same-capture"


def test_saving_says_what_it_can_tell(traces, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    assert run(["gate", str(traces / "quiet"), "--save", "main"]) == 0
    out, err = capfd.readouterr()
    said = re.search(r"11 steps of .*: beside as many .* a change of ([\d.]+) % .* is seen 9 times in 10", out)
    assert said and float(said[1]) < 2 and err == ""
    assert run(["gate", str(traces / "noisy"), "--save", "noisy", "--limit", "step=0.01"]) == 0
    assert re.search(
        r"a change of 0.01 %, the limit, may go unseen: \d+ steps per side would show it", capfd.readouterr().err
    )
    assert run(["gate", str(traces / "once"), "--save", "once"]) == 0
    assert "what change it can tell is not known" in capfd.readouterr().out
