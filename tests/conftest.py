"""Options of the tests. Lying here, this file also makes the modules beside it importable from every test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

import reference_captures

# How long an example takes says nothing on a machine that runs several tests at once.
settings.register_profile("stepscope", deadline=None)
settings.load_profile("stepscope")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the committed expectations")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The real traces and golden figures beside the repository; tests that need them are skipped elsewhere."""
    path = Path(__file__).resolve().parents[2] / "shared"
    if not path.is_dir():
        pytest.skip("no ../shared beside the repository")
    return path


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests never read or fill the cache of whoever runs them; subprocesses inherit this."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STEPSCOPE_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def reference_capture(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    """The folder of a real capture, by what was planted and by profiler; see reference_captures."""
    folder = tmp_path_factory.mktemp("reference")
    return lambda name, backend: reference_captures.unpack(name, backend, folder)
