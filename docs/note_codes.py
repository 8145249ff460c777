"""The notes that the code can make, read from its source: for docs/notes.md, and to test that codes mean one thing."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class NoteCode:
    """One place that makes a note."""

    code: str
    severity: str
    origin: str
    text: str
    file: str


def note_codes(root: Path) -> Iterator[NoteCode]:
    """Every `Note("code", text, …)` below `root`, in the order of files."""
    for file in sorted(root.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Note":
                yield _read(node, str(file.relative_to(root)))


def _read(call: ast.Call, file: str) -> NoteCode:
    code, text = call.args[:2]
    assert isinstance(code, ast.Constant), f"{file}:{call.lineno}: a code is a literal"
    words = {k.arg: k.value.value for k in call.keywords if isinstance(k.value, ast.Constant)}
    severity, origin = words.get("severity", "info"), words.get("origin", "analysis")
    return NoteCode(str(code.value), str(severity), str(origin), " ".join(_text(text).split()), file)


def _text(node: ast.expr) -> str:
    """The text with `…` for what is filled in."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _text(node.left) + _text(node.right)
    return "…"
