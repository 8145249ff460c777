"""Answers that take much memory are forgotten where it is tight, whatever holds their arrays."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
import pytest
from msgspec import Struct

from stepscope.model.memo import Memo, is_large

LARGE, SMALL = np.zeros(1 << 18, np.int64), np.zeros(10, np.int64)


@dataclass
class Plain:
    array: Any


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
