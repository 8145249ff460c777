"""Of several patterns the first that a name contains decides: what calls, kernels, communication and types are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TypeVar

import polars as pl

T = TypeVar("T")


def first_match(names: pl.Series, rules: Iterable[tuple[str, str | int]]) -> pl.Series:
    """By name: the label of the first pattern that it contains, null where none does; rules are (pattern, label).

    Give it the names of a string table, each once, not those of rows.
    """
    name = pl.col("name")
    first = first_true([(name.str.contains(pattern), label) for pattern, label in rules])
    return pl.DataFrame({"name": names}).select(first.alias("label"))["label"]


def first_true(rules: Sequence[tuple[pl.Expr, str | int]], otherwise: pl.Expr | None = None) -> pl.Expr:
    """By row: the label of the first condition that holds."""
    label = pl.lit(None) if otherwise is None else otherwise
    for condition, text in reversed(rules):
        label = pl.when(condition).then(pl.lit(text)).otherwise(label)
    return label


def first_of(text: str, rules: Iterable[tuple[T, re.Pattern[str]]]) -> T | None:
    """The same of one text, for Python's patterns; rules are (label, pattern)."""
    return next((label for label, pattern in rules if pattern.search(text)), None)
