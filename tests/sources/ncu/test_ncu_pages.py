"""Pages of `ncu --csv`: against their cells, in other locales, with lines before the header, without units."""

from __future__ import annotations

import csv
from pathlib import Path

import polars as pl
import pytest

import stepscope
from stepscope.sources.ncu.units import base_unit


def metrics(path: Path) -> dict[tuple[int, str], tuple[float | None, str | None]]:
    """By kernel and metric: value and unit."""
    profile = stepscope.open(path, cache=False)
    frame, names = profile.table("metrics"), profile.names
    named = frame.select("kernel", "value", name=_texts(frame["name"], names), unit=_texts(frame["unit"], names))
    return {(k, name): (value, unit) for k, value, name, unit in named.iter_rows()}


def _texts(ids: pl.Series, names: pl.Series) -> pl.Series:
    return pl.Series([None if i is None else names[i] for i in ids.to_list()], dtype=pl.String)


def test_kernels_are_as_the_page_has_them(raw: Path) -> None:
    with raw.open(encoding="utf-8") as file:
        cells = list(csv.DictReader(file))[1:]
    profile = stepscope.open(raw, cache=False)
    kernels = profile.table("measured", detail=True)
    assert profile.names.gather(kernels["name"]).to_list() == [row["Kernel Name"] for row in cells]
    assert kernels["grid_x"].to_list() == [4096, 2, 132, 2, 4096, 16384, 2]
    assert kernels["grid_y"].to_list() == [1, 66, 1, 64, 1, 1, 64]
    assert kernels["block_x"].to_list() == [32, 384, 384, 384, 128, 128, 384]
    assert kernels["dur_ns"].to_list() == [round(1000 * float(row["gpu__time_duration.sum"])) for row in cells]
    assert kernels["smem_dynamic"].to_list()[:2] == [24, 213188]
    assert profile.names.gather(kernels["gpu"]).unique().to_list() == ["NVIDIA H200"]
    assert kernels["pid"].unique().to_list() == [int(cells[0]["Process ID"])]


def test_units_lose_their_prefixes(raw: Path) -> None:
    found = metrics(raw)
    assert found[1, "dram__bytes_read.sum"] == (14_974_720, "byte")
    assert found[1, "gpu__time_duration.sum"] == (38_656, "ns")
    assert found[1, "sm__ops_path_tensor_src_bf16_dst_fp32.sum"] == (25_769_803_776, None)
    assert found[1, "dram__bytes.sum.per_second"] == (pytest.approx(498.139e9), "byte/s")
    assert found[1, "launch__shared_mem_per_block_dynamic"] == (213_188, "byte/block")
    assert found[1, "dram__bytes.sum.peak_sustained"] == (1504, "byte/cycle")


@pytest.mark.parametrize(
    ("unit", "base", "factor"),
    [
        ("Mbyte", "byte", 1e6),
        ("Tbyte/s", "byte/s", 1e12),
        ("byte/second", "byte/s", 1),
        ("usecond", "ns", 1e3),
        ("us", "ns", 1e3),
        ("s", "ns", 1e9),
        ("Ghz", "hz", 1e9),
        ("cycle/nsecond", "hz", 1e9),
        ("sector/ns", "sector/s", 1e9),
        ("%/Kbyte", "%/byte", 1e-3),
        ("Kbyte/block", "byte/block", 1e3),
        ("inst/cycle", "inst/cycle", 1),
        ("", "", 1),
    ],
)
def test_every_unit_that_ncu_prints(unit: str, base: str, factor: float) -> None:
    assert base_unit(unit) == (base, pytest.approx(factor))


def test_both_pages_say_the_same(raw: Path, details: Path) -> None:
    """The details page rounds to two decimals, and knows a metric by its label."""
    exact, rounded = metrics(raw), metrics(details)
    common = [key for key in exact if key in rounded]
    assert {name for _, name in common} >= {
        "gpu__time_duration.sum",
        "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
        "sm__throughput.avg.pct_of_peak_sustained_elapsed",
        "sm__warps_active.avg.pct_of_peak_sustained_active",
        "launch__waves_per_multiprocessor",
        "dram__bytes.sum.per_second",
        "lts__t_sector_hit_rate.pct",
    }
    for key in common:
        assert rounded[key][0] == pytest.approx(exact[key][0], rel=0.006, abs=0.006), key
        assert rounded[key][1] == exact[key][1], key


def test_what_rules_say(details: Path) -> None:
    profile = stepscope.open(details, cache=False)
    first = profile.table("advice").filter(pl.col("kernel") == 0)
    said = dict(zip(profile.names.gather(first["rule"]), profile.names.gather(first["text"]), strict=True))
    assert said["SOLBottleneck"].startswith("Compute is more heavily utilized than Memory")
    gains = dict(zip(profile.names.gather(first["rule"]), first["speedup_pct"], strict=True))
    assert gains["UncoalescedGlobalAccess"] == 44.91
    assert gains["SOLBottleneck"] is None


