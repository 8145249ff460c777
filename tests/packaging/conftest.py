"""Environments that the tests of this folder share."""

from __future__ import annotations

from pathlib import Path

import pytest
from distributions import ROOT, Environment, build


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def core(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The wheel with what it needs, the newest of each, and no extra."""
    environment = Environment.make(tmp_path_factory.mktemp("core") / "env")
    environment.install(wheel)
    return environment


@pytest.fixture(scope="session")
def job(core: Environment, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Traces of a small simulated job on two nodes."""
    folder = tmp_path_factory.mktemp("job")
    mesh = ["--schedule", "ddp", "--pp", "1", "--ep", "1", "--dp", "2", "--nodes", "2"]
    done = core.run("simulate", *mesh, "--layers", "2", "--micro-batches", "1", "-o", folder, cwd=folder)
    assert not done.returncode, done.stderr
    return folder
