"""A little of `make reliability`'s soak: calls that are wrong or cancelled leave nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from soak_mcp import soak_mcp
from stepscope.agent.profiles import MOST_OPEN
from stepscope.simulate.job.scenario import Scenario
from stepscope.simulate.run import simulate_to


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="no /proc")
def test_calls_of_all_sorts_leave_nothing(tmp_path: Path) -> None:
    simulate_to(Scenario(pp=2, ep=1, layers=4, micro_batches=4, steps=2), tmp_path / "job", ("nsys",))
    (tmp_path / "root").mkdir()
    soaked = soak_mcp(tmp_path / "job" / "node0.sqlite", tmp_path / "root", 40, warm=10)
    assert soaked.errors == [] and soaked.requests >= 40
    # Tables of an open profile are read when first asked for, so a few more files may be open: not those of every one.
    assert soaked.fds_end - soaked.fds_start <= 3 * MOST_OPEN
