"""Our own traces, decompressed once, and profiles of them. What other tests make profiles of is used here too."""

from __future__ import annotations

import lzma
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from recipe_data import DATA

from stepscope import api

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reports"))


@pytest.fixture(scope="session")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """`train/eager` and so on: the SQLite file."""
    folder = tmp_path_factory.mktemp("traces")

    def unpack(name: str) -> Path:
        path = folder / f"{name.replace('/', '_')}.sqlite"
        if not path.exists():
            path.write_bytes(lzma.decompress((DATA / "h200" / f"{name}.sqlite.xz").read_bytes()))
        return path

    return unpack


@pytest.fixture(scope="session")
def train(trace: Callable[[str], Path]) -> api.Profile:
    """Two files with one process each, as if they were two ranks."""
    return api.open(trace("train/eager"), trace("train/slow_dataloader"), of_one_job=False)


@pytest.fixture(scope="session")
def other(trace: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> api.Profile:
    """One rank with random records of MPI and of the OS runtime added."""
    from other_traces import add_traces

    path = tmp_path_factory.mktemp("other") / "other.sqlite"
    path.write_bytes(trace("train/eager").read_bytes())
    add_traces(path)
    return api.open(path)


@pytest.fixture(scope="session")
def payloads(trace: Callable[[str], Path]) -> api.Profile:
    """One file with four ranks, NCCL's payloads included."""
    return api.open(trace("payloads/overlapped"))
