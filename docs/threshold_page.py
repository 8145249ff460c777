"""Thresholds: every number on which a verdict turns, found where it is declared; the text of thresholds.md."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import stepscope
from stepscope.model.threshold import Threshold

ROOT = Path(stepscope.__file__).parent
PAGES = Path(__file__).parent
#: Headings, in order, and the packages and rooms whose thresholds stand below each.
_HEADINGS = (
    ("What `diagnose` judges by", ("findings",)),
    ("What one question judges by", ("analyses", "api", "hang")),
    ("What several questions judge by", ("derive",)),
    ("What `compare` and `gate` judge by", ("compare", "statistics")),
    ("What `capture verify` judges by", ("verify",)),
    ("What counts as recorded", ("model",)),
)


def declared() -> Iterator[tuple[str, str, Threshold]]:
    """Path of the module, name and threshold, in order of the files: every `NAME = Threshold(…)` of the package."""
    for file in sorted(ROOT.rglob("*.py")):
        text = file.read_text("utf-8")
        if "= Threshold(" not in text:
            continue
        parts = file.relative_to(ROOT).with_suffix("").parts
        module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        names = [
            node.targets[0].id
            for node in ast.parse(text).body
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and _is_threshold(node.value)
        ]
        there = import_module(f"stepscope.{module}")
        place = file.relative_to(ROOT).as_posix().removesuffix("__init__.py")
        yield from ((place, name, getattr(there, name)) for name in names)


def _is_threshold(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and ast.unparse(value.func) == "Threshold"


def text() -> Iterator[str]:
    """The lines of the page below its title."""
    yield "Every number on which a verdict turns, why it is that number, and what it rests on: tests, decisions, and"
    yield "traces as [diagnoses.md](diagnoses.md) names them. Each is declared in the file that judges by it."
    yield ""
    every = list(declared())
    for title, packages in _HEADINGS:
        yield f"## {title}"
        yield ""
        yield "| threshold | value | because | rests on | declared in |"
        yield "|---|---|---|---|---|"
        for place, name, threshold in every:
            if place.split("/")[0].removesuffix(".py") in packages:
                rests = ", ".join(map(_source, threshold.rests_on))
                yield f"| `{name.strip('_')}` | {threshold} | {threshold.why} | {rests} | `{place}` |"
        yield ""


def _source(name: str) -> str:
    """A decision as a link, files and traces as code."""
    if not name.startswith("decision "):
        return f"`{name}`"
    page = next((PAGES / "decisions").glob(f"{name.removeprefix('decision ')}-*.md"))
    return f"[{name}](decisions/{page.name})"
