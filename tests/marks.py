"""Marks of single cases: which of a large parametrization `make test` runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product
from typing import Any

import pytest


def slow_unless(quick: Callable[..., bool], *axes: Iterable[Any]) -> list[Any]:
    """Every combination of the axes as a case; it is slow, unless `quick` says otherwise of it."""
    return [pytest.param(*case, marks=() if quick(*case) else pytest.mark.slow) for case in product(*axes)]
