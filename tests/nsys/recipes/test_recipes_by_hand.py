"""Recipes on profiles small enough to work out by hand, and against plain NumPy and SQL."""

from __future__ import annotations

import sqlite3

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake import call, comm, copy, make, nvtx, op
from stepscope.errors import BadInput, CannotAnswer
from stepscope.nsys import recipes
from stepscope.nsys.recipes.overlap import several
from stepscope.nsys.recipes.stats import counted, statistics

values = st.lists(st.integers(0, 50), min_size=1, max_size=40)


@given(values, values)
def test_statistics_of_counts_are_those_of_the_values(a, b):
    frame = pl.DataFrame({"rank": [0] * len(a) + [1] * len(b), "v": a + b}, schema={"rank": pl.Int32, "v": pl.Int64})
    counts = counted(frame, "v")
    linear, averaged = (statistics(counts, ["rank"], q).to_dicts() for q in ("linear", "averaged"))
    for data, x, y in zip((a, b), linear, averaged, strict=True):
        assert (x["n"], x["total"], x["min"], x["max"]) == (len(data), sum(data), min(data), max(data))
        assert x["avg"] == pytest.approx(np.mean(data), abs=0.0501)
        assert x["std"] == pytest.approx(np.std(data, ddof=1) if len(data) > 1 else 0, abs=0.0501)
        for column, q in (("q1", 0.25), ("med", 0.5), ("q3", 0.75)):
            assert x[column] == pytest.approx(np.quantile(data, q), abs=0.0501)
            assert y[column] == pytest.approx(np.quantile(data, q, method="averaged_inverted_cdf"), abs=0.0501)


def test_all_ranks_are_summed_up_from_every_instance():
    profile = make(ops=[op(0, 10), op(20, 24), op(0, 6, proc=1), comm(30, 130, proc=1)])
    outcome = recipes.run(profile, "cuda_gpu_kern_sum")
    gemm = outcome.tables["all_stats"].filter(pl.col("name") == "gemm").row(0, named=True)
    assert (gemm["n"], gemm["total_ns"], gemm["med_ns"]) == (3, 20, 6)
    assert (gemm["min_ranks"], gemm["max_ranks"]) == ("0", "0")
    assert outcome.tables["rank_stats"].select("rank", "name", "time_pct").rows() == [
        (0, "gemm", 100.0),
        (1, "ncclDevKernel_SendRecv", 94.3),
        (1, "gemm", 5.7),
    ]


def test_a_bin_is_used_while_any_kernel_runs():
    profile = make(ops=[op(0, 60), comm(30, 90), copy(0, 100), op(0, 50, proc=1)])
    once, added = (
        recipes.run(profile, "nccl_gpu_time_util_map", bins=2, start=0, end=100, cumulative=c).tables["analysis"]
        for c in (False, True)
    )
    columns = ("rank", "all_pct", "nccl_pct", "compute_pct")
    assert once.select(columns).rows() == [(0, 100, 40, 100), (0, 80, 80, 20), (1, 100, 0, 100), (1, 0, 0, 0)]
    assert added["all_pct"].to_list() == [140, 100, 100, 0]


def test_bins_run_from_the_first_to_the_last_kernel_of_any_rank():
    profile = make(ops=[op(100, 200), op(150, 500, proc=1)])
    bins = recipes.run(profile, "cuda_gpu_time_util_map", bins=4).tables["analysis"]
    assert (bins["start_ns"].min(), bins["end_ns"].max()) == (100, 500)
    assert bins.filter(pl.col("rank") == 0)["kernel_pct"].to_list() == [100, 0, 0, 0]


def test_bins_are_cut_on_the_clock_of_all_ranks(train):
    """The second capture began 112 s after the first: its times are small, its place on the common clock is not."""
    later = train.sources[1].epoch_ns - train.sources[0].epoch_ns
    table = recipes.run(train, "cuda_gpu_time_util_map", bins=4, start=later, end=later + 10**9).tables["ranks"]
    assert [pct > 0 for pct in table["kernel_max_pct"].to_list()] == [False, True]


