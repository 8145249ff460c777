"""Which ops of a timeline were measured: every way in which that is known, by hand; and a real program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import stepscope
from fake import FakeSource, Row, call, nvtx, op
from measuring import Metrics, source
from stepscope.api.profile import Profile
from stepscope.derive.kernel.matching import matches_of, variants_of
from stepscope.intervals.arrays import NONE

SHAPE = {"grid_x": 1024, "grid_y": 1, "grid_z": 1, "block_x": 256, "block_y": 1, "block_z": 1}
FLOPS = "sm__ops_path_tensor_src_bf16_dst_fp32.sum"
US = 1000


def timeline(kernels: list[tuple[str, int]], ranges: list[Row] | None = None, **shape: int) -> FakeSource:
    """Kernels of these names and lengths (µs), one after the other, each launched in its turn."""
    at, ops, calls = 0, [], []
    for n, (name, length) in enumerate(kernels, 1):
        ops.append(op(at, at + length * US, name, 7, n, **(SHAPE | shape)))
        calls.append(call(n * 10, n * 10 + 5, n))
        at += length * US
    return FakeSource({"ops": ops, "calls": calls, **({"ranges": ranges} if ranges else {})})


def found(line: FakeSource, kernels: dict[str, Metrics], durations: list[int], **launch: Any) -> list[tuple[int, str]]:
    """By op: the measured kernel, and how it is known."""
    report = source(kernels, **launch)
    for row, took in zip(report._tables["measured"], durations, strict=True):
        row["dur_ns"] = took * US
    match = matches_of(Profile([line, report]))[0]
    return list(zip(match.kernel.tolist(), match.how.cast(pl.String).to_list(), strict=True))


def test_one_work_of_a_kind() -> None:
    kernels = [("gemm", 10), ("norm", 5), ("gemm", 11)]
    assert found(timeline(kernels), {"gemm": {FLOPS: 8.0}}, [10]) == [(0, "kind"), (NONE, None), (0, "kind")]


def test_another_grid_is_another_kind() -> None:
    assert found(timeline([("gemm", 10)], grid_x=512), {"gemm": {FLOPS: 8.0}}, [10]) == [(NONE, None)]


def test_quite_another_length_is_other_work() -> None:
    """Of a product of which one size was measured, an op that takes three times as long is none."""
    assert found(timeline([("gemm", 30)]), {"gemm": {FLOPS: 8.0}}, [10]) == [(NONE, "ambiguous")]


def test_two_works_are_told_apart_by_their_neighbours() -> None:
    """Both take the same time: only that one follows a norm and the other an activation says which is which."""
    kernels = [("norm", 5), ("gemm", 10), ("act", 4), ("gemm", 10), ("add", 3)] * 3
    measured = {"norm": {}, "gemm": {FLOPS: 8.0}, "act": {}, "gemm#2": {FLOPS: 32.0}, "add": {}}
    match = found(timeline(kernels), measured, [5, 10, 4, 10, 3])
    assert [match[n] for n in (1, 6, 11)] == [(1, "order")] * 3
    assert [match[n] for n in (3, 8, 13)] == [(3, "order")] * 3
    assert match[0] == (0, "kind")


def test_neighbours_that_do_not_tell_leave_it_ambiguous() -> None:
    kernels = [("norm", 5), ("gemm", 10), ("norm", 5), ("gemm", 10), ("norm", 5)]
    measured = {"norm": {}, "gemm": {FLOPS: 8.0}, "norm#2": {}, "gemm#2": {FLOPS: 32.0}, "norm#3": {}}
    match = found(timeline(kernels), measured, [5, 10, 5, 10, 5])
    assert [match[n] for n in (1, 3)] == [(NONE, "ambiguous")] * 2
    assert [match[n] for n in (0, 2, 4)] == [(2, "kind")] * 3


def test_a_range_tells() -> None:
    """Two launches, not next to each other when they were measured: the ranges around them are what is left."""
    kernels = [("gemm", 10), ("other", 5), ("gemm", 10)]
    ranges = [nvtx(5, 16, "attention"), nvtx(25, 36, "mlp")]
    report = source({"gemm": {FLOPS: 8.0}, "gemm#2": {FLOPS: 32.0}})
    for row, text in zip(report._tables["measured"], ("step 0/attention", "step 0/mlp"), strict=True):
        row["nvtx"] = text
    match = matches_of(Profile([timeline(kernels, ranges), report]))[0]
    assert match.kernel.tolist() == [0, NONE, 1]
    assert match.how.cast(pl.String).to_list() == ["range", None, "range"]


def test_a_length_tells_where_nothing_else_does() -> None:
    kernels = [("gemm", 10), ("gemm", 41), ("gemm", 20)]
    match = found(timeline(kernels), {"gemm": {FLOPS: 8.0}, "gemm#2": {FLOPS: 32.0}}, [10, 40])
    assert match == [(0, "length"), (1, "length"), (NONE, "ambiguous")]


def test_a_gap_between_lengths_is_several_works() -> None:
    """One size was measured; ops of a third more are of another, though not of twice the time."""
    kernels = [("gemm", 10 if n % 2 else 13) for n in range(20)]
    match = found(timeline(kernels), {"gemm": {FLOPS: 8.0}}, [10])
    assert [how for _, how in match] == ["length" if n % 2 else "ambiguous" for n in range(20)]


def test_one_op_that_was_held_up_is_no_other_work() -> None:
    kernels = [("gemm", 10)] * 39 + [("gemm", 15)]
    assert {how for _, how in found(timeline(kernels), {"gemm": {FLOPS: 8.0}}, [10])} == {"kind"}


@pytest.mark.parametrize("trace", ["eager.sqlite", "eager.pt.trace.json.gz"])
def test_a_real_program(shared: Path, trace: str) -> None:
    """The first 40 kernels of a step, and the same program under another profiler: six layers, four steps.

    Lengths say that it is right where they were not used: the four products of a layer are told apart by order alone.
    """
    profile = stepscope.open(shared / "traces/h200/train" / trace, shared / "traces/h200/ncu/ncu_full_raw.csv")
    match, variants = profile.once(matches_of)[0], profile.once(variants_of)
    states = match.how.cast(pl.String).value_counts().drop_nulls()
    assert dict(states.iter_rows()) == {"kind": 188, "order": 96}
    ops = profile.ops.with_columns(kernel=pl.Series(match.kernel), ns=pl.col("end_ns") - pl.col("start_ns"))
    by_kernel = ops.filter(pl.col("kernel") != NONE).group_by("kernel").agg(pl.len(), pl.col("ns").median())
    assert by_kernel.height == variants["stands"].n_unique() == 8
    took = dict(variants.select("row", "dur_ns").iter_rows())
    for kernel, count, median in by_kernel.iter_rows():
        assert count in (24, 48, 92)
        assert median == pytest.approx(took[kernel], rel=0.22)
    products = by_kernel.filter(pl.col("len") == 24).sort("kernel")
    assert products.height == 6
    note = next(n for n in profile.kernels().notes if n.code == "measured-matched")
    assert "71 kernels of 242 in the window" in note
    assert "40 of 40 measured kernels are in the timeline" in note


def test_a_part_of_the_report_leaves_some_ambiguous(shared: Path) -> None:
    """Seven of the forty: the products of one size are not among them, and are not taken for the others."""
    few = Path(__file__).parents[2] / "data/ncu/raw.csv"
    result = stepscope.open(shared / "traces/h200/train/eager.sqlite", few).kernels()
    note = next(n for n in result.notes if n.code == "measured-ambiguous")
    assert note.startswith("6 kernels are ambiguous")
    assert "6 × nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_bias_TNT" in note
    row = result.rows.filter(pl.col("name") == "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_bias_TNT").row(0, named=True)
    assert row["measured_pct"] == pytest.approx(66.6, abs=0.5)
    assert row["bound"] == "compute"


def test_a_report_of_another_program_matches_nothing() -> None:
    profile = Profile([timeline([("gemm", 10), ("norm", 5)]), source({"conv": {}})])
    result = profile.kernels(whole=True)
    assert result.rows["roof_pct"].null_count() == 2
    assert any(n.startswith("0 kernels of 2 in the window") for n in result.notes)


def test_a_report_of_another_gpu_has_other_roofs() -> None:
    """The trace is of an H200: what was measured on an A100 says nothing of it."""
    line = timeline([("gemm", 10), ("norm", 5)])
    line._given[0] = {"proc": 0, "gpu": "NVIDIA H200"}
    profile = Profile([line, source({"gemm": {FLOPS: 8.0}}, gpu="NVIDIA A100-SXM4-80GB")])
    result = profile.kernels(whole=True)
    assert result.rows["roof_pct"].null_count() == 2
    assert "measured-elsewhere" in [note.code for note in result.notes]
    here = Profile([line, source({"gemm": {FLOPS: 8.0}}, gpu="NVIDIA H200")])
    assert here.kernels(whole=True).rows["measured_pct"].to_list() == [100.0, 0.0]


def test_each_measured_kernel_says_how_it_is_known() -> None:
    line = timeline([("gemm", 10), ("norm", 5), ("pool", 30)])
    profile = Profile([line, source({"gemm": {FLOPS: 8.0}, "conv": {}, "pool": {}})])
    rows = profile.roofline(by="kernel").rows
    assert dict(rows.select("name", "matched").iter_rows()) == {"gemm": "kind", "conv": "absent", "pool": "ambiguous"}
    assert rows["ops"].to_list() == [1, 0, 0]
