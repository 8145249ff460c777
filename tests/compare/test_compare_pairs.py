"""200 pairs of runs with no change, and 200 with one of 3 %: what is claimed. `make reliability` does it through files.

Runs are simulated once and paired several times, which keeps it quick; every one is written and read as a file.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from pairs import scenario, side, true_change, write
from stepscope.cli.main import run
from stepscope.compare.compare import compare

BASES, CHANGED = 40, 20


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pairs")


@pytest.fixture(scope="module")
def runs(folder: Path):
    """Measured runs without and with the change, and how large the change truly is."""
    files = {False: [folder / f"base{i}.sqlite" for i in range(BASES)]}
    files[True] = [folder / f"changed{i}.sqlite" for i in range(CHANGED)]
    truth = {
        changed: [write(scenario(i + 1000 * changed, changed), file) for i, file in enumerate(listed)]
        for changed, listed in files.items()
    }
    sides = {changed: [side(file) for file in listed] for changed, listed in files.items()}
    return sides[False], sides[True], true_change(truth[False], truth[True])


def said(base, new) -> str:
    return compare(base, new).summary["verdict"]


@pytest.mark.slow
def test_no_change_is_rarely_called_one(runs):
    base, _, _ = runs
    verdicts = Counter(said(base[i], base[(i + k) % BASES]) for k in (1, 2, 3, 5, 7) for i in range(BASES))
    assert verdicts.total() == 200
    assert verdicts["faster"] + verdicts["slower"] <= 10, verdicts
    assert verdicts["no difference"] >= 180, verdicts


@pytest.mark.slow
def test_three_percent_are_found(runs):
    base, changed, truth = runs
    assert 0.028 < truth < 0.033
    verdicts = Counter(said(base[i], changed[(i + k) % CHANGED]) for k in range(5) for i in range(BASES))
    assert verdicts.total() == 200
    assert verdicts["slower"] >= 180, verdicts


@pytest.mark.slow
def test_the_change_found_is_the_true_one(runs):
    base, changed, truth = runs
    for a, b in zip(base, changed, strict=False):
        step = compare(a, b).summary["step"]
        assert step["low_change_pct"] - 0.3 < 100 * truth < step["high_change_pct"] + 0.3
        assert step["change_pct"] == pytest.approx(100 * truth, abs=1.0)


@pytest.mark.slow
@pytest.mark.parametrize("i", range(3))
def test_the_same_by_the_command_line(runs, folder, i, capfd):
    assert run(["compare", f"{folder}/base{i}.sqlite", "--to", f"{folder}/changed{i}.sqlite", "--format", "json"]) == 0
    answer = json.loads(capfd.readouterr().out)
    assert answer["command"] == "compare"
    assert answer["summary"]["verdict"] == "slower"
    assert answer["summary"]["step"] == compare(runs[0][i], runs[1][i]).summary["step"]
    assert sum(r["diff_ns"] for r in answer["rows"]) == answer["summary"]["step"]["diff_ns"]


def test_one_side_is_compiled(shared, capsys):
    base, new = (str(shared / "traces" / "h200" / "hf" / f"hf1_{name}.sqlite") for name in ("healthy", "compiled"))
    assert run(["compare", base, "--to", new, "--format", "json"]) == 0
    assert "torch.compile changed from no to yes" in json.loads(capsys.readouterr().out)["summary"]["statement"]
