"""Arguments of events as JSON: for traces whose arguments are whatever a profiler found worth telling."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import polars as pl

from stepscope.intervals.arrays import F64, I64
from stepscope.sources.pftrace.trace import ARGUMENTS, VALUES, Trace
from stepscope.sources.pftrace.wire import U64, Fields, fields

_NAME_NUMBER, _NAME, _TEXT_NUMBER, _TEXT = 1, 10, 17, 6
_BOOL, _UNSIGNED, _SIGNED, _DOUBLE, _JSON = 2, 3, 4, 5, 9
_ENTRIES, _ITEMS = 11, 12


def members(trace: Trace, start: I64, end: I64) -> tuple[pl.Series, pl.Series]:
    """The name and the value of each argument at these places, as JSON texts. Nested values: a level at a time."""
    members_of = fields(trace.buffer, start, end)
    parts = [
        _numbers(members_of, _BOOL, lambda v: pl.Series(np.where(v != 0, "true", "false"))),
        _numbers(members_of, _UNSIGNED, lambda v: pl.Series(v).cast(pl.String)),
        _numbers(members_of, _SIGNED, lambda v: pl.Series(v.view(np.int64)).cast(pl.String)),
        _numbers(members_of, _DOUBLE, lambda v: _finite(v.view(np.float64))),
        _numbers(members_of, _TEXT_NUMBER, lambda v: quoted(pl.Series([trace.text(VALUES, i) for i in v.tolist()]))),
        _bytes(trace, members_of, _TEXT, quote=True),
        _bytes(trace, members_of, _JSON, quote=False),
        _nested(trace, members_of, _ITEMS),
        _nested(trace, members_of, _ENTRIES),
    ]
    names = [
        _numbers(members_of, _NAME_NUMBER, lambda v: quoted(pl.Series([trace.text(ARGUMENTS, i) for i in v.tolist()]))),
        _bytes(trace, members_of, _NAME, quote=True),
    ]
    # Of a list without items nothing is written at all.
    return _laid_out(names, len(start), '""'), _laid_out(parts, len(start), "[]")


def objects(of: I64, names: pl.Series, values: pl.Series, count: int) -> pl.Series:
    """One JSON object for each of `count` rows, of the members that are `of` it."""
    return _joined(of, names + pl.Series([": "]) + values, count, "{", "}")


def quoted(texts: pl.Series) -> pl.Series:
    """Texts as JSON writes them: each distinct one is looked at once."""
    if not len(texts):
        return pl.Series([], dtype=pl.String)
    distinct = texts.unique()
    written = pl.Series([json.dumps(t, ensure_ascii=False) for t in distinct.to_list()], dtype=pl.String)
    return texts.replace_strict(distinct, written, return_dtype=pl.String)


def texts_at(trace: Trace, start: I64, end: I64) -> pl.Series:
    """The texts at these places."""
    data = trace.buffer.bytes.tobytes() if len(start) else b""
    parts = [data[a:b] for a, b in zip(start.tolist(), end.tolist(), strict=True)]
    return pl.Series([p.decode("utf-8", errors="replace") for p in parts], dtype=pl.String)


def _numbers(fields: Fields, number: int, write: Callable[[U64], pl.Series]) -> tuple[I64, pl.Series]:
    mine = fields.numbered(number)
    return mine.of, write(mine.value).cast(pl.String) if len(mine.of) else pl.Series([], dtype=pl.String)


def _bytes(trace: Trace, fields: Fields, number: int, *, quote: bool) -> tuple[I64, pl.Series]:
    mine = fields.numbered(number)
    texts = texts_at(trace, mine.start, mine.end)
    return mine.of, quoted(texts) if quote else texts


def _nested(trace: Trace, fields: Fields, number: int) -> tuple[I64, pl.Series]:
    """Lists and dictionaries, from their members."""
    mine = fields.numbered(number)
    if not len(mine.of):
        return mine.of, pl.Series([], dtype=pl.String)
    names, values = members(trace, mine.start, mine.end)
    parents, of = np.unique(mine.of, return_inverse=True)
    of = of.reshape(-1).astype(np.int64)
    made = (
        objects(of, names, values, len(parents)) if number == _ENTRIES else _joined(of, values, len(parents), "[", "]")
    )
    return parents, made


def _joined(of: I64, parts: pl.Series, count: int, opening: str, closing: str) -> pl.Series:
    text = pl.DataFrame({"of": of, "part": parts}).group_by("of").agg(pl.col("part").str.join(", "))
    rows = pl.DataFrame({"of": np.arange(count, dtype=np.int64)}).join(text, on="of", how="left", maintain_order="left")
    return rows.select(opening + pl.col("part").fill_null("") + closing).to_series()


def _laid_out(parts: list[tuple[I64, pl.Series]], count: int, default: str) -> pl.Series:
    of = np.concatenate([rows for rows, _ in parts])
    texts = pl.concat([texts for _, texts in parts])
    at = np.full(count, len(texts), np.int64)
    at[of] = np.arange(len(of))
    return pl.concat([texts, pl.Series([default], dtype=pl.String)]).gather(at)


def _finite(values: F64) -> pl.Series:
    texts = pl.Series(values).cast(pl.String)
    return pl.select(pl.when(pl.Series(np.isfinite(values))).then(texts).otherwise(pl.lit("null"))).to_series()
