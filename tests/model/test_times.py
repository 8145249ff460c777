"""Times as users write them: exact, with units, and refused where they are none."""

from __future__ import annotations

import pytest

from stepscope.errors import BadInput
from stepscope.model.times import nanoseconds


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("100", 100),
        ("100ns", 100),
        ("800us", 800_000),
        ("800µs", 800_000),
        ("1ms", 1_000_000),
        ("2.5s", 2_500_000_000),
        ("2.5 s", 2_500_000_000),
        ("1s500ms", 1_500_000_000),
        ("1.5m", 90 * 10**9),
        ("1.000000001s", 1_000_000_001),
        # Unix time: more digits than a float holds
        ("1790857026123456789", 1790857026123456789),
        ("1790857026.123456789s", 1790857026123456789),
    ],
)
def test_units_and_every_digit(text: str, ns: int) -> None:
    assert nanoseconds(text, "--start") == ns


@pytest.mark.parametrize("text", ["soon", "", "1 fortnight", "ms", "1ms soon", "1,5s", "0x10"])
def test_what_is_no_time_is_said_with_the_option(text: str) -> None:
    with pytest.raises(BadInput, match=r"--start .*not a time; write it as 1ms"):
        nanoseconds(text, "--start")


def test_a_plain_number_is_in_the_options_unit() -> None:
    assert nanoseconds(500, "--gap", "ms") == 500_000_000
    assert nanoseconds("800us", "--gap", "ms") == 800_000
