"""Titles and advice stand in tables; every use is filled in, and every text used."""

from __future__ import annotations

import ast
import string
from collections.abc import Iterator
from pathlib import Path

import stepscope
from stepscope.findings.registry import DETECTORS
from stepscope.findings.texts import ADVICE, TITLES

TABLES = {"title": TITLES, "advice": ADVICE}


def uses() -> Iterator[tuple[str, str, ast.Call]]:
    """Where a text is used, from which table."""
    root = Path(stepscope.__file__).parent / "findings"
    for file in sorted(root.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in TABLES:
                yield f"{file.name}:{node.lineno}", node.func.id, node


def test_every_text_is_used_and_filled_in() -> None:
    said: dict[str, set[str]] = {name: set() for name in TABLES}
    for where, table, call in uses():
        keys = _keys(call, table)
        assert keys, where
        said[table] |= keys
        asked = {name for key in keys for _, name, _, _ in string.Formatter().parse(TABLES[table][key]) if name}
        assert {word.arg for word in call.keywords} == asked, where
    assert said == {name: set(table) for name, table in TABLES.items()}


def _keys(call: ast.Call, table: str) -> set[str]:
    """The texts that a call may take: one, or all of a kind (`f"host-sync/{kind}"`)."""
    (key,) = call.args
    shown = key.values[0] if isinstance(key, ast.JoinedStr) else key
    name = shown.value if isinstance(shown, ast.Constant) and isinstance(shown.value, str) else ""
    if isinstance(key, ast.JoinedStr):
        return {text for text in TABLES[table] if name.endswith("/") and text.startswith(name)}
    return {name} & set(TABLES[table])


def test_texts_are_of_detectors() -> None:
    assert {key.partition("/")[0] for table in TABLES.values() for key in table} <= set(DETECTORS)
