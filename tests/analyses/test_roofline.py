"""`roofline` as people and programs meet it: rows, views, pictures, and what it says where it cannot answer."""

from __future__ import annotations

import csv
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from click.testing import CliRunner

import stepscope
from fake import make, op
from stepscope import api
from stepscope.cli.main import cli, run
from stepscope.render import render

DATA = Path(__file__).parents[1] / "data/ncu"
RAW = str(DATA / "raw.csv")


def _run(*words: str) -> str:
    result = CliRunner().invoke(cli, ["roofline", *words])
    assert result.exit_code == 0, result.output
    return result.output


def test_the_sentence_names_the_kernel_that_takes_most() -> None:
    said = stepscope.open(RAW).roofline().summary["statement"]
    assert said.startswith("7 kernels measured, ")
    assert "`nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_bias_TNT` takes most" in said
    assert "bound by compute, at 82 % of its roof (bf16 tensor)" in said


def test_a_table_that_fits(tmp_path: Path) -> None:
    text = _run(RAW, "--top", "0")
    assert max(map(len, text.splitlines())) <= 100
    assert "compute" in text
    assert "latency" in text


def test_the_terminal_s_picture_has_every_kernel() -> None:
    text = _run(RAW, "--plot")
    assert "TFLOP/s against FLOP per byte of DRAM" in text
    legend = [line for line in text.splitlines() if line[1:3] == "  " and line[0].isalpha()]
    assert len(legend) == 5
    assert all(f"{line[0]}" in text.split("TFLOP/s against")[1] for line in legend)


def test_svg_is_well_formed(tmp_path: Path) -> None:
    file = tmp_path / "roofline.svg"
    _run(RAW, "-o", str(file))
    root = ElementTree.parse(file).getroot()
    marks = [circle for circle in root.iter("{http://www.w3.org/2000/svg}circle") if len(circle)]
    assert len(marks) == 7
    texts = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "DRAM 4.80 TB/s" in texts


def test_other_answers_have_no_picture(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["info", RAW, "-o", str(tmp_path / "x.svg")])
    assert result.exit_code != 0


@pytest.mark.parametrize("by", ["precision", "level", "stall", "rule"])
def test_every_view_has_its_columns(by: str) -> None:
    profile = stepscope.open(RAW, DATA / "details.csv")
    rows = profile.roofline(by=by, top=0).rows
    assert rows.height > 7
    assert rows["kernel"].n_unique() == 7


@pytest.mark.parametrize(("by", "section"), [("rule", "--apply-rules yes"), ("stall", "WarpStateStats")])
def test_a_view_without_rows_is_refused_with_what_to_collect(by, section, tmp_path, capsys) -> None:
    header, units, *kernels = (DATA / "raw.csv").read_text("utf-8").splitlines()
    names = next(csv.reader([header]))
    kept = [i for i, name in enumerate(names) if "issue_stalled" not in name and "pcsamp" not in name]
    file = tmp_path / "poor.csv"
    with file.open("w", newline="") as out:
        csv.writer(out, quoting=csv.QUOTE_ALL).writerows(
            [cells[i] for i in kept] for cells in csv.reader([header, units, *kernels])
        )
    assert run(["roofline", str(file), "--by", by, "--no-cache"]) == 3
    said = capsys.readouterr().err
    assert section in said and said.count("\n") == 1


def test_occupancy_and_what_limits_it() -> None:
    """By hand: a bias product holds 12 of 64 warps, since registers and shared memory allow one block each."""
    rows = {row["kernel"]: row for row in stepscope.open(RAW).roofline(by="kernel").rows.to_dicts()}
    with (DATA / "raw.csv").open() as file:
        cells = list(csv.DictReader(file))[1:]
    for row, cell in enumerate(cells):
        limits = {n: float(cell[f"launch__occupancy_limit_{n}"] or 0) for n in ("registers", "shared_mem", "warps")}
        assert rows[row]["theoretical_occupancy_pct"] == float(cell["sm__maximum_warps_per_active_cycle_pct"])
        assert rows[row]["achieved_occupancy_pct"] <= rows[row]["theoretical_occupancy_pct"] + 1
        limiter = rows[row]["occupancy_limiter"]
        full = rows[row]["theoretical_occupancy_pct"] == 100
        assert full == (limiter is None)
        if not full and limits["registers"] == min(v for v in limits.values() if v > 0):
            assert "registers" in limiter


def test_only_some_kernels() -> None:
    profile = stepscope.open(RAW)
    assert set(profile.roofline(only="elementwise").rows["kernel"]) == {4, 5}
    with pytest.raises(stepscope.CannotAnswer, match="no measured kernel matches"):
        profile.roofline(only="conv")
    with pytest.raises(stepscope.BadInput, match="only"):
        profile.roofline(only="(")


def test_a_timeline_alone_has_no_roofline() -> None:
    with pytest.raises(stepscope.CannotAnswer, match="capture ncu --from"):
        api.analyse(make(ops=[op(0, 10)]), "roofline")


def test_launches_of_the_same_work_are_one_row(shared: Path) -> None:
    """Four layers of ten kernels: eight works, two of which a layer has twice."""
    rows = stepscope.open(shared / "traces/h200/ncu/ncu_full_raw.csv", cache=False).roofline(top=0).rows
    assert sorted(rows["n"].to_list()) == [4, 4, 4, 4, 4, 4, 8, 8]
    assert rows["total_ns"].is_sorted(descending=True)
    assert rows.filter(rows["precision"] == "bf16 tensor")["flops"].n_unique() == 4


@pytest.mark.parametrize("damage", ["0", "-1", "1e308", "9" * 30, "abc", ""])
def test_numbers_that_cannot_be(tmp_path: Path, damage: str) -> None:
    """Whatever single counters say, nothing is divided by nothing, and no time is endless."""
    with Path(RAW).open(encoding="utf-8") as file:
        table = list(csv.reader(file))
    for at, name in enumerate(table[0]):
        if any(word in name for word in ("elapsed", "duration", "peak_sustained", "bytes", "ops_path", "sm_count")):
            table[2][at] = damage
    path = tmp_path / "page.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows(table)
    profile = stepscope.open(path, cache=False)
    for by in ("work", "kernel", "precision", "level", "stall"):
        result = profile.roofline(by=by, top=0)
        assert render(result, "json")
        assert render(result, "table")
