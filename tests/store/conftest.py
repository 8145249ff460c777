from __future__ import annotations

from pathlib import Path

import pytest
from stored import Open, text_source

from fake import Log
from stepscope.store import CachedSource, Disk


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    folder = tmp_path / "user"
    folder.mkdir()
    path = folder / "trace.txt"
    path.write_text("0 5 gemm\n5 9 nccl\n9 12 gemm\n")
    return path


@pytest.fixture
def cache_dir(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def reopen(trace: Path, cache_dir: Path, log: Log) -> Open:
    """Opens the trace through the cache, as a new process would."""

    def opener(path: Path = trace, max_bytes: int | None = None) -> CachedSource:
        store = Disk(cache_dir, max_bytes)
        store.usable()
        return CachedSource(path, lambda: text_source(path, log), store)

    return opener
