"""Captures of one job over time: figures are those of the commands, and findings come and go as faults do."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepscope import api
from stepscope.api.trending import over
from stepscope.cli.main import run
from stepscope.errors import BadInput
from stepscope.simulate.job.scenario import Scenario
from stepscope.simulate.run import simulate_to

JOB = {"pp": 1, "ep": 1, "dp": 2, "layers": 2, "micro_batches": 2, "steps": 3}
#: In the second week a rank is slow, in the third it is mended.
WEEKS = {"week9": (), "week10": ("straggler:rank=1,factor=1.6",), "week11": ()}


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("captures")
    for seed, (name, faults) in enumerate(WEEKS.items()):
        simulate_to(Scenario(**JOB, seed=seed, faults=faults), root / name, ("nsys",))
    return root


@pytest.fixture(scope="module")
def trend(captures):
    return over(captures, cache=False)


def test_figures_are_those_of_the_commands_in_the_order_of_the_names(captures, trend):
    assert [one.name for one in trend.captures] == list(WEEKS)  # week9 before week10
    for one in trend.captures:
        rows = api.open(captures / one.name, cache=False).breakdown().rows
        assert (one.step_ns, one.exposed_ns) == (rows["window_ns"].mean(), rows["comm_exposed_ns"].mean())
        assert one.idle_ns == rows["idle_ns"].mean() and one.ranks == 2


def test_a_finding_comes_and_goes_with_its_fault(trend):
    gains = {key: [ns is not None for ns in found] for key, _, found in trend.findings()}
    assert gains["straggler"] == [False, True, False]
    before, after = trend.changes()
    assert before.startswith("week9 → week10: new: ") and "straggler" in before
    assert after.startswith("week10 → week11: ") and "straggler" in after.partition("gone: ")[2]


def test_the_page_and_the_text(captures, tmp_path, capsys):
    page = tmp_path / "trend.html"
    assert run(["report", "--over", str(captures), "-o", str(page), "--no-cache"]) == 0
    text = page.read_text("utf-8")
    assert "3 captures over time" in text and text.count("<svg") >= 3 and 'class="came"' in text and ">gone<" in text
    assert "http" not in text.replace("http-equiv", "")
    assert "<p>The step went from " in text and "-0.0 %" not in text and "; the longest was " in text
    assert "by default; without a value: MFU." in text and ">MFU<" not in text
    capsys.readouterr()
    assert run(["report", "--over", *(str(captures / name) for name in WEEKS), "--no-cache"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("### stepscope: 3 captures over time") and "week9 → week10: new" in said.replace("\\", "")
    assert "`straggler` |" in said and "MFU |" not in said and "without a value: MFU" in said


def test_what_the_first_capture_has_did_not_come(captures, tmp_path):
    page = tmp_path / "trend.html"
    assert run(["report", "--over", *(str(captures / f"week{n}") for n in (10, 11)), "-o", str(page)]) == 0
    text = page.read_text("utf-8")
    assert ">gone<" in text
    for row in text.split('<td class="title">')[1:]:
        assert not row.split("</code></td>")[1].startswith('<td class="came">')


def test_what_is_not_a_trend_is_refused(captures, capsys):
    with pytest.raises(BadInput, match="two captures or more"):
        over(captures / "week9", cache=False)
    assert run(["report", "--over", str(captures), "--rank", "0"]) == 2
    assert "--over takes no --rank" in capsys.readouterr().err


def test_a_capture_that_cannot_be_read_is_said(captures, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "trace.json").write_text("{not json", "utf-8")
    found = over(tmp_path / "a" / "trace.json", captures / "week9", cache=False)
    assert [one.name for one in found.captures] == ["week9"] and [one.name for one in found.unread] == ["trace.json"]
