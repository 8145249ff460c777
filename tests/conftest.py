"""Options of the tests. Lying here, this file also makes `memory_source` importable from every test."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the committed expectations")
