"""Damaged pages: read as far as they can be, or refused in one line; never a traceback, never a warning of numpy."""

from __future__ import annotations

import random
import re
from contextlib import suppress
from pathlib import Path

import pytest

import stepscope
from stepscope.render import render

VALUES = [b"0", b"-1", b"1e308", b"nan", b"inf", b"9" * 30, b"", b"abc", b"1,2,3.4.5"]


def _cut(data: bytes, chance: random.Random) -> bytes:
    return data[: chance.randrange(len(data))]


def _hole(data: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(data))
    return data[:at] + data[at + chance.randrange(1, 5000) :]


def _noise(data: bytes, chance: random.Random) -> bytes:
    mutable = bytearray(data)
    for _ in range(chance.choice([1, 5, 50])):
        mutable[chance.randrange(len(mutable))] = chance.randrange(256)
    return bytes(mutable)


def _values(data: bytes, chance: random.Random) -> bytes:
    return re.sub(
        rb'"[\d.,]+"', lambda m: b'"' + chance.choice(VALUES) + b'"' if chance.random() < 0.05 else m[0], data
    )


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("damage", [_cut, _hole, _noise, _values])
@pytest.mark.parametrize("page", ["raw", "details"])
def test_a_damaged_page(request: pytest.FixtureRequest, tmp_path: Path, page: str, damage, seed: int) -> None:
    whole: Path = request.getfixturevalue(page)
    path = tmp_path / "page.csv"
    path.write_bytes(damage(whole.read_bytes(), random.Random(seed)))
    try:
        profile = stepscope.open(path, cache=False)
        profile.info()
        for by in ("work", "kernel", "precision", "level", "stall", "rule"):
            with suppress(stepscope.CannotAnswer):  # what was cut away is said to be missing
                profile.roofline(by=by)
        render(profile.roofline(plot=True), "table")
        render(profile.roofline(), "svg")
    except stepscope.BadInput as error:
        assert "\n" not in str(error)
        assert "page.csv" in str(error)
