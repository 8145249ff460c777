"""Committed traces, decompressed once."""

from __future__ import annotations

import lzma
from collections.abc import Callable
from pathlib import Path

import pytest
from goldens import H200
from other_traces import add_traces

DATA = Path(__file__).resolve().parents[2] / "data"


@pytest.fixture(scope="session")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    folder = tmp_path_factory.mktemp("traces")

    def unpack(trace: str) -> Path:
        path = folder / f"{trace}.sqlite"
        if not path.exists():
            path.write_bytes(lzma.decompress((DATA / f"{H200[trace]}.sqlite.xz").read_bytes()))
        return path

    return unpack


@pytest.fixture(scope="session")
def other_traces(unpacked: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with every trace that has a report."""
    path = tmp_path_factory.mktemp("other") / "other.sqlite"
    path.write_bytes(unpacked("eager").read_bytes())
    add_traces(path)
    return path
