"""Two-stage pipelines against simulated ones: period, gating stage and rate are known; every chunk by brute force."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fake import call, comm, make, nvtx, op
from jobs import written
from stepscope import api
from stepscope.cli.main import run
from stepscope.errors import BadInput
from stepscope.model.result import Result
from stepscope.simulate.job.scenario import Scenario
from stepscope.simulate.run import truth
from two_stage_jobs import Item, launched_ahead, lines, simulate

US = 1_000


def constant(a: int, b: int, decode: int, n: int = 40, **queues: Any) -> list[Item]:
    """So many items of a stream that goes on after them."""
    items = [Item(a * US, b * US, decode * US) for _ in range(n + 10)]
    simulate(items, **{"queue_in": 2, "queue_out": 2} | queues)
    return items[:n]


def ask(tmp_path: Path, items: list[Item], *, header: dict[str, int] | None = None, **options: Any) -> Result:
    path = tmp_path / "run.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines(items, **header or {})))
    return api.analyse(api.open(path, cache=False), "pipeline", **options)


@pytest.mark.parametrize(
    ("a", "b", "decode", "gating", "period"),
    [
        (2, 6, 1, "stage1", 6),  # the mesh is the longer
        (5, 4, 2, "stage0", 7),  # encode and decode together are
        (5, 4, 0, "stage0", 5),
        (3, 4, 1, "both", 4),
    ],
)
def test_the_gating_stage_is_the_one_that_fills_the_period(tmp_path, a, b, decode, gating, period):
    """With deep queues and lengths that never change, the longer stage is never idle: theory gives the period."""
    result = ask(tmp_path, constant(a, b, decode, queue_in=4, queue_out=4), warmup=20)
    summary = result.summary
    assert summary["p50"]["period_ns"] == period * US
    assert summary["gating"] == gating
    assert summary["verdict"].startswith("overlapped")
    assert summary["items_per_s"] == pytest.approx(1e6 / period)
    said = {"stage0": "stage 0 gates", "stage1": "stage 1 gates", "both": "both stages gate"}[gating]
    assert said in summary["statement"]
    if gating == "stage1":
        assert summary["p50"]["mesh_idle_ns"] == 0
    if gating == "stage0":
        assert summary["p50"]["mesh_idle_ns"] == (period - b) * US
        assert f"stage 1 idles {period - b} µs before each chunk" in summary["statement"]


def test_one_item_at_a_time_is_serialized_and_nothing_gates(tmp_path):
    summary = ask(tmp_path, constant(3, 5, 1, in_flight=1), warmup=2).summary
    assert summary["p50"]["period_ns"] == 9 * US and summary["verdict"].startswith("serialized")
    assert summary["gating"] == "neither" and summary["overlap_score"] == 0
    assert "neither stage gates: stage 1, the longer, fills 56 % of the period" in summary["statement"]


def test_a_long_way_between_the_stages_stalls_them(tmp_path):
    summary = ask(tmp_path, constant(3, 5, 1, in_flight=1, transfer=10 * US), warmup=2).summary
    assert summary["p50"]["period_ns"] == 29 * US
    assert summary["gating"] == "neither" and summary["verdict"].startswith("stalled")


def test_depths_in_and_out_may_differ(tmp_path, capsys):
    items = constant(2, 6, 1, queue_in=3, queue_out=1)
    result = ask(tmp_path, items, header={"queue_depth_in": 3, "queue_depth_out": 1, "tokens": 512}, warmup=10)
    assert result.summary["queue_depth_in"] == 3 and result.summary["queue_depth_out"] == 1
    assert "queue_depth" not in result.summary
    assert result.summary["tokens_per_s"] == pytest.approx(512e6 / 6)
    assert "at queue depth 3 in and 1 out: 166,667 items/s, 85,333,333 tokens/s." in result.summary["statement"]
    assert run(["pipeline", str(tmp_path / "run.jsonl"), "--warmup", "10", "--no-cache"]) == 0
    assert capsys.readouterr().out.rstrip().endswith("85,333,333 tokens/s.")
    same = ask(tmp_path, items, header={"queue_depth": 2}).summary
    assert same["queue_depth"] == same["queue_depth_in"] == same["queue_depth_out"] == 2
    assert "at queue depth 2:" in same["statement"]
    with pytest.raises(BadInput, match="queue_depth_out 1 after 2"):
        ask(tmp_path, items, header={"queue_depth": 2, "queue_depth_out": 1})


def test_tokens_of_a_chunk_go_before_the_default(tmp_path):
    made = lines(constant(2, 6, 1, n=4), tokens=100)
    made[1]["tokens"] = 7
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(line) + "\n" for line in made))
    result = api.analyse(api.open(tmp_path / "t.jsonl", cache=False), "pipeline")
    assert result.rows["tokens"].to_list() == [7, 100, 100, 100]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("a", "b", "decode", "gating"), [((1, 4), (10, 10), (0, 10), "stage1"),
                                                          ((1, 9), (4, 5), (1, 9), "stage0")])  # fmt: skip
def test_jitter_does_not_hide_who_gates(tmp_path, seed, a, b, decode, gating):
    """The simulation knows which process never had to wait for the other, however unevenly items come out."""
    random = Random(seed)
    items = [Item(*(random.randint(*span) * US for span in (a, b, decode))) for _ in range(80)]
    simulate(items, 8, 8)
    steady = items[20:60]
    busy = {
        "stage0": sum(i.a + i.decode for i in steady) / (steady[-1].at["tEmit"] - items[19].at["tEmit"]),
        "stage1": sum(i.b for i in steady) / (steady[-1].at["tB1"] - items[19].at["tB1"]),
    }
    other = "stage0" if gating == "stage1" else "stage1"
    assert busy[gating] > 0.97 and busy[other] < 0.9  # what the job was made for
    assert ask(tmp_path, items[:60], warmup=20).summary["gating"] == gating
    for item in items[40:]:  # and the whole run stops for a while
        item.at = {name: at + 5_000 * US for name, at in item.at.items()}
    assert ask(tmp_path, items[:60], warmup=20).summary["gating"] == gating


def brute_force(items: list[Item]) -> list[dict[str, Any]]:
    """Semantics §8, one chunk after the other."""
    found = []
    for k, item in enumerate(items):
        at, before = item.at, items[k - 1].at if k else None
        decode = at["tDecode"] - at["tRecv"]
        stage0, stage1 = at["tA1"] - at["tA0"] + decode, at["tB1"] - at["tB0"]
        row: dict[str, Any] = {"k": k, "stage0_ns": stage0, "stage1_ns": stage1, "decode_ns": decode}
        row |= dict.fromkeys(("period_ns", "hidden_ns", "overlap_score", "mesh_idle_ns"))
        if before is not None:
            period = at["tEmit"] - before["tEmit"]
            hidden = max(0, stage0 + stage1 - period)
            row |= {"period_ns": period, "hidden_ns": hidden, "overlap_score": hidden / min(stage0, stage1)}
            row["mesh_idle_ns"] = at["tB0"] - before["tB1"]
        found.append(row)
    return found


lengths = st.integers(1, 50).map(lambda us: us * US)
jobs = st.builds(
    lambda items, queues, transfer: (items, *queues, transfer),
    st.lists(st.builds(Item, lengths, lengths, lengths), min_size=2, max_size=15),
    st.tuples(st.integers(1, 4), st.integers(1, 4)),
    st.integers(0, 20).map(lambda us: us * US),
)


@settings(max_examples=30, deadline=None)
@given(jobs)
@pytest.mark.slow
def test_any_job_by_brute_force(job):
    """The same figures from a log and from a profile whose host ran ahead of its GPU."""
    items, queue_in, queue_out, transfer = job
    for item in items:
        item.at.clear()
    simulate(items, queue_in, queue_out, transfer)
    expected = brute_force(items)
    for prefix in ("pp:", "nvtx:pp:"):
        result = api.analyse(make(**launched_ahead(items, prefix)), "pipeline")
        assert result.rows.drop("tokens").to_dicts() == [dict(sorted(r.items(), key=_order)) for r in expected]
    summary = result.summary
    judged = expected[1:]
    assert summary["overlap_score"] == pytest.approx(median(r["overlap_score"] for r in judged))
    assert summary["items_per_s"] == pytest.approx(1e9 * len(judged) / sum(r["period_ns"] for r in judged))


def _order(pair: tuple[str, Any]) -> int:
    columns = ("k", "period_ns", "stage0_ns", "stage1_ns", "hidden_ns", "overlap_score", "decode_ns", "mesh_idle_ns")
    return columns.index(pair[0])


@pytest.mark.parametrize("label", ["decode", "C_decode", "c:decode"])
def test_decoding_is_recognized_whatever_is_before_it(label):
    tables = launched_ahead(constant(2, 6, 1, n=6), "nvtx:pp:")
    for row in tables["ranges"]:
        row["name"] = row["name"].replace("stage0:decode", f"stage0:{label}").replace("stage0:A", "stage0:A_encoder")
    rows = api.analyse(make(**tables), "pipeline").rows
    assert rows["decode_ns"].to_list() == [US] * 6 and rows["stage0_ns"].to_list() == [3 * US] * 6


def test_a_decoder_does_not_decode():
    tables = launched_ahead(constant(2, 6, 1, n=6))
    for row in tables["ranges"]:
        row["name"] = row["name"].replace("stage0:decode", "stage0:decoder_init")
    assert api.analyse(make(**tables), "pipeline").rows["decode_ns"].null_count() == 6


@pytest.mark.parametrize("form", ["nsys", pytest.param("kineto", marks=pytest.mark.slow)])
@pytest.mark.parametrize("depth", [1, 2])
def test_simulated_two_stage_jobs_are_the_truth(depth, form):
    """Every item to the nanosecond; one under way is serialized, two overlap, as the schedule makes them."""
    job = Scenario(schedule="two-stage", ep=2, depth=depth, micro_batches=5, steps=2, layers=2, seed=3)
    with written(job, (form,)) as (done, folder):
        want = truth(done)["pipeline"]["rows"]
        result = api.analyse(api.open(folder, cache=False), "pipeline")
    columns = ("k", "stage0_ns", "stage1_ns", "decode_ns")
    exact = form == "nsys"
    for row, expected in zip(result.rows.to_dicts(), want, strict=True):
        assert [row[c] for c in columns] == [expected[c] for c in columns]
        if exact:
            assert row == expected | {"tokens": 4096, "overlap_score": pytest.approx(expected["overlap_score"])}
    summary = result.summary
    assert summary["queue_depth"] == depth
    assert summary["verdict"].startswith("serialized" if depth == 1 else "overlapped")
    assert summary["overlap_score"] == 0 if depth == 1 else summary["overlap_score"] > 0.8
    assert summary["gating"] == ("neither" if depth == 1 else "stage1")


def test_gpu_work_counts_and_not_the_host(tmp_path):
    """Ranges of 5 ns launch microseconds of work; `--host-time` says what they took themselves."""
    items = constant(2, 6, 1, n=6)
    profile = make(**launched_ahead(items))
    result = api.analyse(profile, "pipeline")
    assert result.rows["stage1_ns"].to_list() == [6 * US] * 6
    assert [n.code for n in result.notes if n.code.startswith("stages-on")] == ["stages-on-gpu"]
    host = api.analyse(profile, "pipeline", host_time=True)
    assert host.rows["stage1_ns"].to_list() == [5] * 6 and host.rows["stage0_ns"].to_list() == [10] * 6
    assert [n.code for n in host.notes if n.code.startswith("stages-on")] == ["stages-on-host"]


def test_waiting_for_the_other_stage_is_no_work():
    """A receive of the pipeline runs as long as it waits: it is no part of the stage. Nor counts a range twice."""
    tables = launched_ahead(constant(2, 6, 1, n=4))
    plain = api.analyse(make(**tables), "pipeline").rows
    first = tables["ranges"][1]  # stage 1 of the first chunk
    begin, end = first["start_ns"], first["end_ns"]
    tables["ranges"] += [
        nvtx(begin, end, "pp:stage1:again k=0") | {"proc": 1},
        nvtx(begin + 1, end, "pipeline send/recv") | {"proc": 1},
    ]
    tables["calls"].append(call(begin + 1, begin + 2, 900) | {"proc": 1})
    tables["ops"].append(comm(begin + 2, end + 9 * US, call=900) | {"proc": 1})
    assert api.analyse(make(**tables), "pipeline").rows.equals(plain)
    tables["ops"][-1] = op(begin + 2, end + 9 * US, stream=9, call=900) | {"proc": 1}  # a kernel there is work
    assert api.analyse(make(**tables), "pipeline").rows["stage1_ns"][0] > plain["stage1_ns"][0]
