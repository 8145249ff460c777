"""FLOPs, bytes, roofs and the time at them: by hand, and as the raw metrics of a real report say."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

import stepscope
from measuring import measured
from stepscope.derive.kernel.roofline import roofline_of

DATA = Path(__file__).parents[2] / "data/ncu"
CLOCK = {"sm__cycles_elapsed.avg.per_second": 1e9, "smsp__cycles_elapsed.avg": 1000.0}
TENSOR = "sm__ops_path_tensor_"


def _cells(path: Path) -> list[dict[str, float]]:
    """The numbers of a raw page, in its own units."""
    with path.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))[1:]
    return [{k: _number(v) for k, v in row.items()} for row in rows]


def _number(text: str) -> float:
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return np.nan


def _real(path: Path, count: int) -> None:
    """Every figure from the cells of the page; bytes are printed in Mbyte or Gbyte, so they are what reads say."""
    found = stepscope.open(path, cache=False).roofline(by="kernel", top=0).rows
    cells = _cells(path)
    assert found.height == len(cells) == count
    for row, cell in zip(found.iter_rows(named=True), cells, strict=True):
        tensor = cell[f"{TENSOR}src_bf16_dst_fp32.sum"]
        stem = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum.per_cycle_elapsed"
        cycles = cell["smsp__cycles_elapsed.avg"]
        vector = cycles * sum(n * cell[stem.format(op)] for op, n in (("fadd", 1), ("fmul", 1), ("ffma", 2)))
        if tensor:
            assert (row["precision"], row["flops"]) == ("bf16 tensor", tensor)
            # The dense roof: half of what the counter over all instructions has.
            assert row["peak_tflops"] == pytest.approx(540_672 * cell["sm__cycles_elapsed.avg.per_second"] / 1e3)
        else:
            assert row["precision"] == "fp32 vector"
            assert row["flops"] == pytest.approx(vector, rel=1e-6)
        sectors = cell["dram__sectors_read.sum"] + cell["dram__sectors_write.sum"]
        assert row["dram_bytes"] == 32 * sectors
        assert row["dram_pct"] == pytest.approx(cell["dram__cycles_active.sum.pct_of_peak_sustained_elapsed"], rel=0.01)


def test_a_real_report() -> None:
    _real(DATA / "raw.csv", 7)


def test_all_forty_kernels(shared: Path) -> None:
    path = shared / "traces/h200/ncu/ncu_full_raw.csv"
    _real(path, 40)
    first = stepscope.open(path, cache=False).roofline(by="kernel", only="nvjet", top=0).rows.row(0, named=True)
    assert first["flops"] == 25_769_803_776
    # The share of the dense roof is the share of time that the tensor pipe was busy.
    assert first["roof_pct"] == pytest.approx(71.321302, rel=1e-4)


def test_the_dense_roof_is_enumerated_not_assumed() -> None:
    """Of bf16 one instruction says that it is dense; of fp64 no counter says anything of sparsity."""
    metrics = {
        f"{TENSOR}src_bf16_dst_fp32.sum": 8000.0,
        f"{TENSOR}src_bf16_dst_fp32.sum.peak_sustained": 2000.0,
        f"{TENSOR}op_hgmma_src_bf16_dst_fp32_sparsity_off.sum.peak_sustained": 1000.0,
        f"{TENSOR}op_hmma_src_bf16_dst_fp32_sparsity_off.sum.peak_sustained": 600.0,
        f"{TENSOR}op_hgmma_src_bf16_dst_fp32_sparsity_on.sum.peak_sustained": 2000.0,
        f"{TENSOR}src_fp64.sum": 0.0,
        f"{TENSOR}src_fp64.sum.peak_sustained": 64.0,
    }
    found = roofline_of(measured({"gemm": CLOCK | metrics}))
    peaks = {work.label: roof.per_second[0] for work, roof in zip(found.works, found.peaks, strict=True)}
    assert peaks == {"bf16 tensor": 1e12, "fp64 tensor": 64e9}
    assert found.operations.tolist() == [8000.0]
    assert found.roof == ["bf16 tensor"]
    assert found.roof_ns.tolist() == [8.0]
    assert found.reached.tolist() == [8 / 10_000]


@pytest.mark.parametrize(
    ("counters", "label", "operations"),
    [
        ({f"{TENSOR}src_fp8_sparsity_off.sum": 10.0, f"{TENSOR}src_fp8_sparsity_on.sum": 4.0}, "fp8 tensor", 14.0),
        ({f"{TENSOR}op_{op}_src_int8_sparsity_off.sum": 10.0 for op in ("igmma", "imma")}, "int8 tensor", 20.0),
        ({f"{TENSOR}op_hmma_src_tf32_dst_fp32_sparsity_off.sum": 3.0}, "tf32 tensor", 3.0),
        ({f"{TENSOR}src_fp16.sum": 7.0, f"{TENSOR}op_hgmma_src_fp16_sparsity_off.sum": 7.0}, "fp16 tensor", 7.0),
        ({"smsp__sass_thread_inst_executed_op_dfma_pred_on.sum": 5.0}, "fp64 vector", 10.0),
        ({"smsp__sass_thread_inst_executed_op_hfma_pred_on.sum": 5.0}, "fp16 vector", 20.0),
        ({"smsp__sass_thread_inst_executed_op_hadd_pred_on.sum": 5.0}, "fp16 vector", 10.0),
        ({"smsp__sass_thread_inst_executed_op_ffma_pred_on.sum.per_cycle_elapsed": 0.25}, "fp32 vector", 500.0),
    ],
)  # fmt: skip
def test_operations_of_every_precision(counters: dict[str, float], label: str, operations: float) -> None:
    found = roofline_of(measured({"k": CLOCK | counters}))
    assert {work.label: work.operations[0] for work in found.works} == {label: operations}


def test_the_nearest_roof_is_the_longest_time() -> None:
    """1 MFLOP of fp32 at 2 TFLOP/s take 0.5 µs; 8 MB at 4 TB/s take 2 µs, at 10 TB/s of L2 0.8 µs."""
    metrics = {
        "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum": 0.5e6,
        "sm__sass_thread_inst_executed_op_ffma_pred_on.sum.peak_sustained": 1000.0,
        "dram__bytes_read.sum": 6e6,
        "dram__bytes_write.sum": 2e6,
        "dram__bytes.sum.peak_sustained": 1600.0,
        "dram__cycles_elapsed.avg.per_second": 2.5e9,
        "derived__lts__lts2xbar_bytes.sum.per_second": 0.8e12,
        "derived__lts__lts2xbar_bytes.sum.peak_sustained": 10_000.0,
        "lts__cycles_elapsed.avg.per_second": 1e9,
    }
    row = measured({"k": CLOCK | metrics}).roofline().rows.row(0, named=True)
    assert (row["roof"], row["roof_ns"]) == ("DRAM", 2000)
    assert row["roof_pct"] == pytest.approx(20.0)
    assert row["intensity"] == pytest.approx(1 / 8)
    assert row["tflops"] == pytest.approx(0.1)
    assert row["l2_pct"] == pytest.approx(8.0)


def test_without_counters_of_arithmetic_there_is_no_roof() -> None:
    """The share of DRAM alone would call every product of matrices far from its roof."""
    metrics = {
        "dram__bytes.sum": 1e6,
        "dram__bytes.sum.peak_sustained": 1e3,
        "dram__cycles_elapsed.avg.per_second": 1e9,
    }
    result = measured({"k": metrics}).roofline()
    assert result.rows["roof_ns"].to_list() == [None]
    assert "no-roof" in [note.code for note in result.notes]


def test_a_busy_pipe_says_as_much_as_counted_operations() -> None:
    metrics = {"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed": 80.0}
    row = measured({"k": metrics}).roofline().rows.row(0, named=True)
    assert (row["roof"], row["roof_pct"]) == ("tensor pipe", pytest.approx(80.0))


def test_peaks_that_the_report_lacks_are_the_table_s() -> None:
    metrics = {f"{TENSOR}src_bf16_dst_fp32.sum": 9.895e9, "dram__bytes.sum": 4.8e6}
    result = measured({"k": metrics}).roofline(by="precision")
    assert result.rows["peak_tflops"][0] == pytest.approx(989.5, rel=0.001)
    assert result.rows["peak_from"].to_list() == ["table of GPUs"]
    assert "peaks-from-table" in [note.code for note in result.notes]


def test_both_pages_of_a_report_are_one_measurement() -> None:
    both = stepscope.open(DATA / "raw.csv", DATA / "details.csv", cache=False)
    alone = stepscope.open(DATA / "raw.csv", cache=False)
    assert (
        both.roofline(by="kernel", top=0).rows.drop("file").equals(alone.roofline(by="kernel", top=0).rows.drop("file"))
    )
    assert both.roofline(by="rule", top=0).rows.height > 40
    with pytest.raises(stepscope.CannotAnswer, match="no rules"):
        alone.roofline(by="rule", top=0)
