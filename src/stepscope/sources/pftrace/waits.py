"""What GPU work waited for, as render stages tell it: torch writes there which node of a CUDA graph comes after which.

A stage has a number (`event_id`), and the numbers of those that had to be over before it could run (`event_wait_ids`).
Nodes of a graph that do no work (records of events, callbacks of the host) are stages too. They are not ops of the
model: who waited for such a node waited for what that one waited for.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from stepscope.intervals.arrays import I64, Mask
from stepscope.sources.pftrace.wire import Fields

_ID, _WAIT = 1, 18
#: The longest chain of nodes without work that is followed.
_MOST_PASSED = 1000


def waits_of(told: Fields, is_op: Mask) -> pl.DataFrame:
    """By stage: its number and those that it waited for, as arguments in JSON. Nothing where no stage waited."""
    row, after = _edges(told, len(is_op))
    row, after = _between_ops(row, after, is_op)
    schema = {"of": pl.Int64, "name": pl.String, "value": pl.String}
    if not len(row):
        return pl.DataFrame(schema=schema)
    number = told.last(_ID, len(is_op), 0)
    ids = pl.DataFrame({"of": np.flatnonzero(is_op), "value": number[is_op]}).with_columns(
        value=pl.col("value").cast(pl.String)
    )
    waits = pl.DataFrame({"of": row, "value": number[after]}).group_by("of", maintain_order=True)
    lists = waits.agg(pl.format("[{}]", pl.col("value").cast(pl.String).str.join(", ")).alias("value"))
    named = [f.with_columns(name=pl.lit(n)) for f, n in ((ids, '"event id"'), (lists, '"event wait ids"'))]
    return pl.concat([f.select(list(schema)) for f in named])


def _edges(fields: Fields, count: int) -> tuple[I64, I64]:
    """Rows of stages that waited, and those of the stages that they waited for."""
    number = fields.last(_ID, count, 0)
    waits = fields.numbered(_WAIT)
    known, first = np.unique(number, return_index=True)
    wanted = waits.value.view(np.int64)
    place = np.minimum(np.searchsorted(known, wanted), max(len(known) - 1, 0))
    there = (known[place] == wanted) & (wanted > 0) if len(known) else np.zeros(len(wanted), dtype=bool)
    return _distinct(waits.of[there], first[place[there]].astype(np.int64), count)


def _between_ops(row: I64, after: I64, is_op: Mask) -> tuple[I64, I64]:
    """The same, with what stages without work waited for in their place."""
    passing = pl.DataFrame({"after": row, "beyond": after}).filter(~pl.Series(is_op[row]))
    for _ in range(_MOST_PASSED):
        through = ~is_op[after]
        if not through.any():
            break
        rest = pl.DataFrame({"row": row[through], "after": after[through]}).join(passing, on="after")
        further = rest["row"].to_numpy(), rest["beyond"].to_numpy()
        row, after = (np.concatenate([a[~through], b]) for a, b in zip((row, after), further, strict=True))
        row, after = _distinct(row, after, len(is_op))
    mine = is_op[row] & is_op[after] & (row != after)
    return row[mine], after[mine]


def _distinct(row: I64, after: I64, count: int) -> tuple[I64, I64]:
    pairs = np.unique(row * count + after)
    return pairs // max(count, 1), pairs % max(count, 1)
