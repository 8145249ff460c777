"""The trainer's setup label, with whatever axes and pairs it carries."""

from __future__ import annotations

import re

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepscope.model.labels import SETUP_PATTERN, Setup, axis_sizes, label_groups, no_axes, parse_setup, setups


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
    st.dictionaries(
        names, st.tuples(st.integers(0, 999), st.integers(1, 999)).map(lambda p: (p[0] % p[1], p[1])), max_size=6
    ),
    st.dictionaries(names, st.from_regex(r"[A-Za-z0-9.,_+-]{1,9}", fullmatch=True), max_size=4),
)
def test_round_trip(rank: int, axes: dict[str, tuple[int, int]], extra: dict[str, str]) -> None:
    extra = {k: v for k, v in extra.items() if k not in axes}
    pairs = (f"{k}={v}" for k, v in extra.items())
    text = f"rank={rank}; " + " ".join(f"{a}={r}/{s}" for a, (r, s) in axes.items()) + "; " + " ".join(pairs)
    assert parse_setup(text) == Setup(rank, axes, extra)


def labelled(*texts: str) -> dict[int, Setup]:
    return setups(pl.DataFrame({"rank": range(len(texts)), "setup": list(texts)}))


def test_labels_of_a_profile_skip_ranks_without_one() -> None:
    ranks = pl.DataFrame({"rank": [0, 1, 2], "setup": ["rank=0; pp=0/2", None, "no label"]})
    assert setups(ranks) == {0: Setup(0, {"pp": (0, 2)})}


def test_a_coordinate_that_a_label_does_not_name() -> None:
    setup = Setup(0, {"pp": (1, 4)})
    assert (setup.at("pp"), setup.size("pp"), setup.at("ep"), setup.size("ep")) == (1, 4, 0, 1)


def test_groups_along_an_axis() -> None:
    labels = labelled(*(f"rank={r}; pp={r // 2}/2 dp=0/1 ep={1 - r % 2}/2" for r in range(4)))
    assert axis_sizes(labels) == {"pp": 2, "ep": 2}
    assert label_groups(labels, "ep") == [(1, 0), (3, 2)]  # in the order of coordinates
    assert label_groups(labels, "pp") == [(0, 2), (1, 3)]
    assert label_groups(labels, "dp") == []


def test_coordinates_of_experts_and_data_may_overlap() -> None:
    """Experts are spread over data-parallel ranks: dp and ep count the same ranks."""
    labels = labelled(*(f"rank={r}; pp={r // 2}/2 dp={r % 2}/2 ep={r % 2}/2" for r in range(4)))
    assert label_groups(labels, "ep") == label_groups(labels, "dp") == [(0, 1), (2, 3)]


def test_ranks_that_stand_at_the_same_place_are_not_a_group() -> None:
    assert label_groups(labelled("rank=0; ep=0/2", "rank=1; ep=0/2"), "ep") == []


def test_a_coordinate_outside_of_its_axis_is_none() -> None:
    text = "rank=3; pp=5/2 dp=1/4 ep=0/0"
    assert parse_setup(text) == Setup(3, {"dp": (1, 4)}, {"pp": "5/2", "ep": "0/0"})
    assert no_axes(text) == ["pp=5/2", "ep=0/0"]
