"""Columns are a promise here too: within stepscope/1 they are only ever added. `--update-golden` records additions."""

from __future__ import annotations

import json
from pathlib import Path

from fake import make
from stepscope.errors import BadInput, CannotAnswer
from stepscope.nsys import recipes

PINNED = Path(__file__).resolve().parents[2] / "golden" / "recipe_columns.json"
_SAMPLES = [
    {"start_ns": 1, "name": name, "value": 1.0, "device": 0} for name in ("SMs Active", "NVLink TX", "NIC Bytes sent")
]


def current(*profiles) -> dict[str, dict[str, list[str]]]:
    """Columns by recipe and table, of the first profile that can answer; matrices have a column per rank."""
    found: dict[str, dict[str, list[str]]] = {}
    for name in recipes.recipes():
        for profile in profiles:
            try:
                tables = recipes.run(profile, name).tables
            except (CannotAnswer, BadInput):
                continue
            found[name] = {k: t.columns for k, t in tables.items() if not k.startswith("pace_")}
            break
    return dict(sorted(found.items()))


def test_columns_of_recipes_are_only_added(request, payloads, other):
    now = current(payloads, other, make(counters=_SAMPLES))
    assert set(now) == set(recipes.recipes()) - {"diff"}
    pinned = json.loads(PINNED.read_text("utf-8")) if PINNED.exists() else {}
    for name, tables in pinned.items():
        for table, columns in tables.items():
            assert [c for c in now[name][table] if c in columns] == columns, f"{name} {table}: removed or reordered"
    if request.config.getoption("--update-golden"):
        PINNED.write_text(json.dumps(now, indent=1) + "\n", "utf-8")
    else:
        assert now == pinned, "columns were added: record them with `pytest tests/recipes --update-golden`"
