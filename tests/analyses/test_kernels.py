"""Heavy kernels: sums, shares and percentiles by hand; names and families; real traces against other tools."""

from __future__ import annotations

import csv
import gzip
from collections import defaultdict
from pathlib import Path

import polars as pl
import pytest

from fake import FakeSource, call, comm, copy, make, nvtx, op
from stepscope import api
from stepscope.analyses.kernels import kernels
from stepscope.derive.windows.spec import WindowSpec
from stepscope.errors import BadInput, CannotAnswer
from stepscope.model.profile import Profile

WHOLE = WindowSpec()


def test_sums_and_shares_by_hand():
    p = make(ops=[op(0, 10, "ampere_sgemm_128x64_nn"), op(20, 50, "ampere_sgemm_128x64_nn"), comm(50, 100)])
    r = kernels(p, WHOLE)
    rows = r.rows.to_dicts()
    assert [x["name"] for x in rows] == ["ncclDevKernel_SendRecv", "ampere_sgemm_128x64_nn"]
    gemm = rows[1]
    assert (gemm["n"], gemm["total_ns"], gemm["share_pct"]) == (2, 40, 40.0)
    assert (gemm["mean_ns"], gemm["median_ns"], gemm["max_ns"]) == (20, 20, 30)
    assert (gemm["family"], gemm["tensor_core"]) == ("gemm", False)
    assert (rows[0]["family"], rows[0]["tensor_core"]) == ("communication", None)
    assert r.summary["total"][0] == {
        "rank": 0,
        "index": 0,
        "n": 3,
        "total_ns": 90,
        "share_pct": 90.0,
    }


def test_a_window_in_gpu_time_cuts_durations():
    p = make(ops=[op(0, 10), op(20, 50)])
    row = kernels(p, WindowSpec(start=5, end=30)).rows.to_dicts()[0]
    assert (row["n"], row["total_ns"], row["share_pct"], row["max_ns"]) == (2, 15, 60.0, 10)


def test_templates_fold_into_one_name_and_full_keeps_them():
    names = [f"void at::native::vectorized_layer_norm_kernel<{t}, float>(int, T2)" for t in ("float", "c10::BFloat16")]
    p = make(ops=[op(0, 10, names[0]), op(10, 30, names[1])])
    folded = kernels(p, WHOLE).rows.to_dicts()
    assert [(r["name"], r["variants"], r["n"]) for r in folded] == [("vectorized_layer_norm_kernel", 2, 2)]
    assert kernels(p, WHOLE, full=True).rows["name"].to_list() == names[::-1]


def test_by_family_gives_the_tensor_core_share():
    p = make(ops=[op(0, 30, "nvjet_sm90_tst_64x8_NTN"), op(30, 40, "ampere_sgemm_64x32_nn"), copy(40, 50)])
    rows = {r["family"]: r for r in kernels(p, WHOLE, by="family").rows.to_dicts()}
    assert rows["gemm"]["tensor_core_pct"] == 75.0 and rows["gemm"]["names"] == 2
    assert rows["copy"]["tensor_core_pct"] is None and rows["copy"]["total_ns"] == 10


def test_stage_and_range_filter_by_launch_not_by_gpu_time():
    p = make(
        ops=[op(1000, 1010, "a", call=1), op(1010, 1040, "b", call=2), op(1040, 1050, "c", call=3)],
        calls=[call(11, 12, 1), call(21, 22, 2), call(41, 42, 3)],
        ranges=[nvtx(0, 30, "outer"), nvtx(10, 15, "layer00.stage1_f"), nvtx(20, 25, "layer00.stage3_w")],
    )
    assert kernels(p, WHOLE, stage="stage3").rows["name"].to_list() == ["b"]
    assert kernels(p, WHOLE, range="^outer$").rows["name"].to_list() == ["b", "a"]
    assert kernels(p, WHOLE, stage="no stage").rows["name"].to_list() == ["c"]
    with pytest.raises(BadInput):
        kernels(p, WHOLE, stage="(")


def test_no_answer_where_nothing_matches():
    profile = make(ops=[op(0, 5, call=1)], calls=[call(0, 1, 1)], ranges=[nvtx(0, 9, "forward")])
    with pytest.raises(CannotAnswer, match="no GPU op of the window matches --range 'backward'"):
        kernels(profile, WindowSpec(), range="backward")


