"""Our own traces, decompressed once, and profiles of them. Profiles by hand come from the tests of the analyses."""

from __future__ import annotations

import lzma
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from recipe_data import DATA

from stepscope import api

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "analyses"))


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
    return api.open(trace("train/eager"), trace("train/slow_dataloader"))


@pytest.fixture(scope="session")
def payloads(trace: Callable[[str], Path]) -> api.Profile:
    """One file with four ranks, NCCL's payloads included."""
    return api.open(trace("payloads/overlapped"))
