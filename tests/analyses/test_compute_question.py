"""What the GPU computes, and the budget of the step: by hand, on programs that are known, and on every real trace."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from fake import call, make, op
from promises.new import unpacked
from stepscope import api
from stepscope.errors import CannotAnswer, StepscopeError
from stepscope.model.result import Result
from stepscope.render.compute import budget_bar

US = 1000
BF16 = '["c10::BFloat16", "c10::BFloat16"]'
_ADD = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::BinaryFunctor<float, float, float, "
    "at::native::AddFunctor<float>>, std::array<char*, 3ul>>(int)"
)
_SHAPE = {"grid_y": 1, "grid_z": 1, "block_x": 128, "block_y": 1, "block_z": 1}


def _by_hand(gpu: str = "NVIDIA H200") -> api.Profile:
    """200 µs: a product of 2·4096³ FLOPs that takes 180 µs, 5 µs of nothing, and a sum of 2²⁰ floats in 15 µs."""
    n = 4096
    host = [
        {"start_ns": 0, "end_ns": 10, "name": "aten::mm", "kind": "cpu_op", "tid": 1}
        | {"shapes": json.dumps([[n, n], [n, n]]), "types": BF16, "sequence": 1, "fwd_tid": 0}
    ]
    ops = [
        op(100 * US, 280 * US, "nvjet_tst_128x256", call=1, grid_x=132, **_SHAPE),
        op(285 * US, 300 * US, _ADD, call=2, grid_x=1024, **_SHAPE),
    ]
    calls = [call(3, 4, 1), call(20, 21, 2)]
    return make(processes=[{"proc": 0, "gpu": gpu}], host=host, ops=ops, calls=calls)


def test_the_budget_by_hand() -> None:
    rows = api.analyse(_by_hand(), "compute", whole=True, by="budget").rows
    loss = dict(rows.select("loss", "total_ns").iter_rows())
    ideal = 2 * 4096**3 / 989.5e3  # ns at the dense peak of an H200
    assert loss["ideal"] == pytest.approx(ideal, abs=2)
    assert loss["idle: queue"] == 5 * US
    # 12 MiB are read and written: the L2 cache holds them, so they need less than at the bandwidth of DRAM.
    needed = 12 * 2**20 / 4800
    assert 0.5 * needed < loss["memory-bound by nature"] < 1.5 * needed
    assert loss["below the roof"] == pytest.approx(180 * US - ideal + 15 * US - loss["memory-bound by nature"], abs=2)
    assert sum(loss.values()) == 200 * US
    assert rows["left_ns"].to_list()[0] == 0 and rows["left_ns"][-1] + rows["total_ns"][-1] == 200 * US


def test_the_budget_is_drawn_for_one_rank_and_for_many_windows() -> None:
    """A bar each, whatever columns name its rows: of a single rank, no column does."""
    bars = {"rank": ["rank 0 [", "rank 1 ["], "index": ["#0 [", "#1 ["], "": ["["]}
    for key, begins in bars.items():
        n = len(begins)
        rows = pl.DataFrame({"loss": ["ideal", "idle: queue"] * n, "total_ns": [3, 1] * n})
        if key:
            rows = rows.with_columns(pl.Series(key, [k // 2 for k in range(2 * n)]))
        lines = budget_bar(Result(command="compute", rows=rows, summary={}), 80)[:n]
        assert [line[: len(begin)] for line, begin in zip(lines, begins, strict=True)] == begins
        assert all(72 <= len(line) <= 80 for line in lines)


def test_mfu_stands_in_the_budget() -> None:
    profile = _by_hand()
    said = api.analyse(profile, "compute", whole=True, by="budget").summary["total"][0]
    mfu = api.analyse(profile, "mfu", whole=True, attention="causal").rows["mfu_pct"][0]
    assert said["mfu_pct"] == pytest.approx(mfu) and said["counted_pct"] == 100.0


def test_groups_by_hand() -> None:
    result = api.analyse(_by_hand(), "compute", whole=True)
    by_part = {row["part"]: row for row in result.rows.iter_rows(named=True)}
    linear, sums = by_part["linear layers"], by_part["elementwise"]
    assert (linear["flops"], linear["precision"], linear["bound"]) == (2 * 4096**3, "bf16", "compute")
    assert linear["good_ns"] == pytest.approx(2 * 4096**3 / 807e3, rel=0.01)  # as measured for this very product
    assert (sums["moved_bytes"], sums["bytes_from"], sums["bound"]) == (3 * 4 * 2**20, "grid", "latency")
    assert "work-without-shapes" not in {note.code for note in result.notes}


def test_copies_from_the_host_are_a_part_of_their_own() -> None:
    """The link bounds them: memory that could do it in a hundredth of the time claims nothing."""
    copy = op(0, 1000 * US, "[memcpy]", call=1, kind="memcpy", copy_kind="HtoD", bytes=25_000_000)
    within = op(1000 * US, 1100 * US, "[memcpy]", call=2, kind="memcpy", copy_kind="DtoD", bytes=25_000_000)
    profile = make(
        processes=[{"proc": 0, "gpu": "NVIDIA H200"}], ops=[copy, within], calls=[call(1, 2, 1), call(3, 4, 2)]
    )
    rows = {row["part"]: row for row in api.analyse(profile, "compute", whole=True).rows.iter_rows(named=True)}
    assert rows["copies to and from the host"]["good_ns"] == 1000 * US
    assert rows["copies to and from the host"]["bound"] is None
    assert rows["casts and copies"]["good_ns"] < 30 * US


def test_a_gpu_that_is_not_known_has_no_roofs() -> None:
    result = api.analyse(_by_hand("Somebody's GPU"), "compute", whole=True)
    assert {note.code for note in result.notes} >= {"work-gpu-unknown"}
    assert (result.rows["good_ns"] == result.rows["total_ns"]).all()
    assert result.rows["bound"].null_count() == result.rows.height == 2  # nothing says what bounds its kernels
    rows = api.analyse(_by_hand("Somebody's GPU"), "compute", whole=True, by="budget").rows
    assert dict(rows.select("loss", "total_ns").iter_rows())["unknown kernels"] == 180 * US


def test_modules_need_marks() -> None:
    with pytest.raises(CannotAnswer, match="module"):
        api.analyse(_by_hand(), "compute", whole=True, by="module")


@pytest.mark.parametrize(
    ("program", "fault", "loss", "least"),
    [
        ("gpt", "attention-by-hand", "not fused", 18),
        ("gpt", "checkpoint-blocks", "recomputation", 1.2),
        ("gpt", "optimizer-loop", "optimizer", 1.0),
        ("cnn", "nchw", "layout", 3.5),
        ("cnn", "float-no-tf32", "precision", 50),
        ("hf_trainer", "float", "precision", 100),
        ("gpt", "casts-and-clones", "casts and copies", 0.7),
    ],
)
@pytest.mark.parametrize("tool", ["nsys", "torch"])
def test_a_planted_loss_has_its_row(
    program: str, fault: str, loss: str, least: float, tool: str, tmp_path: Path
) -> None:
    """In ms more than the same program without the fault has."""
    with_it, without = (
        dict(
            api.analyse(api.open(unpacked(program, f, tool, tmp_path), cache=False), "compute", by="budget")
            .rows.select("loss", "total_ns")
            .iter_rows()
        )
        for f in (fault, "none")
    )
    assert (with_it[loss] - without.get(loss, 0)) / 1e6 > least
    # The model's work is the same: what it needs at the peak does not depend on how it is done.
    assert with_it["ideal"] == pytest.approx(without["ideal"], rel=0.15)


@pytest.mark.slow
def test_the_budget_sums_to_the_step_on_every_trace(shared: Path) -> None:
    """Every step of every rank; compute is that of `breakdown`, idle time that of `idle`."""
    asked = 0
    for folder in ("traces", "judged", "traps"):
        for file in sorted(
            p for p in (shared / folder).rglob("*") if p.name.endswith((".sqlite", ".json", ".json.gz"))
        ):
            try:
                profile = api.open(file, cache=False)
                result = api.analyse(profile, "compute", by="budget", index="all")
            except StepscopeError:
                continue
            parts = api.analyse(profile, "breakdown", index="all").rows
            if not result.rows.height:
                assert not parts.height or not parts["window_ns"].sum(), file.name
                continue
            for row in parts.iter_rows(named=True):
                mine = result.rows.filter(pl.col("rank") == row["rank"], pl.col("index") == row["index"])
                loss = dict(mine.select("loss", "total_ns").iter_rows())
                if not loss:
                    assert not row["window_ns"], file.name
                    continue
                assert sum(loss.values()) == row["window_ns"] and min(loss.values()) >= 0, file.name
                idle = sum(ns for name, ns in loss.items() if name.startswith("idle: "))
                others = ("exposed communication", "exposed copies")
                assert idle == row["idle_ns"], file.name
                assert [loss.get(name, 0) for name in others] == [row["comm_exposed_ns"], row["copy_exposed_ns"]]
                asked += 1
    assert asked > 60


@pytest.mark.slow
@pytest.mark.parametrize(
    "trace", ["public/luatil_04.json.gz", "public/hta_diff_control.json.gz", "h200/hf/hf1_rich.sqlite"]
)
def test_mfu_is_that_of_mfu(shared: Path, trace: str) -> None:
    profile = api.open(shared / "traces" / trace, cache=False)
    said = api.analyse(profile, "compute", by="budget").summary["total"][0]["mfu_pct"]
    mfu = api.analyse(profile, "mfu", attention="causal").rows["mfu_pct"][0]
    assert said == pytest.approx(mfu)
