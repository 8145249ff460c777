"""The committed bundle is what its sources give, small, typed, and part of the package."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import stepscope

ROOT = Path(__file__).parents[2]
BUNDLE = Path(stepscope.__file__).parent / "render" / "html" / "bundle"
FILES = ("report.css", "report.js", "serve.css", "serve.js")


def test_a_rebuild_gives_the_same_bytes(page_tools, tmp_path):
    done = subprocess.run(["node", "build.mjs", str(tmp_path)], cwd=page_tools, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(p.name for p in BUNDLE.iterdir()) == list(FILES)
    for name in FILES:
        assert (tmp_path / name).read_bytes() == (BUNDLE / name).read_bytes(), f"{name} is stale: run `make page`"


def test_the_page_is_typed(page_tools):
    done = subprocess.run(["npx", "--no-install", "tsc", "--noEmit"], cwd=page_tools, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    settings = json.loads((ROOT / "page" / "tsconfig.json").read_text("utf-8"))["compilerOptions"]
    assert settings["strict"] is True


def test_the_bundle_is_small():
    for page in ("report", "serve"):
        assert sum((BUNDLE / name).stat().st_size for name in FILES if name.startswith(page)) < 250_000


def test_packages_are_pinned():
    package = json.loads((ROOT / "page" / "package.json").read_text("utf-8"))
    lock = json.loads((ROOT / "page" / "package-lock.json").read_text("utf-8"))["packages"]
    for kind in ("dependencies", "devDependencies"):
        for name, version in package[kind].items():
            assert version == lock[f"node_modules/{name}"]["version"], f"{name}: not an exact version"


def test_the_wheel_has_the_bundle(tmp_path):
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
    done = subprocess.run([*command, "-w", str(tmp_path), str(ROOT)], capture_output=True, text=True)
    if "No matching distribution found for hatchling" in done.stderr:
        pytest.skip("the package index cannot be reached")
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    inside = zipfile.ZipFile(wheel).namelist()
    for name in FILES:
        assert f"stepscope/render/html/bundle/{name}" in inside
    assert not [name for name in inside if "node_modules" in name]
