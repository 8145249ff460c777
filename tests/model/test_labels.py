"""The trainer's setup label, with whatever axes and pairs it carries."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepscope.model.labels import SETUP_PATTERN, Setup, parse_setup


def test_the_trainers_label() -> None:
    text = "rank=5; pp=1/2 dp=0/1 cp=0/1 ep=1/4; mbs=1 seq=2048"
    assert parse_setup(text) == Setup(
        5, {"pp": (1, 2), "dp": (0, 1), "cp": (0, 1), "ep": (1, 4)}, {"mbs": "1", "seq": "2048"}
    )


def test_unknown_axes_and_pairs_are_kept() -> None:
    found = parse_setup("rank=0; tp=3/8 vpp=0/2; model=moe-16b lr=1e-4")
    assert found == Setup(0, {"tp": (3, 8), "vpp": (0, 2)}, {"model": "moe-16b", "lr": "1e-4"})


@pytest.mark.parametrize("text", ["rank=0;", " rank=12 ; pp=0/1", "rank=7; x=1"])
def test_short_labels(text: str) -> None:
    assert parse_setup(text) is not None
    assert re.search(SETUP_PATTERN, text)


@pytest.mark.parametrize(
    "text", ["", "rank=0", "rank=x; pp=0/1", "forward rank=0; pp=0/1", "ranks=0; pp=0/1", "rank=-1; pp=0/1", "step 12"]
)
def test_other_texts(text: str) -> None:
    assert parse_setup(text) is None
    assert not re.search(SETUP_PATTERN, text)


names = st.from_regex(r"[a-z]{2,6}", fullmatch=True).filter(lambda n: n != "rank")


@given(
    st.integers(0, 10**6),
    st.dictionaries(names, st.tuples(st.integers(0, 999), st.integers(1, 999)), max_size=6),
    st.dictionaries(names, st.from_regex(r"[A-Za-z0-9.,_+-]{1,9}", fullmatch=True), max_size=4),
)
def test_round_trip(rank: int, axes: dict[str, tuple[int, int]], extra: dict[str, str]) -> None:
    extra = {k: v for k, v in extra.items() if k not in axes}
    pairs = (f"{k}={v}" for k, v in extra.items())
    text = f"rank={rank}; " + " ".join(f"{a}={r}/{s}" for a, (r, s) in axes.items()) + "; " + " ".join(pairs)
    assert parse_setup(text) == Setup(rank, axes, extra)
