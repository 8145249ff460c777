"""Options of the tests. Lying here, this file also makes the modules beside it importable from every test."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import settings

import reference_captures
from stepscope.files.whole import working_folder

# How long an example takes says nothing on a machine that runs several tests at once.
settings.register_profile("stepscope", deadline=None)
settings.load_profile("stepscope")


pytest_plugins = ["page_tools"]


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


@pytest.fixture(autouse=True, scope="session")
def own_temporary_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What tests, and programs that they start, leave in the temporary folder is a defect: it is seen here."""
    tmp_path_factory.getbasetemp()  # pytest's own folder stays where it is
    # A short path: programs make sockets below it. Those of runs that were killed go with the next one.
    place = Path(tempfile.gettempdir())
    with pytest.MonkeyPatch.context() as patch, working_folder(place, "stepscope-test-run-") as folder:
        patch.setenv("TMPDIR", str(folder))
        patch.setattr(tempfile, "tempdir", str(folder))
        yield
        gc.collect()  # an exported report goes with its source
        others = ("nvidia", "org.chromium.")  # nsys's own, and of a browser that was ended
        left = sorted(path.name for path in folder.iterdir() if not path.name.startswith(others))
        assert not left, f"left in the temporary folder: {left}"


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """Of a run that passed, pytest has removed its folders, but not the one that holds those of all its runs."""
    factory = getattr(config, "_tmp_path_factory", None)
    base = getattr(factory, "_basetemp", None)
    if base is not None and not os.environ.get("PYTEST_XDIST_WORKER"):
        with suppress(OSError):  # there are others
            base.parent.rmdir()


@pytest.fixture(autouse=True, scope="session")
def own_compiler_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """torch keeps what it compiled in the temporary folder, unless told otherwise."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.mktemp("inductor")))
        yield


@pytest.fixture(scope="session")
def reference_capture(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    """The folder of a real capture, by what was planted and by profiler; see reference_captures."""
    folder = tmp_path_factory.mktemp("reference")
    return lambda name, backend: reference_captures.unpack(name, backend, folder)


@pytest.fixture(scope="session")
def torch_python() -> str:
    """A Python with torch (and nvtx): an environment of its own, made by `make torch-env`."""
    for candidate in (
        os.environ.get("STEPSCOPE_TORCH_PYTHON"),
        str(Path(__file__).resolve().parents[1] / ".venv-torch" / "bin" / "python"),
    ):
        if candidate and shutil.which(candidate):
            done = subprocess.run([candidate, "-c", "import torch, nvtx"], capture_output=True, check=False)
            if done.returncode == 0:
                return candidate
    pytest.skip("no torch: `make torch-env` makes .venv-torch")