def test_overlap_of_one_communication_with_compute_and_with_another():
    profile = make(ops=[op(0, 40), comm(10, 60), comm(50, 100, stream=11), op(90, 200), op(0, 999, proc=1)])
    outcome = recipes.run(profile, "nccl_gpu_overlap_trace")
    columns = ("start_ns", "dur_ns", "compute_ns", "comm_ns", "exposed_ns", "alone_ns")
    # [10,60): compute until 40, the other from 50. [50,100): the first until 60, compute from 90.
    assert outcome.tables["trace"].select(columns).rows() == [(10, 50, 30, 10, 20, 10), (50, 50, 10, 10, 40, 30)]
    assert outcome.tables["all_stats"].select("n", "total_ns", "hidden_pct", "shared_pct").rows() == [(2, 100, 40, 20)]


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 8)), max_size=12))
def test_where_several_run(intervals):
    start = np.array([s for s, _ in intervals], dtype=np.int64)
    end = start + np.array([n for _, n in intervals], dtype=np.int64)
    spans = several(start, end)
    inside = {t for a, b in zip(spans.start, spans.end, strict=True) for t in range(a, b)}
    assert inside == {t for t in range(50) if sum(s <= t < e for s, e in zip(start, end, strict=True)) >= 2}


def test_pace_counts_from_the_end_of_the_instance_before():
    profile = make(ranges=[nvtx(10, 20, "step"), nvtx(50, 70, "step"), nvtx(12, 15, "x"), nvtx(11, 20, "step", proc=1)])
    outcome = recipes.run(profile, "nvtx_pace", name="step")
    columns = ("rank", "index", "start_ns", "dur_ns", "delta_ns", "delta_accum_ns")
    assert outcome.tables["trace"].select(columns).rows() == [
        (0, 0, 10, 10, 10, 10),
        (0, 1, 50, 20, 30, 40),
        (1, 0, 11, 9, 11, 11),
    ]
    assert outcome.tables["delta_stats"].select("index", "n", "skew_ns").rows() == [(0, 2, 1), (1, 1, 0)]
    assert outcome.tables["pace_duration"].rows() == [(10, 9), (20, None)]


def test_pace_takes_the_longest_and_says_so():
    profile = make(ranges=[nvtx(0, 1000, "all"), nvtx(0, 10, "a"), nvtx(20, 90, "b"), nvtx(100, 101, "b")])
    outcome = recipes.run(profile, "nvtx_pace")
    assert outcome.summary["name"] == "b" and "--name was not given" in outcome.notes[0]
    with pytest.raises(BadInput, match="did you mean 'all'"):
        recipes.run(profile, "nvtx_pace", name="al")


def test_pace_folds_numbers_of_ranges():
    steps = [nvtx(100 * k, 100 * k + 60 + k, f"step {k + 5}") for k in range(4)]
    profile = make(ranges=[*steps, nvtx(0, 10, "a"), nvtx(20, 40, "a")])
    outcome = recipes.run(profile, "nvtx_pace")
    assert outcome.summary == {"name": "step #", "instances": 4}
    assert outcome.tables["trace"]["dur_ns"].to_list() == [60, 61, 62, 63]
    assert recipes.run(profile, "nvtx_pace", name="step 6").tables["trace"]["dur_ns"].to_list() == [61]
    assert recipes.run(profile, "nvtx_pace", name="step #").tables["trace"].height == 4


def test_the_tree_adds_up():
    inner = [nvtx(10, 30, "forward"), nvtx(40, 90, "backward"), nvtx(50, 60, "loss")]
    profile = make(ranges=[nvtx(0, 100, "step 1"), *inner, nvtx(200, 260, "step 2"), nvtx(0, 40, "step 1", proc=1)])
    tables = recipes.run(profile, "nvtx_cpu_topdown", fold=True).tables
    paths = {row["path"]: row for row in tables["paths"].iter_rows(named=True)}
    assert list(paths) == ["step #", "step # › backward", "step # › backward › loss", "step # › forward"]
    assert (paths["step #"]["n"], paths["step #"]["total_ns"], paths["step #"]["self_ns"]) == (3, 200, 130)
    assert paths["step # › backward"]["self_ns"] == 40
    assert tables["paths"]["self_ns"].sum() == 200  # every instant of the host in one range only
    assert tables["topdown"]["range"].to_list() == ["step #", "· backward", "· · loss", "· forward"]


def test_a_histogram_counts_every_kernel(trace):
    path = trace("moe4mps/overlapped")
    profile = recipes_profile(path)
    tables = recipes.run(profile, "cuda_gpu_kern_hist", bins=12).tables
    with sqlite3.connect(path) as database:
        lengths = [n for (n,) in database.execute("select end - start from CUPTI_ACTIVITY_KIND_KERNEL")]
    edges = [*tables["all_hist"]["from_ns"].to_list(), tables["all_hist"]["to_ns"][-1]]
    assert tables["all_hist"]["n"].to_list() == np.histogram(lengths, edges)[0].tolist()
    assert tables["all_hist"]["total_ns"].sum() == sum(lengths)
    assert tables["rank_hist"]["n"].sum() == tables["kernel_hist"]["n"].sum() == len(lengths)


