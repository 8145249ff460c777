"""The range tree: figures by hand, brute force over random forests, nsys's own reports."""

from __future__ import annotations

import csv
import gzip
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fake import call, comm, copy, make, nvtx, op
from stepscope import api
from stepscope.analyses.nvtx import nvtx as ask
from stepscope.derive.windows.spec import WindowSpec
from stepscope.errors import BadInput, CannotAnswer

TREE = {
    "ops": [op(1000, 1010, call=1), comm(1005, 1025, call=2), copy(1030, 1032, call=3), op(1100, 1150, call=4)],
    "calls": [call(11, 12, 1), call(21, 22, 2), call(31, 32, 3), call(95, 96, 4)],
    "ranges": [nvtx(0, 90, "step 0"), nvtx(10, 15, "fwd"), nvtx(20, 40, "bwd"), nvtx(25, 35, "fwd")],
}


def _rows(profile: Any, **options: Any) -> dict[str, dict[str, Any]]:
    result = ask(profile, WindowSpec(whole=True), **options).rows
    return {r["path" if "path" in r else "range"]: r for r in result.to_dicts()}


def test_figures_by_hand():
    rows = _rows(make(**TREE))
    assert list(rows) == ["step 0", "step 0 > bwd", "step 0 > bwd > fwd", "step 0 > fwd", "(no range)"]
    step = rows["step 0"]
    assert (step["n"], step["host_ns"], step["self_host_ns"]) == (1, 90, 90 - 5 - 20)
    assert (step["gpu_ns"], step["kernel_ns"], step["comm_ns"], step["copy_ns"], step["ops"]) == (32, 10, 20, 2, 3)
    assert (step["self_gpu_ns"], step["self_ops"]) == (0, 0)
    bwd = rows["step 0 > bwd"]
    assert (bwd["gpu_ns"], bwd["ops"], bwd["self_gpu_ns"], bwd["self_ops"]) == (1032 - 1005, 2, 20, 1)
    assert (bwd["host_ns"], bwd["self_host_ns"], bwd["depth"]) == (20, 10, 1)
    rest = rows["(no range)"]
    assert (rest["n"], rest["mean_ns"], rest["kernel_ns"], rest["ops"]) == (0, None, 50, 1)


def test_by_name_counts_a_recursive_range_once():
    p = make(
        ops=[op(100, 110, call=1)],
        calls=[call(5, 6, 1)],
        ranges=[nvtx(0, 20, "f"), nvtx(2, 12, "f"), nvtx(30, 40, "f")],
    )
    row = _rows(p, by="name")["f"]
    assert (row["n"], row["host_ns"], row["self_host_ns"]) == (3, 30, 30)
    assert (row["ops"], row["kernel_ns"], row["max_ns"], row["mean_ns"]) == (1, 10, 20, 13)


def test_running_numbers_fold_on_request_and_torch_ids_always():
    p = make(ranges=[nvtx(0, 10, "step 1"), nvtx(10, 30, "step 2"), nvtx(12, 14, "aten::add, seq = 7, op_id = 9")])
    assert set(_rows(p)) == {"step 1", "step 2", "step 2 > aten::add"}
    folded = _rows(p, fold=True)
    assert folded["step #"]["n"] == 2 and folded["step #"]["host_ns"] == 30 and folded["step #"]["max_ns"] == 20


def test_depth_limits_the_tree():
    assert list(_rows(make(**TREE), depth=2)) == ["step 0", "step 0 > bwd", "step 0 > fwd", "(no range)"]


def test_flame_graph_weighs_self_time(tmp_path: Path):
    file = tmp_path / "flame.txt"
    ask(make(**TREE), WindowSpec(whole=True), flame=file)
    lines = dict(line.rsplit(" ", 1) for line in file.read_text().splitlines())
    assert lines == {
        "rank 0;step 0": "65",
        "rank 0;step 0;bwd": "10",
        "rank 0;step 0;bwd;fwd": "10",
        "rank 0;step 0;fwd": "5",
    }
    ask(make(**TREE), WindowSpec(whole=True), flame=file, weight="gpu")
    lines = dict(line.rsplit(" ", 1) for line in file.read_text().splitlines())
    assert sum(map(int, lines.values())) == 10 + 20 + 2 + 50
    with pytest.raises(BadInput, match="--flame"):
        ask(make(**TREE), WindowSpec(whole=True), flame=tmp_path / "no" / "where.txt")


def test_a_step_is_the_window_by_default():
    p = make(
        ops=[op(100 * k, 100 * k + 5, call=k) for k in (1, 2, 3)],
        calls=[call(10 * k + 1, 10 * k + 2, k) for k in (1, 2, 3)],
        ranges=[nvtx(10 * k, 10 * k + 9, f"step {k}") for k in (1, 2, 3)],
    )
    assert ask(p, WindowSpec()).rows["range"].to_list() == ["step 2"]
    assert ask(p, WindowSpec(start=300, end=302)).rows.select("range", "kernel_ns").rows() == [("step 3", 2)]


def test_no_answer_without_ranges():
    with pytest.raises(CannotAnswer, match="NVTX"):
        ask(make(ops=[op(0, 1)]), WindowSpec())


