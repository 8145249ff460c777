"""Real traces live outside the repository: tests that need them are skipped without."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared() -> Path:
    path = Path(__file__).resolve().parents[4] / "shared" / "traces"
    if not path.is_dir():
        pytest.skip("../shared/traces is not here")
    return path
