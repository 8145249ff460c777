"""`stepscope.annotate.items`: exact ranges and log lines, nothing where nobody listens, and a real run that is read."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from test_annotate import NSYS, RECORD, python

from stepscope import api
from stepscope.cli.main import run

PROGRAM = Path(__file__).parent / "programs" / "two_stages.py"

ITEM = """
def item(k):
    with items.stage0(k): pass
    items.sent(k)
    with items.decode(k): pass
    items.emitted(k, tokens=64)
    with items.stage1(k): pass
"""


def test_ranges_in_the_profiled_step_and_a_log_of_all(tmp_path):
    code = (
        RECORD
        + "from stepscope.annotate import items\n"
        + ITEM
        + "items.log('elsewhere', queue_in=3, queue_out=1)\n"
        + "for n in range(4):\n    with annotate.step(n): item(n)\n"
        + "print('|'.join(said))"
    )
    said = [s for s in python(code, tmp_path, RANK="5", **NSYS).strip().split("|") if s != "pop"]
    assert said == [
        "START stepscope.capture", "step 2", "pp:queue_depth_in=3", "pp:queue_depth_out=1", "pp:stage0:A k=2",
        "pp:send k=2", "pp:stage0:decode k=2", "pp:emit k=2 tokens=64", "pp:stage1:B k=2", "END",
    ]  # fmt: skip
    assert not (tmp_path / "elsewhere").exists()  # beside the capture, not where the program runs
    header, *logged = [json.loads(line) for line in (tmp_path / "items" / "rank5.jsonl").read_text().splitlines()]
    assert header == {"unit": "ns", "rank": 5, "queue_depth_in": 3, "queue_depth_out": 1}
    fields = [("tA0", "tA1"), ("tSend",), ("tRecv", "tDecode"), ("tEmit", "tokens"), ("tB0", "tB1")]
    assert [tuple(line) for line in logged] == [("k", *names) for _ in range(4) for names in fields]
    times = [line[name] for line in logged for name in line if name.startswith("t") and name != "tokens"]
    assert times == sorted(times)


def test_nothing_where_nobody_listens(tmp_path):
    code = (
        RECORD + "from stepscope.annotate import items\n" + ITEM + "item(0)\nprint(items.stage0(1) is items.stage1(2))"
    )
    assert python(code, tmp_path, STEPSCOPE_CAPTURE_OUT="").strip() == "True"
    assert list(tmp_path.iterdir()) == []


def test_what_fails_is_not_logged(tmp_path):
    code = RECORD + (
        "from stepscope.annotate import items\nitems.log('log')\n"
        "try:\n    with items.stage0(0): raise ValueError\nexcept ValueError: print('raised')"
    )
    assert python(code, tmp_path, STEPSCOPE_CAPTURE_OUT="").strip() == "raised"
    assert len((tmp_path / "log" / "rank0.jsonl").read_text().splitlines()) == 1


def test_a_real_run_of_two_processes(tmp_path, capsys):
    python(f"import runpy, sys; sys.argv[1:] = ['log']; runpy.run_path({str(PROGRAM)!r}, run_name='__main__')",
           tmp_path, STEPSCOPE_CAPTURE_OUT="")  # fmt: skip
    result = api.open(tmp_path / "log", cache=False).pipeline(warmup=3)
    assert result.rows["k"].to_list() == list(range(12)) and result.summary["chunks"] == 9
    assert result.rows["stage1_ns"].min() >= 20_000_000 and result.rows["decode_ns"].min() >= 4_000_000
    assert (result.rows["stage0_ns"] - result.rows["decode_ns"]).min() >= 4_000_000
    assert result.rows["mesh_idle_ns"].to_list()[1:] == [ns for ns in result.rows["mesh_idle_ns"][1:] if ns >= 0]
    summary = result.summary
    assert (summary["queue_depth_in"], summary["queue_depth_out"]) == (2, 1)
    lines = [json.loads(line) for line in (tmp_path / "log" / "rank0.jsonl").read_text().splitlines()]
    emits = [line["tEmit"] for line in lines if "tEmit" in line]
    assert abs(summary["items_per_s"] - 1e9 * 9 / (emits[-1] - emits[2])) < 1e-6
    assert abs(summary["tokens_per_s"] / summary["items_per_s"] - 100) < 1e-6
    assert run(["pipeline", str(tmp_path / "log"), "--no-cache"]) == 0
    assert "at queue depth 2 in and 1 out" in " ".join(capsys.readouterr().out.split())


def test_capture_run_keeps_the_log(tmp_path, nsys, train, capsys):
    nsys(after="")
    train()  # its PYTHONPATH
    command = ["--trigger", "none", "-o", str(tmp_path / "cap"), "--yes", "--", sys.executable, str(PROGRAM)]
    run(["capture", "run", "--no-doctor", *command])
    capsys.readouterr()
    assert (tmp_path / "cap").exists(), capsys.readouterr()
    assert sorted(p.name for p in (tmp_path / "cap" / "items").iterdir()) == ["rank0.jsonl", "rank1.jsonl"]
    assert run(["pipeline", str(tmp_path / "cap" / "items"), "--no-cache", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["summary"]["chunks"] == 11