def test_overlap_trace_against_plain_sql(trace):
    path = trace("moe4mps/overlapped")
    found = recipes.run(recipes_profile(path), "nccl_gpu_overlap_trace").tables["trace"]
    with sqlite3.connect(path) as database:
        rows = database.execute(
            "select (globalPid >> 24) & 0xFFFFFF, start, end, value like '%nccl%' from CUPTI_ACTIVITY_KIND_KERNEL"
            " join StringIds on id = demangledName"
        ).fetchall()
    compute: dict[int, list[tuple[int, int]]] = {}
    for pid, start, end, is_nccl in sorted(rows):
        mine = compute.setdefault(pid, [])
        if is_nccl:
            continue
        if mine and start <= mine[-1][1]:
            mine[-1] = (mine[-1][0], max(mine[-1][1], end))
        else:
            mine.append((start, end))
    nccl = sorted((pid, s, e) for pid, s, e, is_nccl in rows if is_nccl)
    expected = [(p, s, e - s, sum(max(0, min(e, b) - max(s, a)) for a, b in compute[p])) for p, s, e in nccl]
    assert sorted(found.select("pid", "start_ns", "dur_ns", "compute_ns").rows()) == expected


SETS = {
    "dlrm8": ("public/dlrm8/dlrm_kineto", "*.json"),
    "h200_moe4mps_overlapped": ("h200/moe4mps", "overlapped.rank*.gz"),
}


@pytest.mark.parametrize("name", SETS)
def test_overlap_trace_against_traceinsight(shared, name):
    """Its share of the union of communication is ours of the sum: no two of these kernels run at once on a rank."""
    folder, files = SETS[name]
    profile = recipes_profile(*sorted((shared / "traces" / folder).glob(files)))
    found = recipes.run(profile, "nccl_gpu_overlap_trace").tables["trace"]
    assert found["comm_ns"].sum() == 0
    ours = found.group_by("rank").agg(pl.col("compute_ns").sum() * 100 / pl.col("dur_ns").sum()).sort("rank")
    golden = pl.read_csv(shared / "golden" / "traceinsight-0.6.1" / name / "exact" / "comm_comp_overlap.csv")
    assert ours["compute_ns"].round(2).to_list() == golden["comp_comm_overlap_pctg"].to_list()


def recipes_profile(*paths):
    from stepscope import api

    return api.open(*paths)


def sample(at: int, name: str, value: float, **more: object) -> dict[str, object]:
    return {"start_ns": at, "name": name, "value": value, "device": 0} | more


def test_metrics_in_bins_and_in_all():
    sms = [sample(t, "SMs Active [Throughput %]", v) for t, v in ((0, 10), (1, 30), (30, 80))]
    profile = make(counters=[*sms, sample(0, "NVLink TX [Throughput %]", 7), sample(0, "GPC Clock", 1980)])
    outcome = recipes.run(profile, "gpu_metric_util_map", bins=3, start=0, end=31)
    assert outcome.tables["analysis"]["value"].to_list() == [20.0, None, 80.0]  # not sampled is not zero
    every = recipes.run(profile, "gpu_metric_util_sum").tables["all_stats"]
    assert every.select("name", "n", "avg").rows() == [
        ("GPC Clock", 1, 1980.0),
        ("NVLink TX [Throughput %]", 1, 7.0),
        ("SMs Active [Throughput %]", 3, 40.0),
    ]
    assert recipes.run(profile, "nvlink_sum").tables["all_stats"]["n"].to_list() == [1]
    with pytest.raises(CannotAnswer, match="network metrics"):
        recipes.run(profile, "network_sum")


def test_bytes_of_nccl_are_those_of_the_payloads(payloads, shared):
    """The other export of the same report gives the same."""
    table = recipes.run(payloads, "nccl_sum").tables["all_stats"]
    told = dict(table.select("name", "bytes").drop_nulls().iter_rows())
    assert told == dict(
        payloads.comms.drop_nulls("bytes")
        .group_by(payloads.names.gather(payloads.comms.drop_nulls("bytes")["op"]).alias("name"))
        .agg(pl.col("bytes").sum())
        .iter_rows()
    )
    parquet = recipes_profile(shared / "traces" / "h200" / "payloads" / "overlapped_pqtdir")
    assert recipes.run(parquet, "nccl_sum").tables["all_stats"].equals(table)


