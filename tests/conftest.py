"""Options of the tests. Lying here, this file also makes `memory_source` importable from every test."""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the committed expectations")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The real traces and golden figures beside the repository; tests that need them are skipped elsewhere."""
    path = Path(__file__).resolve().parents[2] / "shared"
    if not path.is_dir():
        pytest.skip("no ../shared beside the repository")
    return path
