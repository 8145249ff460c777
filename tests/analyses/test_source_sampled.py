"""`source` of captures without a stack at every launch: Python samples, and torch ops that torch writes as ranges."""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from contextlib import closing

import numpy as np
import pytest

import stepscope
from fake import Row, call, make, nvtx, op
from stepscope import api
from stepscope.errors import CannotAnswer

MODEL, TRAIN, AUTOGRAD = "/me/model.py", "/me/train.py", "/v/site-packages/torch/autograd/graph.py"


def chain(number: int, *frames: tuple[str, str, int]) -> list[Row]:
    """Given outermost first."""
    return [
        {"chain": number, "depth": depth, "name": name, "file": file, "line": line}
        for depth, (name, file, line) in enumerate(reversed(frames))
    ]


def sample(at: int, number: int, tid: int = 1) -> Row:
    return {"start_ns": at, "tid": tid, "kind": "python", "name": "f", "file": None, "chain": number}


STEP = ("step", TRAIN, 20)
STACKS = [
    *chain(-1, STEP, ("forward", MODEL, 5)),
    *chain(-2, STEP, ("forward", MODEL, 8)),
    *chain(-3, ("step", TRAIN, 22), ("backward", AUTOGRAD, 90)),
    *chain(-4, ("step", TRAIN, 24)),
    *chain(-9, ("worker", "/me/data.py", 3)),
]
#: Thread 1 runs Python, thread 5 the autograd engine, thread 9 loads data.
SAMPLES = [sample(10, -1), sample(30, -2), sample(50, -3), sample(70, -3), sample(90, -4)]
SAMPLES += [sample(t, -9, 9) for t in (1, 55, 95)]
CALLS = [call(15, 16, 1), call(35, 36, 2), call(60, 61, 3, tid=5), call(80, 81, 4), call(95, 96, 5)]
OPS = [op(100 * n, 100 * n + n, f"k{n}", call=n) for n in range(1, 6)]


def functions(profile, **options) -> dict[str, tuple[str, str | None, str, int]]:
    result = api.analyse(profile, "source", whole=True, **options)
    return {r["kernel"]: (r["function"], r["op"], r["phase"], r["inferred_ns"]) for r in result.rows.to_dicts()}


def test_launches_between_two_samples():
    found = functions(make(calls=CALLS, ops=OPS, stacks=STACKS, samples=SAMPLES))
    assert found == {
        "k1": ("/me/model.py(5-8): forward", None, "other", 1),
        "k2": ("/me/train.py(20-22): step", None, "other", 2),
        # Of the thread that is in torch's autograd then, though another has Python stacks, too.
        "k3": ("/me/train.py(22): step", None, "other", 3),
        "k4": ("/me/train.py(22-24): step", None, "other", 4),
        "k5": ("(no frame)", None, "other", 0),  # nothing was taken after it
    }


def test_torch_ranges_name_ops_and_link_backward_with_forward():
    ranges = [
        nvtx(12, 20, "aten::linear, seq = 7, op_id = 1, sizes = [[2]]"),
        nvtx(13, 18, "aten::addmm, seq = 7, op_id = 2"),
        nvtx(58, 66, "autograd::engine::evaluate_function: AddmmBackward0, op_id = 3", tid=5),
        nvtx(59, 65, "AddmmBackward0, seq = 7, op_id = 4", tid=5),
    ]
    found = functions(make(calls=CALLS, ops=OPS, stacks=STACKS, samples=SAMPLES, ranges=ranges))
    assert found["k1"] == ("/me/model.py(5-8): forward", "aten::linear", "forward", 1)
    assert found["k3"] == ("/me/model.py(5-8): forward", "AddmmBackward0", "backward", 3)
    total = api.analyse(
        make(calls=CALLS, ops=OPS, stacks=STACKS, samples=SAMPLES, ranges=ranges), "source", whole=True
    ).summary["total"][0]
    assert (total["total_ns"], total["credited_ns"], total["by_forward_ns"], total["inferred_ns"]) == (15, 10, 3, 10)


def test_a_stack_taken_in_the_same_torch_op_is_that_of_all_its_launches():
    calls = [call(11, 12, 9) | {"python_chain": -2}, *CALLS]
    ranges = [nvtx(11, 20, "aten::linear, seq = 7, op_id = 1")]
    found = functions(make(calls=calls, ops=OPS, stacks=STACKS, samples=SAMPLES, ranges=ranges))
    assert found["k1"] == ("/me/model.py(8): forward", "aten::linear", "forward", 1)