def _rewritten(source: Path, target: Path, change: dict[str, str]) -> Path:
    """The page with every number written in another locale; header and units stay."""
    with source.open(encoding="utf-8") as file:
        header, units, *rows = csv.reader(file)
    table = str.maketrans(change)
    number = set("0123456789.,-")
    with target.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL)
        writer.writerows([header, units])
        for row in rows:
            writer.writerow([cell.translate(table) if cell and set(cell) <= number else cell for cell in row])
    return target


@pytest.mark.parametrize(
    "change", [{",": ".", ".": ","}, {",": "\u202f", ".": ","}, {",": "’"}, {",": ""}], ids=["de", "fr", "ch", "C"]
)
def test_numbers_of_other_locales(raw: Path, tmp_path: Path, change: dict[str, str]) -> None:
    assert metrics(_rewritten(raw, tmp_path / "page.csv", change)) == metrics(raw)


def test_a_page_that_contradicts_itself(raw: Path, tmp_path: Path) -> None:
    path = tmp_path / "page.csv"
    path.write_text(raw.read_text("utf-8").replace('"12.992000"', '"12,992000"', 1), "utf-8")
    with pytest.raises(stepscope.BadInput, match="decimal point and with a decimal comma"):
        stepscope.open(path, cache=False)


def test_lines_before_the_header_and_after_it(raw: Path, tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    said = (
        '==PROF== Connected to process 7 (/usr/bin/python3)\nstep 0, "loss" 11.2\n==PROF== Profiling "gemm": 0%....100%'
    )
    path.write_text(f"{said}\n{raw.read_text('utf-8')}==PROF== Disconnected from process 7\n", "utf-8")
    assert metrics(path) == metrics(raw)


def test_metrics_without_their_units_are_unknown(raw: Path, tmp_path: Path) -> None:
    """Nobody knows whether `12.992` are micro- or milliseconds; shares and counts need no unit."""
    lines = raw.read_text("utf-8").splitlines(keepends=True)
    path = tmp_path / "page.csv"
    path.write_text("".join([lines[0], *lines[2:]]), "utf-8")
    profile, found = stepscope.open(path, cache=False), metrics(path)
    assert found[1, "sm__throughput.avg.pct_of_peak_sustained_elapsed"][0] == pytest.approx(71.321302)
    assert (1, "gpu__time_duration.sum") not in found
    assert (1, "dram__bytes_read.sum") not in found
    assert profile.table("measured")["dur_ns"].null_count() == 7
    assert [n.code for n in profile.notes] == ["units-missing"]
    assert profile.notes[0].severity == "loss"


def test_one_unit_that_is_missing_takes_one_metric(raw: Path, tmp_path: Path) -> None:
    with raw.open(encoding="utf-8") as file:
        rows = list(csv.reader(file))
    rows[1][rows[0].index("dram__bytes_read.sum")] = ""
    path = tmp_path / "page.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows(rows)
    lost = set(metrics(raw)) - set(metrics(path))
    assert {name for _, name in lost} == {"dram__bytes_read.sum"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("==PROF== Connected\n==WARNING== No kernels were profiled.\n", "ncu printed no table"),
        ('"ID","Process ID","Kernel Name","Metric Name","Metric Unit","Metric Value"\n', "without a kernel"),
        ('"ID","Process ID","Kernel Name","sm__x.sum"\n"","","",""\n', "without a kernel"),
    ],
)
def test_pages_without_a_kernel(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "page.csv"
    path.write_text(text)
    with pytest.raises(stepscope.BadInput, match=why):
        stepscope.open(path, cache=False)


def test_metrics_of_the_command_line(tmp_path: Path) -> None:
    """`ncu --metrics … --csv` prints the names of metrics, not labels, a row each."""
    path = tmp_path / "page.csv"
    head = '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size"'
    row = '"0","7","python3","127.0.0.1","saxpy","1","7","(256, 1, 1)","(10, 1, 1)","0","9.0","Command line metrics"'
    path.write_text(
        f'{head},"Device","CC","Section Name","Metric Name","Metric Unit","Metric Value"\n'
        f'{row},"dram__bytes.sum","Kbyte","1,234.5"\n{row},"gpu__time_duration.sum","ns","2,016"\n'
    )
    assert metrics(path) == {(0, "dram__bytes.sum"): (1_234_500, "byte"), (0, "gpu__time_duration.sum"): (2016, "ns")}


def test_a_whole_file_of_an_older_ncu(shared: Path) -> None:
    profile = stepscope.open(shared / "traces/public/ncu_copy_blocked.csv", cache=False)
    assert profile.table("measured").height == 1
    assert profile.table("advice").height == 11
