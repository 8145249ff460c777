"""Environments that the tests of this folder share."""

from __future__ import annotations

from pathlib import Path

import pytest
from distributions import ROOT, Environment, build

from once import made_once


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    (made,) = made_once(tmp_path_factory, "wheel", lambda folder: build("wheel", ROOT, folder)).iterdir()
    return made


@pytest.fixture(scope="session")
def core(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The wheel with what it needs, the newest of each, and no extra."""

    def make(folder: Path) -> None:
        Environment.make(folder / "env").install(wheel)

    return Environment(made_once(tmp_path_factory, "core", make) / "env")


@pytest.fixture(scope="session")
def job(core: Environment, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Traces of a small simulated job on two nodes."""
    mesh = ["--schedule", "ddp", "--pp", "1", "--ep", "1", "--dp", "2", "--nodes", "2"]

    def make(folder: Path) -> None:
        done = core.run("simulate", *mesh, "--layers", "2", "--micro-batches", "1", "-o", folder, cwd=folder)
        assert not done.returncode, done.stderr

    return made_once(tmp_path_factory, "packaged-job", make)
