"""Thresholds: numbers on which verdicts turn are declared as such, wherever they are, and what each rests on exists."""

from __future__ import annotations

import ast
import importlib.util
import tomllib
from pathlib import Path

import pytest

import stepscope
from stepscope.model.threshold import Threshold

ROOT = Path(__file__).parents[1]
SOURCES = Path(stepscope.__file__).parent
#: Where verdicts are made. Elsewhere numbers are of formats, of what a page has room for, of patience.
JUDGING = ("analyses", "compare", "derive", "findings", "hang", "model", "statistics", "verify")


def _declared() -> dict[str, Threshold]:
    """All of them, as docs/thresholds.md has them."""
    spec = importlib.util.spec_from_file_location("threshold_page", ROOT / "docs" / "threshold_page.py")
    assert spec is not None and spec.loader is not None
    page = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(page)
    return {f"{place} {name}": threshold for place, name, threshold in page.declared()}


THRESHOLDS = _declared()


@pytest.mark.parametrize("name", THRESHOLDS)
def test_what_a_threshold_rests_on_exists(name: str) -> None:
    threshold = THRESHOLDS[name]
    assert threshold.why and threshold.unit and threshold.rests_on
    for source in threshold.rests_on:
        if source.startswith("decision "):
            assert list((ROOT / "docs" / "decisions").glob(f"{source.removeprefix('decision ')}-*.md")), source
        elif source.startswith("tests/"):
            path, _, function = source.partition("::")
            assert (ROOT / path).exists(), source
            assert not function or function in _functions(ROOT / path), source
        else:
            assert source.startswith(("h200/", "public/")), source


def test_the_traces_that_thresholds_rest_on_exist(shared: Path) -> None:
    sources = {source for threshold in THRESHOLDS.values() for source in threshold.rests_on}
    traces = [source for source in sources if source.startswith(("h200/", "public/"))]
    assert [source for source in traces if not list((shared / "traces").glob(source))] == []


def _functions(path: Path) -> set[str]:
    return {node.name for node in ast.parse(path.read_text("utf-8")).body if isinstance(node, ast.FunctionDef)}


def test_numbers_are_thresholds_or_say_what_else_they_are() -> None:
    """A number with a name is a `Threshold`, or plain_numbers.toml says why no verdict turns on it."""
    bare = {f"{module} {name}" for module, name in _numbers()}
    plain = tomllib.loads((ROOT / "tests" / "plain_numbers.toml").read_text("utf-8"))
    listed = {entry for entries in plain.values() for entry in entries}
    assert sorted(bare - listed) == [], "declare it as a Threshold, with its reason and what it rests on"
    assert sorted(listed - bare) == [], "no longer there"


def _numbers() -> list[tuple[str, str]]:
    """Module and name of every number, or tuple of numbers, that a module of `JUDGING` gives a name."""
    found = []
    for file in sorted(SOURCES.rglob("*.py")):
        path = file.relative_to(SOURCES)
        if path.parts[0] in JUDGING:
            for node in ast.parse(file.read_text("utf-8")).body:
                target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
                if target is not None and _is_number(getattr(node, "value", None)):
                    names = target.elts if isinstance(target, ast.Tuple) else [target]
                    found += [(path.as_posix(), ast.unparse(name)) for name in names]
    return found


def _is_number(value: ast.expr | None) -> bool:
    if isinstance(value, ast.Constant):
        return isinstance(value.value, int | float) and not isinstance(value.value, bool)
    if isinstance(value, ast.UnaryOp):
        return _is_number(value.operand)
    if isinstance(value, ast.BinOp):
        return _is_number(value.left) and _is_number(value.right)
    return isinstance(value, ast.Tuple) and bool(value.elts) and all(map(_is_number, value.elts))


@pytest.mark.parametrize(
    ("line", "number"),
    [
        ("A = 3", True),
        ("A = 3, 0.5", True),
        ("A = -(1 << 4) * 2.0", True),
        ("A: int = 3", True),
        ("A = 'x'", False),
        ("A = True", False),
        ("A = Threshold(3, '', '', ())", False),
        ("A = ()", False),
    ],
)
def test_numbers_are_seen(line: str, number: bool) -> None:
    (node,) = ast.parse(line).body
    assert isinstance(node, ast.Assign | ast.AnnAssign)
    assert _is_number(node.value) is number
