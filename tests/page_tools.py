"""The page's tools (Node packages, Chromium) for the tests that build it and look at it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from once import made_once

PAGE = Path(__file__).parents[1] / "page"
#: What npm says where the registry cannot be reached; anything else is a failure of ours.
_UNREACHABLE = ("ENOTFOUND", "ECONNREFUSED", "ECONNRESET", "ETIMEDOUT", "EAI_AGAIN", "network", "ENETUNREACH")


@pytest.fixture(scope="session")
def page_tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of page/ with the packages of its lock file: installed once, also where tests run in several processes."""
    for tool in ("node", "npm"):
        if shutil.which(tool) is None:
            pytest.skip(f"no {tool} here")
    return made_once(tmp_path_factory, "page", _install)


def _install(folder: Path) -> None:
    shutil.copytree(PAGE, folder, ignore=shutil.ignore_patterns("node_modules"), dirs_exist_ok=True)
    command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=400)
    if done.returncode == 0:
        return
    if any(word in done.stderr for word in _UNREACHABLE):
        pytest.skip("the npm registry cannot be reached")
    pytest.fail(f"npm ci: {done.stderr[-2000:]}")


@pytest.fixture(scope="session")
def chromium() -> str:
    """The browser: Debian's, or what STEPSCOPE_CHROMIUM names. The one without windows takes half the time."""
    own = os.environ.get("STEPSCOPE_CHROMIUM")
    names = (own, "chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
    found = next((path for name in names if name and (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("no Chromium here (Debian: apt-get install chromium-headless-shell)")
    return found


def read_in_browser(tools: Path, browser: str, folder: Path, script: str) -> None:
    """Run a script of page/tests in the browser, on what lies in `folder`; the test fails where the script does."""
    done = subprocess.run(
        ["node", "--test", "--test-concurrency=1", "--test-reporter=spec", f"tests/{script}"],
        cwd=tools,
        env={**os.environ, "REPORTS": str(folder), "CHROMIUM": browser},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
