"""The notebook of the documentation runs, and shows what its committed outputs show."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).parent.parent / "docs"


@pytest.fixture(scope="module")
def runner() -> ModuleType:
    spec = importlib.util.spec_from_file_location("run_notebook", DOCS / "run_notebook.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def shown(notebook: str) -> list[tuple[str, list[str]]]:
    """Of every output, its kind and the columns of its tables: figures are the simulator's business."""
    outputs = [o for cell in json.loads(notebook)["cells"] for o in cell.get("outputs", ())]
    return [(" ".join(o.get("data", o)), re.findall(r"<th[^>]*>(.*?)</th>", json.dumps(o))) for o in outputs]


def test_it_runs_and_its_outputs_are_fresh(runner):
    ran = runner.executed()
    assert shown(ran) == shown((DOCS / "notebook.ipynb").read_text("utf-8")), "run `make docs`"
    # What the simulated fault is: the answers must say it.
    assert "rank 3 computes 1.3" in ran and "Rank 3 is last in" in ran
    assert "the gate failed: step: +" in ran


def test_it_says_what_a_failing_cell_says(runner, tmp_path, monkeypatch):
    cell = {"cell_type": "code", "source": ["1 / 0"], "outputs": []}
    (tmp_path / "bad.ipynb").write_text(json.dumps({"cells": [cell]}))
    monkeypatch.setattr(runner, "FILE", tmp_path / "bad.ipynb")
    with pytest.raises(ZeroDivisionError):
        runner.executed()
