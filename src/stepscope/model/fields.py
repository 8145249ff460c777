"""Columns that several tables of the model have, and what sorts of columns there are."""

from __future__ import annotations

import polars as pl

from stepscope.model.columns import (
    Column,
    Dtype,
    Part,
)

#: No message or copy is larger (16 TiB), and sums of sizes up to it do not overflow.
MOST_BYTES = 1 << 44
#: No job has more ranks.
MOST_RANKS = 1 << 20


def name_id(name: str, doc: str, part: Part = "core", *, nullable: bool = False) -> Column:
    return Column(name, pl.UInt32, doc + " (id in the string table)", part, name_id=True, nullable=nullable)


def detail(name: str, dtype: Dtype, doc: str) -> Column:
    return Column(name, dtype, doc, "detail", nullable=True)


def size(name: str, doc: str) -> Column:
    return Column(name, pl.Int32, doc, "detail", launch=True, nullable=True, least=0)


def detail_id(name: str, doc: str) -> Column:
    return name_id(name, doc, "detail", nullable=True)


def in_bytes(doc: str, part: Part = "core") -> Column:
    return Column("bytes", pl.Int64, doc, part, nullable=True, least=0, most=MOST_BYTES)


def correlation(doc: str) -> Column:
    return Column("correlation", pl.Int64, doc, nullable=True)


def member(name: str, doc: str, least: int = 0) -> Column:
    """A rank of a communicator, or how many there are."""
    return Column(name, pl.Int32, doc, nullable=True, least=least, most=MOST_RANKS)


RANK = Column("rank", pl.Int32, "rank of the process")
START = Column("start_ns", pl.Int64, "start, nanoseconds on the clock of the source")
END = Column("end_ns", pl.Int64, "end (half open), nanoseconds on the clock of the source")
TID = Column("tid", pl.Int32, "thread of the host; -1 where the source does not say", instead=-1)