# -- brute force -----------------------------------------------------------------------------------------------------


@st.composite
def _forests(draw: st.DrawFn) -> dict[str, list[dict[str, Any]]]:
    times = st.integers(0, 20)
    spans = st.tuples(times, st.integers(1, 12))
    ranges = [
        nvtx(s, s + n, draw(st.sampled_from("abc")), tid=draw(st.integers(1, 2)))
        for s, n in draw(st.lists(spans, min_size=1, max_size=7))
    ]
    calls, ops = [], []
    for i, (s, n) in enumerate(draw(st.lists(spans, max_size=6)), 1):
        calls.append(call(s, s + 1, i, tid=draw(st.integers(1, 3))))
        ops.append(op(100 + s, 100 + s + n, call=i) if draw(st.booleans()) else comm(100 + s, 100 + s + n, call=i))
    return {"ranges": ranges, "calls": calls, "ops": ops}


def _open(ranges: list[dict[str, Any]], tid: int | None, at: int) -> list[int]:
    """Ranges open at `at`, outermost first: by start, then longest, then row."""
    found = [i for i, r in enumerate(ranges) if (tid is None or r["tid"] == tid) and r["start_ns"] <= at < r["end_ns"]]
    return sorted(found, key=lambda i: (ranges[i]["start_ns"], -ranges[i]["end_ns"], i))


@settings(max_examples=60, deadline=None)
@given(_forests())
@pytest.mark.slow
def test_sums_equal_brute_force(tables: dict[str, list[dict[str, Any]]]):
    tables["ranges"].sort(key=lambda r: (r["start_ns"], r["end_ns"]))
    rows = ask(make(**tables), WindowSpec(whole=True)).rows.to_dicts()
    ranges = tables["ranges"]
    chain: dict[int, list[int]] = {}
    order = sorted(range(len(ranges)), key=lambda i: (ranges[i]["start_ns"], -ranges[i]["end_ns"], i))
    for i in order:  # the parent is the innermost of those open when it starts
        around = _open(ranges, ranges[i]["tid"], ranges[i]["start_ns"])
        above = around[: around.index(i)]
        chain[i] = [*(chain[above[-1]] if above else []), i]
    path = {i: " > ".join(ranges[j]["name"] for j in c) for i, c in chain.items()}
    want: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for i, r in enumerate(ranges):
        want[path[i]]["n"] += 1
        want[path[i]]["host_ns"] += r["end_ns"] - r["start_ns"]
    for tid in (1, 2):
        for t in range(40):
            if found := _open(ranges, tid, t):
                want[path[found[-1]]]["self_host_ns"] += 1
    for o, c in zip(tables["ops"], tables["calls"], strict=True):
        found = _open(ranges, c["tid"], c["start_ns"]) or _open(ranges, None, c["start_ns"])
        kind = "comm_ns" if "nccl" in o["name"] else "kernel_ns"
        length = o["end_ns"] - o["start_ns"]
        if not found:
            want["(no range)"]["self_" + kind] += length
            want["(no range)"][kind] += length
            continue
        want[path[found[-1]]]["self_" + kind] += length
        for j in chain[found[-1]]:
            want[path[j]][kind] += length
            want[path[j]]["ops"] += 1
    assert {r["path"] for r in rows} == set(want)
    for r in rows:
        for k, v in want[r["path"]].items():
            assert r[k] == v, (r["path"], k)


# -- real traces -----------------------------------------------------------------------------------------------------


def _golden(shared: Path, name: str, report: str) -> list[dict[str, str]]:
    with gzip.open(next(shared.glob(f"golden/nsys-*/{name}.{report}.csv.gz")), "rt") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(("trace", "name"), [("h200/train/eager", "eager"), ("h200/moe4/overlapped", "overlapped")])
def test_host_time_equals_nsys(shared: Path, trace: str, name: str):
    profile = api.open(shared / f"traces/{trace}.sqlite", cache=False)
    ours: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for r in _all(profile):
        ours[r["range"]][0] += r["n"]
        ours[r["range"]][1] += r["host_ns"]
    compared = 0
    for row in _golden(shared, name, "nvtx_pushpop_sum"):
        text = row["Range"].removeprefix(":")
        if text in ours:  # the setup label and NCCL's own ranges are not ours
            assert ours[text] == [int(row["Instances"]), int(float(row["Total Time (ns)"]))]
            compared += 1
    assert compared == len(ours)


def _all(profile: Any) -> list[dict[str, Any]]:
    return [r for r in ask(profile, WindowSpec(whole=True)).rows.to_dicts() if r["n"]]


def test_projected_time_equals_nsys_where_one_thread_launches(shared: Path):
    profile = api.open(shared / "traces/h200/moe4/overlapped.sqlite", cache=False)
    ours: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for r in _all(profile):
        ours[r["range"]][0] += r["gpu_ns"]
    compared = 0
    for row in _golden(shared, "overlapped", "nvtx_gpu_proj_sum"):
        text = row["Range"].removeprefix(":")
        if text in ours:
            assert ours[text][0] == int(float(row["Total Proj Time (ns)"])), text
            compared += 1
    assert compared > 25
