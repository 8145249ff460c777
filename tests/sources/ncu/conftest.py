from __future__ import annotations

from pathlib import Path

import pytest

#: Seven kernels of `../shared/traces/h200/ncu/ncu_full_*.csv`: both pages, of the raw one half of the columns.
DATA = Path(__file__).parents[2] / "data/ncu"


@pytest.fixture
def raw() -> Path:
    return DATA / "raw.csv"


@pytest.fixture
def details() -> Path:
    return DATA / "details.csv"