def test_two_forward_threads_with_the_same_number_are_no_link():
    ranges = [
        nvtx(12, 20, "aten::linear, seq = 7, op_id = 1"),
        nvtx(12, 20, "aten::linear, seq = 7, op_id = 1", tid=2),
        nvtx(59, 65, "AddmmBackward0, seq = 7, op_id = 4", tid=5),
    ]
    found = functions(make(calls=CALLS, ops=OPS, stacks=STACKS, samples=SAMPLES, ranges=ranges))
    assert found["k3"] == ("/me/train.py(22): step", "AddmmBackward0", "backward", 3)


def test_without_stacks_torch_ranges_answer_by_op():
    profile = make(calls=CALLS, ops=OPS, ranges=[nvtx(12, 20, "aten::linear, seq = 7, op_id = 1")])
    with pytest.raises(CannotAnswer, match="--by op"):
        api.analyse(profile, "source", whole=True)
    found = api.analyse(profile, "source", whole=True, by="op").rows.select("op", "total_ns").rows()
    assert found == [(None, 14), ("aten::linear", 1)]


def of_user(path: str) -> bool:
    package = path.partition("site-packages/")[2]
    return not package.startswith(("torch/", "triton/")) if package else "/lib/python3" not in path


@pytest.mark.slow
def test_a_rich_capture_against_its_raw_marks(shared):
    """Every launch of the main thread in the step, looked up among the raw JSON of the samples in the plainest way."""
    file = shared / "traces/h200/hf/hf1_rich.sqlite"
    profile = stepscope.open(file, cache=False)
    result = profile.source(by="function")
    window = result.window[0]
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as db:
        text = dict(db.execute("SELECT id, value FROM StringIds"))
        marks = [
            (at, [(text[f["Function"]], text[f["File"]], f["Line"]) for f in reversed(body["Frames"])])
            for at, (body,) in (
                (at, json.loads(raw).values())
                for at, raw in db.execute(
                    "SELECT start, jsonText FROM NVTX_EVENTS WHERE eventType = 34 AND start >= 0 AND jsonText IS NOT "
                    "NULL AND globalTid & 0xFFFFFF = 3059 ORDER BY start"
                )
            )
        ]
        torch = np.array(
            db.execute(
                "SELECT start, end FROM NVTX_EVENTS WHERE globalTid & 0xFFFFFF = 3059 AND text LIKE '%, op_id = %'"
            ).fetchall()
        )
        ops = [
            row
            for kind in ("KERNEL", "MEMCPY", "MEMSET")
            for row in db.execute(
                f"SELECT min(r.start), k.end - k.start FROM CUPTI_ACTIVITY_KIND_{kind} k "
                "JOIN CUPTI_ACTIVITY_KIND_RUNTIME r USING (correlationId) WHERE r.globalTid & 0xFFFFFF = 3059 "
                "GROUP BY k.rowid HAVING min(r.start) >= ? AND min(r.start) < ?",
                (window["cpu_start_ns"], window["cpu_end_ns"]),
            )
        ]
    wanted: dict[str, int] = defaultdict(int)
    for at, ns in ops:
        before = [m for m in marks if m[0] <= at][-1][1]
        after = next(m for m in marks if m[0] > at)[1]
        around = torch[(torch[:, 0] <= at) & (torch[:, 1] > at)]
        inside = [m for m in marks if len(around) and around[:, 0].min() <= m[0] < around[:, 1].max()]
        if inside:  # Python stands still within a torch op
            before = after = inside[0][1]
        mine: str | None = None
        for (name, path, line), (other, other_path, other_line) in zip(before, after, strict=False):
            if (name, path) != (other, other_path):
                break
            if of_user(path):
                mine = f"{path.rpartition('site-packages/')[2]}: {name}"
            if line != other_line:
                break
        wanted[mine or "(no frame)"] += ns
    assert len(ops) > 1000 and len(marks) == 715
    found: dict[str, int] = defaultdict(int)
    for r in result.rows.to_dicts():
        if r["phase"] != "backward":
            found[r["function"]] += r["total_ns"]
    heavy = {k: v for k, v in wanted.items() if v > 100_000}
    assert heavy and {k: found[k] for k in heavy} == heavy
    total = result.summary["total"][0]
    assert total["credited_pct"] > 99 and total["by_forward_ns"] > 0.6 * total["total_ns"]
