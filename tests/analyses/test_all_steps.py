"""Shares over all steps beside those of the median one: nanosecond by nanosecond, and on a simulated job."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from fake import Row, call, comm, copy, make, nvtx, op
from random_profiles import part
from stepscope import api
from stepscope.simulate.job.scenario import Scenario
from stepscope.simulate.run import simulate_to

PARTS = {"compute": "compute_pct", "comm": "comm_exposed_pct", "copy": "copy_exposed_pct", "idle": "idle_pct"}


def alternating(seed: int, steps: int = 6) -> dict[str, list[Row]]:
    """Two ranks whose steps take some 132 ns and 1,400 ns in turn, with ops of every kind."""
    r = random.Random(seed)
    tables: dict[str, list[Row]] = {"ops": [], "calls": [], "ranges": []}
    for rank in range(2):
        at = number = 0
        for step in range(steps):
            length = (132, 1400)[step % 2]
            tables["ranges"].append(nvtx(at, at + length, f"step {step}", proc=rank))
            for launched in sorted(r.randrange(at, at + length) for _ in range(4)):
                number += 1
                start = launched + r.randrange(20)
                made = r.choice([op, op, comm, copy])
                tables["ops"].append(made(start, start + r.randrange(5, length // 4), call=number, proc=rank))
                tables["calls"].append(call(launched, launched + 1, number) | {"proc": rank})
            at += length
    return tables


@pytest.mark.parametrize("seed", range(10))
def test_shares_over_all_steps_equal_brute_force(seed: int):
    tables = alternating(seed)
    summary = api.analyse(make(**tables), "breakdown").summary["all_steps"]
    want: Counter[str] = Counter()
    for rank in range(2):
        ops = [o for o in tables["ops"] if o["proc"] == rank]
        want.update(part(ops, t) for t in range(max(o["end_ns"] for o in ops)))
    assert summary["steps"] == 6
    assert summary["mean_ns"] == pytest.approx(want.total() / 2 / 6, abs=1)
    for name, column in PARTS.items():
        assert summary[column] == pytest.approx(100 * want[name] / want.total()), name


def test_they_are_the_sum_of_the_steps_of_a_simulated_job(tmp_path: Path):
    simulate_to(Scenario(schedule="1f1b", pp=2, ep=1, layers=2, micro_batches=4, steps=3, seed=5), tmp_path, ("nsys",))
    profile = api.open(tmp_path / "*.sqlite", cache=False)
    summary, steps = profile.breakdown().summary["all_steps"], profile.breakdown(by="step").rows
    total = steps["window_ns"].sum()
    assert summary["steps"] == 3 and summary["mean_ns"] == pytest.approx(total / steps.height, abs=1)
    for name in ("compute", "comm_exposed", "copy_exposed", "idle"):
        assert summary[f"{name}_pct"] == pytest.approx(100 * steps[f"{name}_ns"].sum() / total)


def test_they_are_left_out_where_the_answer_has_every_step_or_none():
    tables = alternating(0)
    for options in ({"by": "step"}, {"whole": True}, {"tree": True}, {"anchor": "^step"}):
        assert "all_steps" not in api.analyse(make(**tables), "breakdown", **options).summary, options
    assert "all_steps" not in api.analyse(make(**alternating(0, steps=1)), "breakdown").summary
