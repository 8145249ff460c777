"""One simulated job for all tests of the server."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="the extra `web` is not installed")
pytest.importorskip("uvicorn", reason="the extra `web` is not installed")

from serving import scene, simulated

from stepscope.web.answers import Answers


@pytest.fixture(scope="session")
def served_job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulated(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="session")
def answers(served_job: Path) -> Answers:
    return Answers([scene(served_job)])
