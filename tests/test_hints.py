"""Every hint that says how to capture what is missing names an option that `capture run` has."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import stepscope
from stepscope.cli.commands._capture_run import command
from stepscope.model.capturing import WANTS, capture_by, capture_with

ROOT = Path(stepscope.__file__).parent
OPTIONS = {o for p in command.params for o in p.opts}
#: Those who run the profilers know their options.
OWNERS = ("capture", "annotate", "hooks", "integrations", "simulate", "model/capturing.py")
#: A hint that sends the user to a profiler's own options alone.
BARE = re.compile(r"(?i)(?:capture|record|profile)[^.;]{0,30} (?:with|by) `?(?:nsys |torch\.profiler|--)")


def sources() -> Iterator[tuple[str, ast.Module]]:
    for file in sorted(ROOT.rglob("*.py")):
        name = file.relative_to(ROOT).as_posix()
        if not name.startswith(OWNERS):
            yield name, ast.parse(file.read_text("utf-8"))


def calls() -> Iterator[tuple[str, str, list[str]]]:
    """(file, function, texts) of every call of the two functions that make hints."""
    for name, tree in sources():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id.startswith("capture_"):
                texts = [a.value for a in node.args if isinstance(a, ast.Constant)]
                yield name, node.func.id, texts


def test_hints_name_options_that_exist():
    found = list(calls())
    assert len(found) > 20
    for name, function, texts in found:
        assert function in ("capture_with", "capture_by"), name
        if function == "capture_with":
            assert set(texts) <= set(WANTS), name
        else:
            ours = re.sub(r"'[^']*'|=\S+", "", " ".join(texts))  # without what is handed on to nsys
            named = re.findall(r"--[a-z-]+", ours)
            assert set(named) <= OPTIONS, (name, named)


def test_no_hint_is_made_elsewhere():
    wrong = [
        f"{name}: {node.value}"
        for name, tree in sources()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "\n" not in node.value
        if BARE.search(node.value)
    ]
    assert wrong == []


@pytest.mark.parametrize("want", WANTS)
def test_every_want_has_its_hint(want):
    assert f"`stepscope capture run --with {want}`" in capture_with(want)
    assert "--with" in OPTIONS


def test_what_every_capture_has_needs_no_option():
    assert capture_with().startswith("capture with `stepscope capture run` (")
    assert capture_by("--ranges modules") == "capture with `stepscope capture run --ranges modules`"
