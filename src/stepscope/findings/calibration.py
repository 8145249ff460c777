"""How far the truth may lie from what a finding promises: its interval.

Every finding gets the interval that held the truth in nine of ten jobs where taking its fault away was tried
(docs/promises.md; `make promises` writes calibration.toml). A detector that can bound its figure itself says so in the
finding, and one whose figure is an upper bound has an interval that begins at nothing.
"""

from __future__ import annotations

import tomllib
from dataclasses import replace
from functools import cache
from importlib.resources import files

from stepscope.findings.finding import Finding
from stepscope.model.threshold import Threshold

HIGH = Threshold(
    10.0,
    "% of the promise",
    "half the interval, up to which it is narrow",
    ("tests/findings/test_calibration.py",),
)
MEDIUM = Threshold(
    30.0,
    "% of the promise",
    "half the interval, from which on it is wide",
    ("tests/findings/test_calibration.py",),
)


@cache
def _factors() -> dict[str, float]:
    """By id: the promise divided and multiplied by it are the ends of the interval."""
    text = files("stepscope.findings").joinpath("calibration.toml").read_text("utf-8")
    return {ident: float(row["factor"]) for ident, row in tomllib.loads(text).items()}


def calibrated(f: Finding, step_ns: int) -> Finding:
    """The finding with its interval."""
    promised, factors = f.recoverable_ns, _factors()
    factor = factors.get(f.id, factors["default"])
    low, high = round(promised / factor), round(promised * factor)
    if f.bound:
        low, high = 0, promised
    low = low if f.low_ns is None else f.low_ns
    high = high if f.high_ns is None else f.high_ns
    low, high = min(low, promised), min(max(high, promised), step_ns)
    return replace(f, low_ns=low, high_ns=high)


def confidence(f: Finding) -> str:
    """The width of a finding's interval in a word: a column that `stepscope/1` promised."""
    off = ((f.high_ns or 0) - (f.low_ns or 0)) / 2 / max(f.recoverable_ns, 1)
    return "high" if off <= HIGH.share else "medium" if off <= MEDIUM.share else "low"
