"""Torch ops and Python functions as rows: a stack per thread, their facts, and arrows to what they launched."""

from __future__ import annotations

import numpy as np
import pytest
from serving import client

from fake import FakeSource, call, op
from stepscope import api
from stepscope.timeline.kinds import MARKS
from stepscope.web.answers import Answers
from stepscope.web.scene import scene_of


def ran(start: int, end: int, name: str, kind: str = "cpu_op", tid: int = 1, **more: object) -> dict[str, object]:
    return {"start_ns": start, "end_ns": end, "name": name, "kind": kind, "tid": tid, **more}


@pytest.fixture(scope="module")
def drawn():
    host = [
        ran(0, 100, "train.py(9): forward", "python"),
        ran(10, 60, "aten::linear"),
        ran(20, 50, "aten::addmm", shapes="[[4, 8]]", sequence=7),
        ran(70, 90, "aten::add"),
        ran(5, 15, "aten::copy_", tid=2),
    ]
    calls = [call(30, 35, 1), call(75, 80, 2), call(36, 38, 3, tid=2)]
    ops = [op(40, 140, "gemm", call=1), op(140, 160, "add", call=2), op(160, 170, "copy", call=3)]
    return scene_of(api.Profile([FakeSource({"ops": ops, "calls": calls, "host": host})]), ("trace.json",))


def stack(scene):
    """By row of functions: thread, label, names."""
    rows = [t for t in scene.tracks if t.group == "functions"]
    return [(t.level, t.label, scene.texts.gather(t.name).to_list()) for t in rows]


def test_a_stack_per_thread(drawn):
    assert stack(drawn) == [
        (1, "thread 1: torch ops, Python functions", ["train.py(9): forward"]),
        (1, "", ["aten::linear", "aten::add"]),
        (1, "", ["aten::addmm"]),
        (2, "thread 2: torch ops", ["aten::copy_"]),
    ]
    first, second = [t for t in drawn.tracks if t.group == "functions"][:2]
    assert first.kinds[first.family].tolist() == [MARKS.index("python")]
    assert second.kinds[second.family].tolist() == 2 * [MARKS.index("torch")]


def details(scene, name, group="functions"):
    lane, row = next(
        (i, int(np.flatnonzero(scene.texts.gather(t.name).to_numpy() == name)[0]))
        for i, t in enumerate(scene.tracks)
        if t.group == group and name in scene.texts.gather(t.name).to_list()
    )
    data = client(Answers([scene])).get("/api/details", params={"lane": lane, "row": row}).json()
    return {title: text for title, text, _ in data["facts"]}, data["arrows"]


def test_arrows_lead_to_what_it_or_its_callees_launched(drawn):
    """What another thread launched meanwhile is not its work."""
    for name, starts, told in (
        ("aten::addmm", [40], "1 op, 100 ns of work"),
        ("aten::linear", [40], "1 op, 100 ns of work"),
        ("train.py(9): forward", [40, 140], "2 ops, 120 ns of work"),
        ("aten::copy_", [], "0 ops"),
    ):
        facts, arrows = details(drawn, name)
        assert [a["to"]["at"] for a in arrows] == starts and facts["launched"] == told


def test_a_kernel_names_its_torch_op(drawn):
    assert details(drawn, "gemm", "streams")[0]["torch op"] == "aten::addmm"
    assert "torch op" not in details(drawn, "copy", "streams")[0]  # launched when no op of the thread ran


def test_facts_of_a_torch_op(drawn):
    facts, _ = details(drawn, "aten::addmm")
    assert facts["what"] == "torch op, thread 1"
    assert (facts["shapes"], facts["autograd sequence number"]) == ("[[4, 8]]", "7")
    assert details(drawn, "train.py(9): forward")[0]["what"] == "Python function, thread 1"


def test_search_finds_them(drawn):
    found = client(Answers([drawn])).get("/api/search", params={"q": "aten::"}).json()
    assert (found["count"], found["ops"], found["total_ns"]) == (4, 0, 0)


def test_rows_hold_every_function_once_and_none_overlap():
    """On random times, which need not nest."""
    chance = np.random.default_rng(4)
    start = np.sort(chance.integers(0, 10_000, 300)).tolist()
    lengths, threads = chance.integers(1, 400, 300).tolist(), chance.integers(1, 4, 300).tolist()
    host = [ran(s, s + n, f"f{s}", "python", t) for s, n, t in zip(start, lengths, threads, strict=True)]
    made = scene_of(api.Profile([FakeSource({"ops": [op(0, 10)], "host": host})]), ("x",))
    rows = [t for t in made.tracks if t.group == "functions"]
    assert sorted(int(r) for t in rows for r in t.row) == list(range(300))
    assert all((t.end[:-1] <= t.start[1:]).all() for t in rows)