def test_no_answer_without_gpu_work_or_ranges():
    with pytest.raises(CannotAnswer):
        kernels(make(ranges=[nvtx(0, 1, "x")]), WHOLE)
    with pytest.raises(CannotAnswer, match="NVTX"):
        kernels(make(ops=[op(0, 1)]), WHOLE, range="x")


def test_a_graph_recorded_whole_counts_as_compute_and_says_so():
    r = kernels(make(ops=[op(0, 10, "[graph 3]", kind="graph")]), WHOLE)
    assert r.rows["family"].to_list() == ["graph"]
    assert any("whole CUDA graphs" in n and "cuda-graph-trace=node" in n for n in r.notes)


@pytest.mark.parametrize("name", ["eager", "overlapped", "h100x2_after", "t4_power_iteration", "a100_lm2.7b_nvtx"])
def test_totals_equal_nsys_on_real_traces(shared: Path, name: str):
    trace = next(p for p in shared.glob("traces/**/*.sqlite") if p.stem == name and "mps" not in str(p))
    profile = api.open(trace, cache=False)
    whole = WindowSpec(start=-(2**62), end=2**62)
    ours = defaultdict(lambda: [0, 0])
    for row in kernels(profile, whole, full=True).rows.filter(~pl.col("name").str.starts_with("[")).to_dicts():
        ours[row["name"]][0] += row["n"]
        ours[row["name"]][1] += row["total_ns"]
    golden = {}
    with gzip.open(next(shared.glob(f"golden/nsys-*/{name}.cuda_gpu_kern_sum.csv.gz")), "rt") as file:
        for row in csv.DictReader(file):
            golden[row["Name"]] = [int(row["Instances"]), int(float(row["Total Time (ns)"]))]
    assert dict(ours) == golden


def test_durations_equal_traceinsight_on_a_kineto_trace(shared: Path):
    p = api.open(shared / "traces/h200/train/eager.pt.trace.json.gz", cache=False)
    rows = kernels(p, WindowSpec(start=0, end=2**62), full=True).rows
    ours = dict(zip(rows["name"], rows["total_ns"], strict=True))
    golden = pl.read_csv(
        shared / "golden/traceinsight-0.6.1/h200_train_eager/exact/gpu_kernel_breakdown.kernels_full.csv"
    )
    name = next(c for c in golden.columns if "name" in c)
    total = next(c for c in golden.columns if c.startswith("sum"))
    compared = 0
    for text, us in zip(golden[name], golden[total], strict=True):
        if text in ours:
            assert ours[text] == pytest.approx(us * 1e3, abs=200)
            compared += 1
    assert compared >= 30


def test_torch_op_module_and_occupancy_of_most_of_its_time():
    """Two launches of one kernel within `aten::mm` (30 and 10 ns), one within `aten::bmm` (20 ns), in modules."""
    host = [
        {"start_ns": 0, "end_ns": 9, "name": "aten::mm", "kind": "cpu_op", "tid": 1},
        {"start_ns": 10, "end_ns": 19, "name": "aten::bmm", "kind": "cpu_op", "tid": 1},
        {"start_ns": 20, "end_ns": 29, "name": "aten::mm", "kind": "cpu_op", "tid": 1},
        {"start_ns": 0, "end_ns": 19, "name": "nn.Module: Linear_0", "kind": "python", "tid": 1},
        {"start_ns": 20, "end_ns": 29, "name": "nn.Module: Attention_3", "kind": "python", "tid": 1},
    ]
    ops = [
        op(100, 130, "gemm", call=1, occupancy_pct=50.0),
        op(130, 150, "gemm", call=2, occupancy_pct=20.0),
        op(150, 160, "gemm", call=3),
    ]
    calls = [call(1, 2, 1), call(11, 12, 2), call(21, 22, 3)]
    source = FakeSource({"host": host, "ops": ops, "calls": calls}, format="kineto")
    row = kernels(Profile([source]), WHOLE).rows.to_dicts()[0]
    assert (row["torch_op"], row["module"]) == ("aten::mm", "Linear")
    assert row["occupancy_pct"] == pytest.approx((30 * 50 + 20 * 20) / 50)
    bare = kernels(make(ops=[op(0, 10)]), WHOLE).rows.to_dicts()[0]
    assert (bare["torch_op"], bare["module"], bare["occupancy_pct"]) == (None, None, None)
