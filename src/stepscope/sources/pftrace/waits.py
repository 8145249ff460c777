"""What GPU work waited for, as render stages tell it: torch writes there which node of a CUDA graph comes after which.

A stage has a number (`event_id`), and the numbers of those that had to be over before it could run (`event_wait_ids`).
Nodes of a graph that do no work (records of events, callbacks of the host) are stages too. They are not ops of the
model: who waited for such a node waited for what that one waited for.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from stepscope.intervals.arrays import I64, Mask
from stepscope.sources.kineto.graph_edges import between_ops, distinct
from stepscope.sources.pftrace.wire import Fields

_ID, _WAIT = 1, 18


def waits_of(arguments: Fields, is_op: Mask) -> pl.DataFrame:
    """By stage: its number and those that it waited for, as arguments in JSON. Nothing where no stage waited."""
    row, after = _edges(arguments, len(is_op))
    row, after = between_ops(row, after, is_op)
    schema = {"of": pl.Int64, "name": pl.String, "value": pl.String}
    if not len(row):
        return pl.DataFrame(schema=schema)
    number = arguments.last(_ID, len(is_op), 0)
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
    numbers, first = np.unique(number, return_index=True)
    wanted = waits.value.view(np.int64)
    place = np.minimum(np.searchsorted(numbers, wanted), max(len(numbers) - 1, 0))
    there = (numbers[place] == wanted) & (wanted > 0) if len(numbers) else np.zeros(len(wanted), dtype=bool)
    return distinct(waits.of[there], first[place[there]].astype(np.int64), count)
