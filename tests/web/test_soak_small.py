"""A little of `make reliability`'s soak: rude callers leave nothing behind, and all others are answered."""

from __future__ import annotations

from pathlib import Path

import pytest

from soak_serve import soak_serve

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="no /proc")


@pytest.mark.slow
def test_callers_of_all_sorts_leave_nothing(served_job: Path) -> None:
    (trace,) = served_job.glob("*.sqlite")
    soaked = soak_serve(trace, 200, warm=60)
    assert soaked.errors == [] and soaked.requests >= 200
    assert soaked.leaks(allowed_mb=50) == []
