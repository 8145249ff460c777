"""The run's account: it closes on every trace, and names what was planted."""

from __future__ import annotations

import pytest

from fake import call, copy, make, nvtx, op
from stepscope import api

MS = 1_000_000


def loop(lengths, *, gap=0, extra=None, ops=2):
    """A profile whose host marks steps of these lengths (ms), `gap` apart; `extra` ms lie before the steps it names."""
    extra = extra or {}
    at, ops_, calls, ranges, n = 0, [], [], [], 0
    for k, length in enumerate(lengths):
        at += (gap if k else 0) * MS + extra.get(k, 0) * MS
        ranges.append(nvtx(at, at + length * MS, f"step {k}"))
        for j in range(ops):
            n += 1
            calls.append(call(at + j * 1000, at + j * 1000 + 500, n))
            begin = at + 2000 + j * (length * MS - 4000) // ops
            ops_.append(op(begin, begin + (length * MS - 4000) // ops, call=n))
        at += length * MS
    return make(ops=ops_, calls=calls, ranges=ranges)


def table(profile, **options):
    return api.analyse(profile, "run", **options)


def parts(result):
    keys = ("part", "kind", "n", "every", "spikes")
    return [tuple(row[k] for k in keys) for row in result.rows.iter_rows(named=True)]


def test_equal_steps_are_one_kind_without_spikes():
    result = table(loop([20] * 12))
    assert ("steps", "usual", 11, None, 0) in parts(result)
    assert result.summary["spikes"] == 0


def test_a_late_step_of_twelve_is_a_spike():
    result = table(loop([28, 28, 28, 28, 28, 88, 28, 28, 28, 28, 28, 28]))
    assert ("steps", "usual", 11, None, 1) in parts(result)
    assert result.summary["spike_ns_per_step"] == pytest.approx(60 * MS / 11, rel=0.01)
    steps = table(loop([28, 28, 28, 28, 28, 88, 28, 28, 28, 28, 28, 28]), by="step").rows
    assert steps.filter(steps["spike"])["index"].to_list() == [5]


def test_every_third_step_is_a_kind():
    """`torch.save` inside the marks: ranges leave no gap, so that the step with it is of another kind."""
    result = table(loop([57, 57, 862] * 4))
    assert ("steps", "usual", 7, None, 0) in parts(result)
    assert ("steps", "longer", 4, 3, 0) in parts(result)
    assert "every 3" in result.summary["statement"]


def test_what_lies_between_marks_is_no_part_of_the_step():
    """An evaluation between ranges: steps stay alike, and the time between is counted apart."""
    result = table(loop([50] * 10, gap=2, extra={3: 400, 6: 400, 9: 400}))
    assert ("steps", "usual", 9, None, 0) in parts(result)
    row = result.rows.filter(result.rows["part"] == "between steps")
    assert row["n"].to_list() == [3]
    assert row["total_ns"][0] == pytest.approx(1200 * MS, rel=0.01)


def test_a_usual_gap_belongs_to_the_step():
    """What a loop does before every step (it loads a batch) is the step's."""
    result = table(loop([50] * 10, gap=40))
    assert "between steps" not in result.rows["part"].to_list()
    assert ("steps", "usual", 9, None, 0) in parts(result)
    assert result.rows.filter(result.rows["part"] == "steps")["mean_ns"][0] == pytest.approx(90 * MS, rel=0.01)


def test_a_step_that_grows_drifts():
    result = table(loop([50 + 2 * k for k in range(20)]))
    assert result.summary["drift_ns_per_step"] == pytest.approx(2 * MS, rel=0.02)
    assert result.summary["spikes"] == 0


def test_startup_is_told_by_what_it_is_made_of():
    ops = [copy(0, 80 * MS, call=1, copy_kind="HtoD"), op(80 * MS, 280 * MS, call=2), op(280 * MS, 480 * MS, call=3)]
    ops[0]["kind"] = "memcpy"
    calls = [call(0, 1000, 1), call(2000, 3000, 2), call(4000, 5000, 3)]
    result = table(make(ops=ops, calls=calls))
    row = result.rows.row(0, named=True)
    assert (row["part"], row["total_ns"]) == ("start-up", 80 * MS)
    assert "copies to the device" in row["made_of"]
    assert "copies to the device" in result.summary["statement"]


def test_without_a_kernel_all_is_startup():
    calls = [call(0, 10 * MS, 1, "cuModuleLoadData"), call(10 * MS, 12 * MS, 2, "cudaMalloc")]
    result = table(make(calls=calls))
    assert result.rows["part"].to_list() == ["start-up"]
    assert result.rows["total_ns"].to_list() == [12 * MS]
    made = table(make(calls=calls), by="content").rows.select("what", "total_ns").rows()
    assert made == [("loading code", 10 * MS), ("allocating memory", 2 * MS)]