@pytest.mark.parametrize("name", [n for n in recipes.recipes() if n != "diff"])
def test_a_profile_without_what_it_takes_is_refused(name):
    with pytest.raises(CannotAnswer) as refused:
        recipes.run(make(calls=[call(0, 1)]) if not name.startswith("cuda_api") else make(), name)
    assert refused.value.hint


@pytest.mark.parametrize("name", recipes.recipes())
def test_a_recipe_describes_itself(name):
    recipe = recipes.find(name)
    assert recipe.title and recipe.doc.endswith((".", "rank."))
    assert all(a.help for a in recipe.all_args)


def test_no_such_recipe_and_no_such_option():
    with pytest.raises(BadInput, match="did you mean nccl_sum"):
        recipes.find("ncl_sum")
    with pytest.raises(BadInput, match="no option --bins; it takes --base"):
        recipes.run(make(ops=[op(0, 1)]), "cuda_gpu_kern_sum", bins=3)
    with pytest.raises(BadInput, match="not before"):
        recipes.run(make(ops=[op(0, 1)]), "cuda_gpu_kern_sum", start=3, end=2)


def test_network_cards_of_an_export(trace, tmp_path):
    path = tmp_path / "nic.sqlite"
    path.write_bytes(trace("train/eager").read_bytes())
    with sqlite3.connect(path) as database:
        database.executescript(
            """
            CREATE TABLE NET_NIC_METRIC (start, end, globalId, portId, metricsListId, metricsIdx, value);
            CREATE TABLE TARGET_INFO_NETWORK_METRICS (metricsListId, metricsIdx, name, description, unit);
            CREATE TABLE NIC_ID_MAP (globalId, nicId);
            INSERT INTO TARGET_INFO_NETWORK_METRICS VALUES (1, 0, 'IB: Bytes sent', '', 'B'),
              (1, 1, 'IB: Send waits', '', '');
            INSERT INTO NIC_ID_MAP VALUES (72057594037927936, 3);
            INSERT INTO NET_NIC_METRIC VALUES (10, 20, 72057594037927936, 1, 1, 0, 100),
              (20, 30, 72057594037927936, 1, 1, 0, 300), (20, 30, 72057594037927936, 1, 1, 1, 7);
            """
        )
    database.close()
    tables = recipes.run(recipes_profile(path), "network_sum").tables
    rows = tables["rank_stats"].select("device", "name", "n", "avg", "max").rows()
    assert rows == [(3, "NIC IB: Bytes sent", 2, 200.0, 300.0), (3, "NIC IB: Send waits", 1, 7.0, 7.0)]
    bins = recipes.run(recipes_profile(path), "nic_metric_map", bins=2, start=10, end=30).tables["analysis"]
    assert bins["value"].to_list() == [100.0, 300.0, None, 7.0]
    with pytest.raises(CannotAnswer, match="GPU metrics"):
        recipes.run(recipes_profile(path), "gpu_metric_util_sum")


def test_the_tree_has_every_range(payloads):
    """By their own text, the paths are the summary of ranges; and their own times are the whole."""
    paths = recipes.run(payloads, "nvtx_cpu_topdown").tables["paths"]
    leaf = pl.col("path").str.split(" › ").list.last().alias("name")
    by_text = paths.group_by(leaf).agg(pl.col("n", "total_ns").sum()).sort("name")
    summed = recipes.run(payloads, "nvtx_sum").tables["all_stats"].select("name", "n", "total_ns").sort("name")
    assert by_text.equals(summed)
    assert paths["self_ns"].sum() == paths.filter(pl.col("depth") == 0)["total_ns"].sum()


EVERYWHERE = [n for n in recipes.recipes() if "metric" not in n and n not in ("diff", "osrt_sum", "mpi_sum")]


@pytest.mark.parametrize("name", [n for n in EVERYWHERE if n not in ("nvlink_sum", "network_sum")])
def test_parquet_exports_give_the_same_as_sqlite(payloads, shared, name):
    parquet = recipes_profile(shared / "traces" / "h200" / "payloads" / "overlapped_pqtdir")
    ours, theirs = (recipes.run(p, name).tables for p in (payloads, parquet))
    assert all(ours[table].equals(theirs[table]) for table in ours)
