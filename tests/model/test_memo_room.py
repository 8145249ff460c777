"""Answers that take much memory are forgotten where it is tight, whatever holds their arrays."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
import pytest
from msgspec import Struct

from fake import FakeSource, op
from stepscope.files import budget
from stepscope.model import profile as model
from stepscope.model.memo import Memo, is_large

LARGE, SMALL = np.zeros(1 << 18, np.int64), np.zeros(10, np.int64)


@dataclass
class Plain:
    array: Any


class Rank:
    let_go_of = 0

    def let_go(self) -> None:
        self.let_go_of += 1


class Packed(Struct):
    array: Any


class Deriving(Struct, dict=True):
    array: Any

    @cached_property
    def derived(self) -> Any:
        return LARGE


@pytest.mark.parametrize("wrapped", [Plain, Packed, lambda a: (a,), lambda a: {"a": [a]}, lambda a: Packed(Plain(a))])
def test_arrays_are_found_in_whatever_holds_them(wrapped):
    assert is_large(wrapped(LARGE)) and is_large(wrapped(pl.Series(LARGE)))
    assert not is_large(wrapped(SMALL))


def test_what_a_struct_derived_counts():
    value = Deriving(SMALL)
    assert not is_large(value)
    assert len(value.derived) and is_large(value)


def test_large_answers_are_computed_again_and_small_ones_are_not():
    memo, asked = Memo(), []

    def answer(subject: str, size: Any) -> Any:
        asked.append(size)
        return Packed(np.zeros(size, np.int64))

    for _ in range(2):
        memo.once(answer, "subject", 1 << 18)
        memo.once(answer, "subject", 10)
        memo.let_go()
    assert asked == [1 << 18, 10, 1 << 18]


def test_small_arrays_of_ranks_by_the_thousand_are_large_together():
    array = np.zeros(1 << 11, np.int64)  # 16 KiB
    assert not is_large(array, 64) and is_large(array, 4096)


def test_a_rank_that_has_let_go_is_not_asked_again_until_it_has_work(monkeypatch):
    """Or ranks by the thousand look through each other, each time that one of them has work."""
    monkeypatch.setattr(budget, "tight", lambda: True)
    monkeypatch.setattr(model, "_LOOK_S", 0.0)
    profile, ranks = model.Profile([FakeSource({"ops": [op(0, 10)]})]), [Rank() for _ in range(100)]
    for rank in ranks:
        profile.at_work(rank)
    assert sum(rank.let_go_of for rank in ranks) == 99
    profile.at_work(ranks[0])
    profile.at_work(ranks[1])
    assert sum(rank.let_go_of for rank in ranks) == 101
