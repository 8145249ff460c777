"""The report's section on memory: of a trace with memory events, or of snapshots beside a trace."""

from __future__ import annotations

from pathlib import Path

import pytest

from fake import call, make, nvtx, op
from stepscope import api
from stepscope.cli.main import run
from stepscope.render.report_markdown import to_markdown
from stepscope.report import Asker, gather
from stepscope.report.sections.memory import KINDS

DATA = Path(__file__).parents[1] / "data" / "h200" / "memory"
SNAPSHOT = DATA / "llama_b4.snapshot.pickle.gz"


def asker(**more) -> Asker:
    profile = make(
        ops=[op(10, 30, call=1), op(40, 60, call=2)],
        calls=[call(1, 2, 1), call(3, 4, 2)],
        ranges=[nvtx(0, 5, "step 0"), nvtx(6, 9, "step 1")],
    )
    return Asker(lambda name, **options: api.analyse(profile, name, **options), ("x.sqlite",), **more)


def of_snapshot() -> Asker:
    held = api.open(SNAPSHOT, cache=False)
    return Asker(lambda name, **options: api.analyse(held, name, **options), (str(SNAPSHOT),))


def test_snapshots_beside_a_trace():
    report = gather(asker(of_memory=of_snapshot()), "report", drawn=False)
    (part,) = [p for p in report.parts if p.id == "memory"]
    (device,) = part.data["devices"]
    assert sum(held for *_, held in device["parts"]) == device["reserved_bytes"]
    assert {name for name, *_ in device["parts"]} <= set(KINDS)
    time = part.data["time"]
    assert all(len(values) == len(time["reserved"]) for *_, values in time["parts"])
    assert part.command == f"stepscope memory {SNAPSHOT}"
    assert part.data["statement"] in to_markdown(report)


def test_without_a_record_it_is_missing_with_the_reason():
    report = gather(asker(), "report", drawn=False)
    assert not [p for p in report.parts if p.id == "memory"]
    (why,) = [m.why for m in report.missing if m.title == "Memory"]
    assert "--with memory" in why


def test_pictures(tmp_path, capsys):
    assert run(["memory", str(SNAPSHOT), "--no-cache", "--by", "time", "-o", str(tmp_path / "m.svg")]) == 0
    svg = (tmp_path / "m.svg").read_text("utf-8")
    assert svg.count("<polygon") == 6 and "optimizer states" in svg  # no buckets, no KV cache
    assert run(["memory", str(SNAPSHOT), "--no-cache", "--by", "time", "--plot"]) == 0
    drawn = [line.split("│")[1] for line in capsys.readouterr().out.splitlines() if "│" in line]
    assert len(drawn) == 16
    # At the peak 86 % of the highest line are given out: the letters reach the third line from the top, not the first.
    assert set(drawn[0]) <= {" ", "·"} and "T" in drawn[2]
    assert set(drawn[-1]) == {"W"}


@pytest.mark.parametrize("options", [["--plot"], ["-o", "m.svg"]])
def test_a_picture_needs_time(options, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(["memory", str(SNAPSHOT), "--no-cache", *options]) == 2
    assert "--by time" in capsys.readouterr().err
