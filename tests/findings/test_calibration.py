"""Intervals of findings, by hand; and how wide they become from jobs whose spread is known."""

from __future__ import annotations

import math
import tomllib
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from promises import calibrate, simulated
from promises.pair import Pair, Said
from stepscope.findings import calibration
from stepscope.findings.finding import Finding
from stepscope.findings.registry import detectors

PROMISES = Path(calibrate.__file__).parent


def finding(ns: int, **more: int) -> Finding:
    return Finding("straggler", "", ns, "likely", "", "", ("stragglers", ""), **more)  # type: ignore[arg-type]


@pytest.fixture
def factor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "_factors", lambda: {"straggler": 1.25, "default": 2.0})


@pytest.mark.usefixtures("factor")
def test_the_interval_is_the_promise_divided_and_multiplied() -> None:
    told = calibration.calibrated(finding(1000), step_ns=10_000)
    assert (told.low_ns, told.high_ns, told.expected_ns) == (800, 1250, 1000)


@pytest.mark.usefixtures("factor")
def test_nothing_gives_back_more_than_the_step() -> None:
    told = calibration.calibrated(finding(1000), step_ns=1100)
    assert (told.low_ns, told.high_ns) == (800, 1100)


@pytest.mark.usefixtures("factor")
def test_an_upper_bound_promises_nothing_at_least() -> None:
    told = calibration.calibrated(finding(1000, bound=True), step_ns=10_000)
    assert (told.low_ns, told.high_ns, told.expected_ns) == (0, 1000, 500)


@pytest.mark.usefixtures("factor")
def test_a_detector_may_know_better() -> None:
    told = calibration.calibrated(finding(1000, low_ns=950, high_ns=1040), step_ns=10_000)
    assert (told.low_ns, told.high_ns) == (950, 1040)


def test_the_table_is_about_findings() -> None:
    table = calibration._factors()
    assert set(table) - {"default"} <= {d.id for d in detectors()}
    assert all(1 < factor <= table["default"] for factor in table.values())


def test_the_default_is_used_by_none_that_has_five_pairs() -> None:
    """Real pairs by each tool, and every fault that is simulated by the dozen."""
    counts: Counter[str] = Counter()
    for table in ("pairs.toml", "new.toml"):
        for told in tomllib.loads((PROMISES / table).read_text("utf-8"))["pair"]:
            counts.update(dict.fromkeys(told.get("ids", ()), 2))
    counts.update({ident: 5 for idents, _ in simulated.FAULTS.values() for ident in idents})
    assert {ident for ident, n in counts.items() if n >= 5} <= set(calibration._factors())
    assert len(counts) > 15


def pair(job: int, truth_ms: float, promised_ms: float = 10.0) -> Pair:
    said = Said("straggler", "0", round(promised_ms * 1e6), "likely")
    return Pair(f"job {job}", "nsys", "slow", ("straggler",), truth_ms * 1e6, None, 100_000_000, (said,))


def test_intervals_cover_nine_of_ten() -> None:
    """Truths spread by a known factor around promises: what other jobs say of each holds it in about 90 %."""
    chance = np.random.default_rng(3)
    real = [pair(i, 10 * math.exp(chance.normal(0, 0.15))) for i in range(150)]
    held = calibrate.held(real, [])
    assert len(held) == 150
    assert 0.85 <= sum(held.values()) / 150 <= 0.96
    width = calibrate.widths(real, [])["straggler"]
    assert width.real == 150
    assert width.factor == pytest.approx(math.exp(0.15 * 1.645), rel=0.05)


def test_few_jobs_give_wide_intervals() -> None:
    real = [pair(i, 10.5) for i in range(2)]
    few, many = (calibrate.widths([pair(i, 10.5) for i in range(n)], [])["straggler"].factor for n in (2, 40))
    assert few > 1.1 > many > 1.05
    assert calibrate.widths(real, [])["default"].factor > few
