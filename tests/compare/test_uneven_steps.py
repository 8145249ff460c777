"""Steps that alternate between 132 ms and 1.4 s: judged by means, of which the truth is known."""

from __future__ import annotations

import numpy as np
import pytest

from fake import call, make, nvtx, op
from stepscope.compare.compare import compare
from stepscope.compare.gate import gate, parse_limits
from stepscope.compare.measuring import Given
from stepscope.compare.steps import StepSpec
from stepscope.errors import GateFailed
from stepscope.render import render

MS = 1_000_000


def run(lengths, compute=0.8):
    """A run of steps of these lengths (ms), after one that does not count: nothing, then compute for most of each."""
    ops, calls, ranges, t = [], [], [], 0
    for k, ms in enumerate([1, *lengths], 1):
        end = t + int(ms * MS)
        ops.append(op(end - int(ms * MS * compute), end, call=k))
        calls.append(call(t + 2, t + 4, k))
        ranges.append(nvtx(t, t + 8, f"step {k}"))
        t = end
    calls.append(call(t - 1, t + 1, name="cudaDeviceSynchronize"))
    return make(ops=ops, calls=calls, ranges=ranges)


def side(*runs):
    return Given(list(runs)).side(StepSpec(warmup=1))


def alternating(n, seed, factor=1.0, first=0):
    noise = 1 + 0.01 * np.random.default_rng(seed).standard_normal(n)
    return np.where((np.arange(n) + first) % 2, 1400, 132) * noise * factor


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("n", [12, 13, 21])
def test_the_mean_is_what_is_judged(n, first):
    base, slower = alternating(n, 1), alternating(n, 2, 1.2, first)
    result = compare(side(run(base)), side(run(slower)))
    step = result.summary["step"]
    assert result.summary["verdict"] == "slower" and step["judged_by"] == "mean"
    whole = n // 2 * 2
    assert step["base_mean_ns"] == pytest.approx(base[:whole].mean() * MS, rel=1e-6)
    assert step["mean_change_pct"] == pytest.approx(100 * (slower[:whole].mean() / base[:whole].mean() - 1), abs=0.01)
    assert step["low_mean_change_pct"] < 20 < step["high_mean_change_pct"]
    for column in ("base_mean_ns", "new_mean_ns"):
        assert sum(result.rows[column]) == step[column]
    said = result.summary["statement"]
    assert "in the mean" in said and "steps alternate between 13" in said and " and 1.4 s" in said
    assert any(note.code == "uneven-steps" for note in result.notes)


def test_like_runs_do_not_differ_whichever_step_they_begin_with():
    for n, m in ((20, 21), (21, 21), (13, 20)):
        result = compare(side(run(alternating(n, 3))), side(run(alternating(m, 4, first=1))))
        assert result.summary["verdict"] == "no difference", (n, m)
        step = result.summary["step"]
        assert step["low_change_pct"] >= -100 and step["low_mean_change_pct"] >= -100
        assert all(low >= -base for low, base in zip(result.rows["low_ns"], result.rows["base_ns"], strict=True))


def test_runs_are_judged_by_their_mean_steps():
    base, new = ([run(alternating(13, 10 * k + s, f, s)) for s in range(3)] for k, f in ((1, 1.0), (2, 1.1)))
    result = compare(side(*base), side(*new))
    assert result.summary["verdict"] == "slower"
    assert result.summary["step"]["mean_change_pct"] == pytest.approx(10, abs=1.5)


def test_the_gate_looks_at_means_too():
    base = side(run(alternating(21, 5)))
    assert gate(base, side(run(alternating(20, 6, first=1))), parse_limits(None, ["step=3"])).summary["pass"]
    with pytest.raises(GateFailed, match="step"):
        gate(base, side(run(alternating(20, 7, 1.1, 1))), parse_limits(None, ["step=3"]))


def test_even_steps_are_judged_by_medians_with_means_beside():
    random = np.random.default_rng(2)
    base, new = (100 * (1 + 0.02 * random.standard_normal(20)) for _ in range(2))
    base[3] = 3000  # an outlier moves the mean, not the verdict
    result = compare(side(run(base)), side(run(new)))
    step = result.summary["step"]
    assert step["judged_by"] == "median" and result.summary["verdict"] == "no difference"
    assert step["base_mean_ns"] == pytest.approx(base.mean() * MS, rel=1e-6)
    assert not any(note.code == "uneven-steps" for note in result.notes)


def test_the_table_shows_what_is_judged():
    uneven = compare(side(run(alternating(12, 1))), side(run(alternating(12, 2))))
    even = compare(side(run([100] * 9 + [101])), side(run([100] * 9 + [102])))
    assert (
        "base_mean" in render(uneven, "table").decode()
        and "base_mean" not in render(even, "table").decode().split("step:")[0]
    )
    assert max(map(len, render(uneven, "table").decode().splitlines())) <= 100
