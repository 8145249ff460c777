"""Packages import leftwards only: errors, progress ← model ← … ← cli. Never between neighbours of one layer."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import stepscope

ROOT = Path(stepscope.__file__).parent

#: From left to right. A package may import those of the layers before its own, and itself.
LAYERS = (
    {"errors", "progress", "_profilers"},
    {"model", "_recorder"},
    {"annotate", "capture", "sources", "store", "intervals", "simulate", "nsysreports"},
    {"analyses"},
    {"findings", "compare", "options", "parallel", "recipes", "verify"},
    {"render", "api"},
    {"cli", "web", "agent"},
    {"__init__", "__main__"},
)
#: Analyses work on the model, wherever it came from.
FORBIDDEN = {"analyses": {"capture", "sources", "store", "simulate"}}
#: Debts: (importer, imported) pairs that break the rule and are known to. Keep it empty.
EXCEPTIONS: set[tuple[str, str]] = set()

LAYER = {package: i for i, layer in enumerate(LAYERS) for package in layer}


def packages() -> list[str]:
    """Top-level modules and packages that exist."""
    found = {p.stem for p in ROOT.glob("*.py")} | {p.parent.name for p in ROOT.glob("*/*.py")}
    return sorted(found)


def imported(file: Path) -> set[str]:
    """Top-level packages of stepscope that `file` imports, at any depth of its code."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        found |= {n.split(".")[1] for n in names if n.startswith("stepscope.")}
    return found


@pytest.mark.parametrize("package", packages())
def test_imports_point_left(package):
    assert package in LAYER, f"give {package} a layer in LAYERS"
    files = [ROOT / f"{package}.py"] if (ROOT / f"{package}.py").exists() else sorted((ROOT / package).rglob("*.py"))
    for file in files:
        for other in imported(file) - {package}:
            if other not in LAYER or (package, other) in EXCEPTIONS:
                continue  # an attribute of the package itself, such as __version__
            assert LAYER[other] < LAYER[package], f"{file.relative_to(ROOT)} imports {other}"
            assert other not in FORBIDDEN.get(package, ()), f"{file.relative_to(ROOT)} imports {other}"


def test_exceptions_are_still_needed():
    for importer, other in EXCEPTIONS:
        assert any(other in imported(f) for f in (ROOT / importer).rglob("*.py")), f"{importer} → {other} is paid off"
