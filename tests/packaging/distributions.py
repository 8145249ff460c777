"""Wheels and sdists of this checkout, and environments that they are installed into."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: What a registry that cannot be reached looks like in uv's words.
_NO_REGISTRY = ("dns error", "error sending request", "Connect", "Could not connect", "Failed to fetch")


def project() -> dict[str, Any]:
    """The project's own words about itself."""
    table: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return table


def build(kind: str, of: Path, into: Path, **environment: str) -> Path:
    """The `wheel` or `sdist` of the project in folder `of`, built by its backend without a network."""
    pytest.importorskip("hatchling")
    into.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(into)]
    subprocess.run(command, cwd=of, env={**os.environ, **environment}, capture_output=True, check=True)
    (made,) = into.iterdir()
    return made


def uv() -> str:
    """uv, which installs a hundred megabytes in a second from its cache."""
    found = shutil.which("uv", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
    if found is None:
        pytest.skip("no uv: `make setup` installs it")
    return found


def without_checkout(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Variables in which nothing leads back to the checkout's sources."""
    return {k: v for k, v in environment.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME")}


@dataclass(frozen=True)
class Environment:
    """An environment of its own: an interpreter, and what was installed for it."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def stepscope(self) -> Path:
        return self.folder / "bin" / "stepscope"

    @classmethod
    def make(cls, folder: Path, interpreter: str = sys.executable) -> Environment:
        """An empty one: not even pip is in it."""
        subprocess.run([uv(), "venv", "-q", "-p", interpreter, folder], capture_output=True, check=True)
        return cls(folder)

    def install(self, *what: str | Path, options: Sequence[str] = ()) -> None:
        """Install them with all they need; where there is no registry, the test is skipped."""
        command = [uv(), "pip", "install", "-q", "--python", self.python, *options, *what]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=without_checkout())
        if done.returncode and any(words in done.stderr for words in _NO_REGISTRY):
            pytest.skip("no registry of packages can be reached")
        assert not done.returncode, done.stderr

    def check(self) -> str:
        """What `pip check` says; empty where all fits together."""
        command = [uv(), "pip", "check", "--python", str(self.python)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.stderr if done.returncode else ""

    def versions(self) -> dict[str, str]:
        """What is installed, by name."""
        command = [uv(), "pip", "list", "-q", "--format", "json", "--python", str(self.python)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return {entry["name"]: entry["version"] for entry in json.loads(done.stdout)}

    def run(self, *arguments: str | Path, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
        """`stepscope ARGUMENTS` of this environment."""
        return subprocess.run(
            [self.stepscope, *arguments],
            cwd=cwd,
            env={**without_checkout(), **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
