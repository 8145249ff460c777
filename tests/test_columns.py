"""Columns are a promise: within stepscope/1 they are only ever added. `pytest --update-golden` records additions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stepscope import api, questions
from stepscope.compare.columns import VARIANTS as COMPARE
from stepscope.compare.gate import Row as GateRow
from stepscope.model import profile as model
from stepscope.model.result import names

GOLDEN = Path(__file__).parent / "golden" / "columns.json"


def current() -> dict[str, list[str]]:
    """Columns by command, and by command and variant."""
    found: dict[str, list[str]] = {}
    for name in questions.names():
        analysis = questions.get(name)
        found[name] = [c.name for c in analysis.columns]
        found |= {f"{name} {variant}": [c.name for c in columns] for variant, columns in analysis.variants.items()}
    found |= {f"compare by={by}": names(row) for by, row in COMPARE.items()}
    found["gate"] = names(GateRow)
    return dict(sorted(found.items()))


def test_columns_are_only_added(request: pytest.FixtureRequest):
    pinned: dict[str, list[str]] = json.loads(GOLDEN.read_text("utf-8"))
    now = current()
    for name, columns in pinned.items():
        assert name in now, f"{name}: gone, but promised"
        kept = [c for c in now[name] if c in columns]
        assert kept == columns, f"{name}: columns removed or reordered"
    if request.config.getoption("--update-golden"):
        GOLDEN.write_text(json.dumps(now, indent=1) + "\n", "utf-8")
    else:
        assert now == pinned, "columns were added: record them with `pytest tests/test_columns.py --update-golden`"


@pytest.mark.parametrize("name", questions.names())
def test_an_analysis_describes_itself(name):
    analysis = questions.get(name)
    assert analysis.question and len(analysis.question) <= 110
    assert questions.question(name) == analysis.question
    assert all(column.doc for column in analysis.columns)
    assert all(option.help for option in analysis.options), "every option needs a help text"
    taken = {*api.RESERVED, "format", "output", "no_cache", "nsys", "taxonomy", "labels", "profile"}
    assert not taken & {o.name for o in analysis.options}
    assert not hasattr(model.Profile, name.replace("-", "_")), "a table of the profile has that name"
