"""A server in this process, with a folder of committed traces as its root."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_client import unpacked
from stepscope.agent.roots import Roots
from stepscope.agent.server import Server, server


@pytest.fixture(scope="session")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("traces")
    assert [path.name for path in unpacked(folder, "moe4mps/overlapped", "payloads/overlapped", "train/eager")]
    return folder


@pytest.fixture(scope="module")
def made(traces: Path) -> Server:
    return server(Roots([traces]))
