"""The run's account: it closes on every trace, and names what was planted."""

from __future__ import annotations

import shutil

import polars as pl
import pytest

from fake import call, copy, make, nvtx, op
from marks import slow_unless
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


def test_a_cut_step_is_none_of_the_steps_that_the_sentence_counts():
    """The first takes 300 of 500 ms, and nothing before it was recorded."""
    result = table(loop([300, 50, 50, 50, 50]))
    assert result.summary["statement"] == "Steps take 40 % of the 500 ms captured: 4 steps of 50 ms; cut steps 60 %."
    steps = result.rows.filter(result.rows["part"] == "steps")["total_ns"].sum()
    assert result.summary["steps_ns"] == steps


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


def sums(profile):
    """Parts of a rank sum to its capture, and contents and steps to their parts."""
    result = table(profile)
    for window in result.window:
        rows = result.rows.filter(pl.col("rank") == window["rank"])
        captured = window["cpu_end_ns"] - window["cpu_start_ns"]
        assert rows["total_ns"].sum() == captured
        split = rows.select("compute_ns", "comm_exposed_ns", "copy_exposed_ns", "idle_ns")
        if not profile.has("ops"):
            assert split.null_count().sum_horizontal().item() == 4 * rows.height
            continue
        assert split.sum_horizontal().to_list() == rows["total_ns"].to_list()
        assert rows["share_pct"].sum() == pytest.approx(100.0)
    keys = ["rank", "part"]
    made = table(profile, by="content").rows.group_by(keys).agg(pl.col("total_ns").sum())
    parts_ = result.rows.filter(pl.col("part").is_in(["start-up", "between steps", "after the steps"]))
    assert made.sort(keys).rows() == parts_.select(*keys, "total_ns").sort(keys).rows()
    steps = table(profile, by="step").rows
    if steps.height:
        of_steps = result.rows.filter(pl.col("part").is_in(["steps", "cut steps"]))["total_ns"].sum()
        assert steps["step_ns"].sum() == of_steps
        between = result.rows.filter(pl.col("part") == "between steps")["total_ns"].sum()
        assert steps["between_ns"].sum() == between


TRACES = [
    *("h200/hf/hf1_*.sqlite", "h200/hf/hf1_*.json.gz", "h200/hf/jax_graphs.sqlite", "h200/train/*", "public/*.json.gz"),
    *("public/*.sqlite", "h200/moe4*/*.sqlite", "h200/payloads/*.sqlite", "h200/hf/hf4_*.sqlite"),
    *("h200/moe4*/*.json.gz", "h200/hf/hf4_healthy.*.json.gz", "public/*.nsys-rep"),
]


@pytest.mark.parametrize("pattern", slow_unless("h200/moe4*/*.sqlite".__eq__, TRACES))
@pytest.mark.slow
def test_the_account_closes_on_real_traces(shared, pattern):
    if pattern.endswith(".nsys-rep") and shutil.which("nsys") is None:
        pytest.skip("nsys is not on the PATH: it is what reads a report")
    for path in sorted((shared / "traces").glob(pattern)):
        if "invalid" not in path.name:
            sums(api.open(path))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["h200/hf/hf4_straggler.rank*.pt.trace.json.gz", "public/dlrm8/dlrm_kineto"])
def test_the_account_closes_on_several_ranks(shared, name):
    sums(api.open(str(shared / "traces" / name)))


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["judged", "traps"])
def test_the_account_closes_on_judged_traces(shared, folder):
    for path in sorted((shared / folder).glob("*.*")):
        if path.suffix != ".md":
            sums(api.open(path))


def test_no_trace_is_left_out(shared):
    """Every trace is asked for its account; a report and a folder of tables are the same traces as their exports."""
    there = {
        p for p in (shared / "traces").rglob("*") if p.name.endswith((".sqlite", ".json.gz")) and "dlrm" not in str(p)
    }
    patterns = [*TRACES, "h200/hf/hf4_straggler.rank*.pt.trace.json.gz"]
    assert there - {p for pattern in patterns for p in (shared / "traces").glob(pattern)} == set()


def test_startup_of_judged_traces(shared):
    """Weights uploaded, memory allocated and code loaded are start-up: a person says so of these."""
    made = {}
    for name in ("startup_weights_2.7B", "llmc_no_kernel", "als244_report1", "one_memset"):
        row = table(api.open(shared / "judged" / f"{name}.sqlite")).rows.row(0, named=True)
        made[name] = row["part"], round(row["share_pct"]), row["made_of"]
    assert {part for part, *_ in made.values()} == {"start-up"}
    assert made["llmc_no_kernel"][1] == made["one_memset"][1] == 100
    assert made["als244_report1"][1] > 50 and "allocating memory" in made["als244_report1"][2]
    assert made["startup_weights_2.7B"][1] > 48


def test_warm_up_by_name_is_not_the_step(shared):
    """Five warm-up steps, then ten measured forward passes."""
    profile = api.open(shared / "judged" / "cs336_warmup_then_forward.sqlite")
    steps = table(profile, by="step").rows
    assert steps["label"].to_list() == [f"Forward #{k}" for k in range(10)]
    assert "Forward" in profile.breakdown(step=True).window[0]["label"]


def test_a_serial_chunk_is_not_a_step(shared):
    result = table(api.open(shared / "judged" / "newboyleo_report1.sqlite"))
    assert "steps" not in result.rows["part"].to_list()
