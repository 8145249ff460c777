"""Options of the tests. Lying here, this file also makes the modules beside it importable from every test."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import settings

if "PYTEST_XDIST_WORKER" in os.environ:  # workers share the cores: threads beside them cost more than they give
    os.environ.setdefault("POLARS_MAX_THREADS", "1")  # before Polars is imported

import reference_captures
from stepscope.files.whole import working_folder

# How long an example takes says nothing on a machine that runs several tests at once.
settings.register_profile("stepscope", deadline=None)
settings.load_profile("stepscope")


pytest_plugins = ["page_tools"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the committed expectations")


#: Files that take longest, some by one case: they begin first, lest one worker is left with one of them at the end.
LONG = (
    *("web/test_serve_browser.py", "hostile/test_hostile_covered.py", "fuzz/test_good_questions.py"),
    *("fuzz/test_structured.py", "api/test_workers.py", "capture/test_hooks.py", "capture/test_integrations.py"),
    *("analyses/test_compute_question.py", "compare/test_compare_pairs.py", "packaging/test_installed.py"),
    *("packaging/test_sealed.py", "report/test_report_browser.py", "sources/kineto/test_kineto_real_traces.py"),
    *("findings/test_faults_across.py", "findings/test_same_names.py", "fuzz/test_mutants.py", "test_site.py"),
    *("analyses/test_partition.py", "capture/test_end_to_end.py", "derive/flops/test_against_torch.py"),
    *("findings/test_evidence.py", "analyses/test_across_truth.py", "analyses/test_matrix.py"),
    *(
        "findings/test_readings.py",
        "api/test_memory_budget.py",
        "packaging/test_sbom.py",
        "export/test_perfetto_engine.py",
    ),
    *("findings/test_faults_host.py", "derive/windows/test_steps_agree.py", "analyses/test_critical_path.py"),
    *(
        "compare/test_compare_truth.py",
        "capture/test_hooks_fail.py",
        "hang/test_verdicts.py",
        "agent/test_mcp_stdio.py",
    ),
)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first, then those with many cases: xdist hands files out in this order (`--no-loadscope-reorder`)."""
    here = Path(__file__).parent
    place = {here / file: number for number, file in enumerate(LONG)}
    cases = Counter(item.path for item in items)
    items.sort(key=lambda item: (place.get(item.path, len(LONG)), -cases[item.path], item.path))


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
            found = "all(map(importlib.util.find_spec, ('torch', 'nvtx')))"  # importing them takes seconds
            code = f"import importlib.util, sys; sys.exit(not {found})"
            if subprocess.run([candidate, "-c", code], capture_output=True, check=False).returncode == 0:
                return candidate
    pytest.skip("no torch: `make torch-env` makes .venv-torch")
