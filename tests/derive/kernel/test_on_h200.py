"""Kernels written for the purpose, measured by `capture ncu` on an H200: each is bound by what it was made for.

Six kernels in steps of three layers (`probe`, `--for everything`), and a training loop whose MLP goes through a copy
that reads with a stride (`train`, `--for roofline`). The report and the pages are of one measurement each.
"""

from __future__ import annotations

import lzma
from pathlib import Path

import polars as pl
import pytest

import cited
import stepscope

DATA = Path(__file__).parents[2] / "data/ncu"
#: What each kernel does, and so what it must be bound by, at which unit, and how it reaches memory.
TRUTH = {
    "stream_triad": ("bandwidth", "DRAM", None),  # a + 2 b of 256 MiB each, coalesced
    "fma_chain": ("compute", "instruction issue", None),  # eight independent chains of fused multiply-adds
    "pointer_chase": ("latency", "grid", "uncoalesced"),  # 132 warps, each load waits for the one before it
    "strided_read": ("bandwidth", "DRAM", "uncoalesced"),  # every eighth float
    "bank_conflict": ("bandwidth", "L1 and shared memory", "bank conflicts"),  # a warp reads one bank
    "almost_nothing": ("overhead", "launch", None),  # one warp, one store
}


def unpacked(folder: Path, *names: str) -> list[Path]:
    """Files of the test data, as they were."""
    for name in names:
        (folder / Path(name).stem).write_bytes(lzma.decompress((DATA / name).read_bytes()))
    return [folder / Path(name).stem for name in names]


@pytest.mark.parametrize("name", ["probe/full.ncu-rep.xz", "probe/raw.csv.xz"])
def test_each_is_bound_by_what_it_was_made_for(tmp_path: Path, name: str) -> None:
    if ".ncu-rep" in name:
        pytest.importorskip("ncu_report")
    rows = stepscope.open(*unpacked(tmp_path, name), cache=False).roofline(by="kernel", top=0).rows
    assert rows["name"].to_list() == list(TRUTH)
    for row in rows.iter_rows(named=True):
        bound, unit, access = TRUTH[row["name"]]
        assert (row["bound"], row["unit"]) == (bound, unit), row
        assert (row["access"] or "").startswith(access or ""), row
        assert access is not None or row["access"] is None, row
        assert row["nvtx"] == "step 2/layer 0"


def test_what_they_do_is_counted(tmp_path: Path) -> None:
    """1056 blocks of 256 threads, 8 chains of 4096 rounds; 2^26 floats read twice and written once; every 8th read."""
    rows = stepscope.open(*unpacked(tmp_path, "probe/raw.csv.xz"), cache=False).roofline(by="kernel", top=0).rows
    by_name = {row["name"]: row for row in rows.iter_rows(named=True)}
    chains = 1056 * 256 * 8 * 4096 * 2
    assert by_name["fma_chain"]["flops"] == pytest.approx(chains, rel=0.001)
    assert by_name["stream_triad"]["flops"] == 2 * 2**26
    assert by_name["stream_triad"]["dram_bytes"] == pytest.approx(3 * 4 * 2**26, rel=0.03)
    # A sector for each float that is read, and what is written, all but what stays in the cache.
    assert by_name["strided_read"]["dram_bytes"] == pytest.approx((32 + 4) * 2**23, rel=0.05)


@pytest.mark.slow
def test_report_and_page_give_the_same_answer(tmp_path: Path) -> None:
    """ncu printed the page from this very report; it prints six decimals."""
    pytest.importorskip("ncu_report")
    report, page = unpacked(tmp_path, "probe/full.ncu-rep.xz", "probe/raw.csv.xz")
    for by in ("kernel", "precision", "level", "stall"):
        one, other = (
            stepscope.open(p, cache=False).roofline(by=by, top=0).rows.drop("file", strict=False)
            for p in (report, page)
        )
        assert one.height == other.height > 0
        for name in one.columns:
            if one.schema[name].is_numeric():
                values, others = (f[name].cast(pl.Float64).fill_null(-1.0).to_list() for f in (one, other))
                assert values == pytest.approx(others, rel=2e-3, abs=2e-6), name
            else:
                assert one[name].to_list() == other[name].to_list(), name


def test_every_bound_is_nsight_compute_s(tmp_path: Path) -> None:
    from test_bound import SAID

    raw, details = unpacked(tmp_path, "probe/raw.csv.xz", "probe/details.csv.xz")
    both = stepscope.open(raw, details, cache=False)
    rules = both.roofline(by="rule", top=0).rows.filter(pl.col("rule") == "SOLBottleneck")
    said = dict(rules.select("name", "text").iter_rows())
    for name, (bound, _, _) in TRUTH.items():
        assert bound in next(found for begin, found in SAID.items() if said[name].startswith(begin)), name


def test_one_launch_of_each_stands_for_all_layers(tmp_path: Path) -> None:
    page = unpacked(tmp_path, "probe/raw.csv.xz")[0]
    profile = stepscope.open(DATA / "probe/probe.pt.trace.json.gz", page, cache=False)
    rows = profile.kernels(anchor="step").rows
    measured = dict(rows.select("name", "measured_pct").iter_rows())
    assert {name for name, share in measured.items() if share == 100.0} == set(TRUTH) - {"almost_nothing"}
    # A kernel of under a microsecond takes three times that under ncu: nothing says that it is the same.
    note = next(n for n in profile.kernels(anchor="step").notes if n.code == "measured-ambiguous")
    assert "3 × almost_nothing" in note


def test_a_slow_kernel_of_a_training_step_is_found(tmp_path: Path) -> None:
    """The copy takes 18 of 60 ms. With a coalesced one in its place a step takes 46.8 ms without a profiler, not 59.9
    (medians of six blocks of eight steps, on the same GPU): 13.1 ms."""
    page = unpacked(tmp_path, "train/train.raw.csv.xz")[0]
    profile = stepscope.open(DATA / "train/train.pt.trace.json.gz", page, cache=False)
    first = profile.diagnose().rows.row(0, named=True)
    assert first["id"] == "below-roof"
    assert "scatter_rows" in first["evidence"]
    assert "uncoalesced: 94 % of sectors wasted" in first["evidence"]
    truth = 13.1e6
    assert first["recoverable_low_ns"] <= truth <= first["recoverable_high_ns"]
    assert first["recoverable_ns"] == pytest.approx(truth, rel=0.1)
    rows = profile.kernels().rows
    products = rows.filter(pl.col("name").str.starts_with("nvjet") & pl.col("roof_pct").is_not_null())
    assert products.height == 5
    assert products["roof_pct"].is_between(85, 93).all()


def test_the_finding_s_command_shows_its_figures(tmp_path: Path) -> None:
    page = unpacked(tmp_path, "train/train.raw.csv.xz")[0]
    profile = stepscope.open(DATA / "train/train.pt.trace.json.gz", page, cache=False)
    assert not [text for one in cited.every(profile) for text in one.wrong]
