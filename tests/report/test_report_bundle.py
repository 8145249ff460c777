"""The committed bundle is what its sources give, small, typed, and names what it contains."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

import stepscope

ROOT = Path(__file__).parents[2]
BUNDLE = Path(stepscope.__file__).parent / "render" / "html" / "bundle"
FILES = ("components.cdx.json", "licenses.txt", "report.css", "report.js", "serve.css", "serve.js")


@pytest.mark.slow
def test_a_rebuild_gives_the_same_bytes(page_tools, tmp_path):
    done = subprocess.run(["node", "build.mjs", str(tmp_path)], cwd=page_tools, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(p.name for p in BUNDLE.iterdir()) == list(FILES)
    for name in FILES:
        assert (tmp_path / name).read_bytes() == (BUNDLE / name).read_bytes(), f"{name} is stale: run `make page`"


@pytest.mark.slow
def test_the_page_is_typed(page_tools):
    done = subprocess.run(["npx", "--no-install", "tsc", "--noEmit"], cwd=page_tools, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    settings = json.loads((ROOT / "page" / "tsconfig.json").read_text("utf-8"))["compilerOptions"]
    assert settings["strict"] is True


@pytest.mark.slow
def test_a_field_that_is_renamed_in_python_is_seen_on_the_page(page_tools, tmp_path):
    """The types of messages are written from Python's: the page does not compile with others."""
    folder = tmp_path / "page"
    shutil.copytree(page_tools / "src", folder / "src")
    shutil.copy(page_tools / "tsconfig.json", folder)
    (folder / "node_modules").symlink_to(page_tools / "node_modules")
    messages = folder / "src" / "messages.ts"
    messages.write_text(messages.read_text("utf-8").replace("recoverable_ns:", "gain_ns:"), "utf-8")
    command = [page_tools / "node_modules" / ".bin" / "tsc", "--noEmit"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode != 0 and "recoverable_ns" in done.stdout


@pytest.mark.slow
def test_modules_that_need_no_page_pass_their_own_tests(page_tools):
    done = subprocess.run(["node", "tests/unit.mjs"], cwd=page_tools, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


def test_the_bundle_is_small():
    for page in ("report", "serve"):
        assert sum((BUNDLE / name).stat().st_size for name in FILES if name.startswith(page)) < 250_000


def test_packages_are_pinned():
    package = json.loads((ROOT / "page" / "package.json").read_text("utf-8"))
    lock = json.loads((ROOT / "page" / "package-lock.json").read_text("utf-8"))["packages"]
    for kind in ("dependencies", "devDependencies"):
        for name, version in package[kind].items():
            assert version == lock[f"node_modules/{name}"]["version"], f"{name}: not an exact version"


def test_the_terms_of_what_it_contains_go_with_every_copy():
    components = json.loads((BUNDLE / "components.cdx.json").read_text("utf-8"))["components"]
    lock = json.loads((ROOT / "page" / "package-lock.json").read_text("utf-8"))["packages"]
    assert {"preact", "d3-zoom", "d3-ease"} <= {package["name"] for package in components}
    terms = (BUNDLE / "licenses.txt").read_text("utf-8")
    for package in components:
        assert package["version"] == lock[f"node_modules/{package['name']}"]["version"]
        assert f"{package['name']} {package['version']}" in terms
    for page in ("report", "serve"):
        assert terms in (BUNDLE / f"{page}.js").read_text("utf-8")
