"""What the page is told, against the profile's tables and the figures of the commands."""

from __future__ import annotations

import json
import random
import shlex

import numpy as np
import polars as pl
import pytest
from serving import client, decoded, scene, simulated

from fake import FakeSource, call, comm, nvtx, op
from stepscope import api
from stepscope.cli.main import run
from stepscope.timeline.kinds import FULL
from stepscope.web.answers import Answers
from stepscope.web.scene import scene_of


@pytest.fixture(scope="module")
def known(answers):
    return client(answers)


@pytest.fixture(scope="module")
def about(known):
    return known.get("/api/scene").json()["profiles"][0]


def lanes(about, **wanted):
    return [i for i, lane in enumerate(about["lanes"]) if all(lane[k] == v for k, v in wanted.items())]


def view(known, lane, lo, hi, px=1000, **more):
    answer = known.get("/api/block", params={"lanes": lane, "from": lo, "to": hi, "px": px, **more})
    assert answer.status_code == 200, answer.text
    return decoded(answer.content)


def drawn(**tables):
    return scene_of(api.Profile([FakeSource(tables)]), ("trace.sqlite",))


def cli(capsys, *words):
    assert run([*map(str, words), "--format", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_close_view_has_the_ops_themselves(known, about, served_job):
    ops = api.open(served_job).ops.filter((pl.col("rank") == 1) & (pl.col("stream") == 7)).head(200)
    (lane,) = lanes(about, rank=1, group="streams", level=7)
    shift = about["ranks"][1]["drawn"] - int(about["ranks"][1]["own"])
    lo, hi = int(ops["start_ns"][0]) + shift, int(ops["end_ns"][-1]) + shift
    head, columns = view(known, lane, lo, hi)
    ((_, n, first),) = head["rows"]
    start = first + np.cumsum(columns["start"])
    assert n == 200 and start.tolist() == (ops["start_ns"] + shift).to_list()
    assert columns["dur"].tolist() == (ops["end_ns"] - ops["start_ns"]).to_list()
    assert not columns["busy"].any()


def test_a_wide_view_counts_every_op(known, about, served_job):
    total = api.open(served_job).ops.filter((pl.col("rank") == 1) & (pl.col("stream") == 7)).height
    (lane,) = lanes(about, rank=1, group="streams", level=7)
    _, columns = view(known, lane, 0, about["end"], px=64)
    buckets = columns["busy"] > 0
    assert buckets.any() and len(columns["start"]) <= 128
    # Marks that are shown themselves also count in the bucket in which they begin.
    assert columns["n"][buckets].sum() + (~buckets).sum() >= total
    assert columns["n"][buckets].sum() <= total


@pytest.mark.slow
def test_spans_are_what_the_commands_say(known, about, served_job, capsys):
    chance = random.Random(11)
    for _ in range(6):
        lo = chance.randrange(0, about["end"] - 1000)
        hi = lo + chance.randrange(1000, about["end"] // 3)
        ranks = sorted(chance.sample([r["rank"] for r in about["ranks"]], 2))
        got = known.get("/api/span", params={"from": lo, "to": hi, "ranks": ",".join(map(str, ranks))}).json()
        shift = int(about["ranks"][0]["own"]) - about["ranks"][0]["drawn"]
        given = (
            served_job,
            "--rank",
            ",".join(map(str, ranks)),
            "--start",
            f"@{lo + shift}",
            "--end",
            f"@{hi + shift}",
        )
        parts = cli(capsys, "breakdown", *given)["rows"]
        assert [{k: row[k] for k in ("rank", *got["sum"])} for row in got["ranks"]] == [
            {k: row[k] for k in ("rank", *got["sum"])} for row in parts
        ]
        assert got["sum"] == {key: sum(row[key] for row in parts) for key in got["sum"]}
        assert got["sum"]["window_ns"] == len(ranks) * (hi - lo)
        totals = cli(capsys, "overlap", *given)["summary"]["total"]
        assert got["overlap"] == {key: sum(row[key] for row in totals) for key in got["overlap"]}
        kernels = cli(capsys, "kernels", *given)
        assert got["op_ns"] == sum(t["total_ns"] for t in kernels["summary"]["total"])
        assert got["ops"] == sum(t["n"] for t in kernels["summary"]["total"])
        sums: dict[str, int] = {}
        for row in kernels["rows"]:
            sums[row["name"]] = sums.get(row["name"], 0) + row["total_ns"]
        assert [k["total_ns"] for k in got["kernels"]] == sorted(sums.values(), reverse=True)[: len(got["kernels"])]
        # The command that the page shows prints the same.
        (shown,) = got["commands"]
        assert cli(capsys, *shlex.split(shown)[1:])["rows"] == parts


def test_search_counts_and_finds(known, about, served_job):
    profile = api.open(served_job)
    ids = profile.ops["name"]  # reading them fills the string table
    names = profile.names.gather(ids)
    mine = profile.ops.filter(names.str.contains("flash_bwd"))
    found = known.get("/api/search", params={"q": "FLASH_bwd"}).json()
    assert (found["ops"], found["total_ns"]) == (mine.height, int((mine["end_ns"] - mine["start_ns"]).sum()))
    assert found["count"] == found["ops"] and found["names"][0]["n"] == mine.height
    first = known.get("/api/match", params={"q": "flash_bwd", "k": 0}).json()
    again = known.get("/api/match", params={"q": "flash_bwd", "k": found["count"]}).json()
    last = known.get("/api/match", params={"q": "flash_bwd", "k": -1}).json()
    assert first == again and last["k"] == found["count"] - 1
    own = int(about["ranks"][0]["own"]) - about["ranks"][0]["drawn"]
    assert first["start"] + own == mine["start_ns"].min()
    assert known.get("/api/search", params={"q": "/flash_(fwd|bwd)/"}).json()["count"] > found["count"]
    assert "regular expression" in known.get("/api/search", params={"q": "/[/"}).json()["error"]
    assert known.get("/api/search", params={"q": "no kernel is called so"}).json()["count"] == 0
    # However the pattern is made, it is quick: (a+)+$ takes other engines for ever.
    assert known.get("/api/search", params={"q": "/(a+)+$/"}).status_code == 200


def test_details_lead_to_the_launch_and_to_the_other_ranks(known, about, served_job):
    profile = api.open(served_job)
    (lane,) = lanes(about, rank=1, group="streams", level=7)
    data = known.get("/api/details", params={"lane": lane, "row": 5}).json()
    rows = profile.ops.filter((pl.col("rank") == 1) & (pl.col("stream") == 7))
    launch = profile.calls.filter(pl.col("rank") == 1)[int(rows["launch"][5])]
    facts = {title: value for title, value, _ in data["facts"]}
    assert int(facts["in the queue"]) == max(0, rows["start_ns"][5] - launch["end_ns"][0])
    assert facts["starts"] == str(rows["start_ns"][5]) and "grid" in facts
    (arrow,) = [a for a in data["arrows"] if a["kind"] == "launch"]
    shift = about["ranks"][1]["drawn"] - int(about["ranks"][1]["own"])
    assert arrow["from"] == {"rank": 1, "thread": launch["tid"][0], "at": launch["start_ns"][0] + shift}
    # The call leads back to the op.
    calls = next(i for i in lanes(about, rank=1, group="host") if about["lanes"][i]["label"].endswith("calls"))
    _, columns = view(known, calls, launch["start_ns"][0] + shift, launch["end_ns"][0] + shift)
    back = known.get("/api/details", params={"lane": calls, "row": int(columns["row"][0])}).json()
    assert data["start"] in [a["to"]["at"] for a in back["arrows"]]


def test_a_communication_leads_to_its_other_ranks(known, about):
    found = known.get("/api/match", params={"q": "AllReduce", "k": 0}).json()
    data = known.get("/api/details", params={"lane": found["lane"], "row": found["row"]}).json()
    peers = [a for a in data["arrows"] if a["kind"] == "comm"]
    facts = {title: value for title, value, _ in data["facts"]}
    assert peers and all(a["to"]["rank"] != data["rank"] for a in peers)
    assert facts["communication"] == f"all_reduce of {len(peers) + 1} ranks"


def test_findings_arrive_with_the_culprit(served_job):
    answers = Answers([scene(served_job)])
    known = client(answers)
    waiting = known.get("/api/findings").json()
    assert waiting["ready"] is False and waiting["seconds"] >= 0
    answers._conclude()
    said = known.get("/api/findings").json()
    assert said["ready"] and max(said["late"], key=said["late"].get) == "3"
    assert any(row["where"] for row in said["findings"]["rows"])
    # The page cites the commands that every other front end does.
    cited = [row["command"] for row in said["findings"]["rows"]]
    assert cited == api.open(served_job).diagnose().rows["command"].to_list() and cited
    # All steps as bars, as `run` has them: the mean over ranks.
    steps = api.open(served_job).run(by="step").rows.select("label", "step_ns")
    bars = {row["label"]: row["step_ns"] for row in said["steps"]["rows"]}
    assert bars == {label: round(of["step_ns"].mean()) for (label,), of in steps.group_by("label")} and len(bars) == 2


def test_counters_keep_their_peaks():
    samples = [
        {"device": 0, "name": "SM Active", "start_ns": 10 * k, "value": 90.0 if k == 777 else 5.0} for k in range(5000)
    ]
    made = drawn(ops=[op(0, 50_000)], counters=samples)
    (track,) = [t for t in made.tracks if t.group == "counters"]
    marks = track.view(0, 50_000, 100)
    assert len(marks.start) <= 100 and int(marks.n.max()) == FULL
    at = int(np.argmax(marks.n))
    assert marks.start[at] <= 7770 < marks.end[at]
    assert track.most == 90.0 and track.unit == ""


def test_counters_that_stay_at_nothing_come_last():
    values = [("Pixel Warps", 0.0), ("SM Active", 50.0)]
    samples = [{"device": 0, "name": n, "start_ns": t, "value": v} for n, v in values for t in (0, 5)]
    made = drawn(ops=[op(0, 20, call=1)], calls=[call(0, 1, 1)], counters=samples)
    assert [t.label for t in made.tracks if t.label][-3:] == ["SM Active", "thread 1: calls", "Pixel Warps"]


def test_memory_is_a_counter_in_bytes():
    held = [(5, "memory allocated", 100.0), (5, "memory reserved", 512.0), (9, "memory allocated", 300.0)]
    made = drawn(ops=[op(0, 20)], counters=[{"device": 0, "name": n, "start_ns": t, "value": v} for t, n, v in held])
    rows = [(t.label, t.unit, t.start.tolist(), t.value.tolist()) for t in made.tracks if t.group == "counters"]
    assert rows == [
        ("memory allocated", "bytes", [5, 9], [100.0, 300.0]),
        ("memory reserved", "bytes", [5], [512.0]),
    ]


def test_two_profiles_have_steps_to_align(tmp_path, served_job):
    other = simulated(tmp_path / "other", seed=6)
    known = client(Answers([scene(served_job), scene(other)]))
    one, two = known.get("/api/scene").json()["profiles"]
    assert [s["label"] for s in one["steps"]] == [s["label"] for s in two["steps"]] and len(one["steps"]) == 2
    assert one["steps"][0]["end"] <= one["steps"][1]["end"]
    assert view(known, 0, 0, two["end"], p=1)[0]["rows"][0][1] > 0


def test_a_profile_without_launches_or_ranges_is_drawn():
    made = drawn(ops=[op(5, 10), comm(7, 12)])
    assert {t.group for t in made.tracks} == {"parts", "streams"}
    answer = client(Answers([made])).get("/api/details", params={"lane": 1, "row": 0})
    assert answer.status_code == 200 and answer.json()["arrows"] == []


def test_ranges_that_overlap_lie_on_lines():
    ops = [op(10, 30, call=1), op(20, 40, stream=9, call=2)]
    calls = [call(1, 2, 1), call(6, 7, 2)]
    made = drawn(ops=ops, calls=calls, ranges=[nvtx(0, 4, "a"), nvtx(5, 9, "b")])
    assert [(t.label, t.start.tolist()) for t in made.tracks if t.group == "ranges"] == [
        ("ranges on the GPU", [10]),
        ("", [20]),
    ]


def test_a_query_has_the_rows_of_the_command_and_places(known, about, served_job):
    pytest.importorskip("duckdb", reason="the extra `sql` is not installed")
    query = "SELECT rank, name, start_ns, dur_ns FROM ops WHERE rank = 1 ORDER BY start_ns LIMIT 3"
    data = known.get("/api/sql", params={"q": query}).json()
    rows = api.open(served_job).sql(query).rows
    assert data["columns"] == rows.columns and data["numbers"] == [True, False, True, True]
    assert [row[:2] for row in data["rows"]] == [list(row) for row in rows.select("rank", "name").rows()]
    shift = about["ranks"][1]["drawn"] - int(about["ranks"][1]["own"])
    assert data["places"] == [
        [1, start + shift, start + dur + shift] for start, dur in rows.select("start_ns", "dur_ns").rows()
    ]
    assert shlex.split(data["command"])[:3] == ["stepscope", "sql", str(served_job)]
    refused = known.get("/api/sql", params={"q": "SELECT * FROM nowhere"})
    assert refused.status_code == 422 and "no table nowhere" in refused.text
    assert known.get("/api/sql", params={"q": "COPY ops TO 'x.csv'"}).status_code == 422
    many = known.get("/api/sql", params={"q": "SELECT * FROM ops"}).json()
    assert len(many["rows"]) == 200 and "first-rows" not in many["notes"][-1] and "200 rows" in many["notes"][-1]


def test_the_scene_says_how_to_serve_it_again(known, served_job):
    assert known.get("/api/scene").json()["command"] == shlex.join(["stepscope", "serve", str(served_job)])


def test_metrics_have_their_unit_apart_from_their_name():
    names = ["SMs Active [Throughput %]", "GPC Clock Frequency [MHz]", "Compute Warps in Flight [Avg]", "power"]
    samples = [{"device": 0, "name": name, "start_ns": 0, "value": 1.0} for name in names]
    made = drawn(ops=[op(0, 20)], counters=samples)
    assert [(t.label, t.unit) for t in made.tracks if t.group == "counters"] == [
        ("SMs Active", "%"),
        ("GPC Clock Frequency", "MHz"),
        ("Compute Warps in Flight [Avg]", ""),
        ("power", ""),
    ]


def test_a_kernel_stands_beside_those_of_its_name():
    slow = [op(0, 30, call=1), op(40, 50, call=2), op(60, 70, call=3)]
    calls = [call(1, 2, 1), call(3, 4, 2), call(5, 6, 3)]
    made = drawn(ops=slow, calls=calls)
    lane = next(i for i, track in enumerate(made.tracks) if track.group == "streams")
    data = client(Answers([made])).get("/api/details", params={"lane": lane, "row": 0}).json()
    facts = {title: value for title, value, _ in data["facts"]}
    assert facts["same name on this rank"] == "3 times, median 10 ns"
