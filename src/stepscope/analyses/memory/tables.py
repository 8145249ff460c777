"""Rows of the answers about memory: of a ledger at its peak and over time, of changes, and of an estimate's terms."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import polars as pl

from stepscope.analyses.memory.changes import Change, of_job, of_ledger
from stepscope.analyses.memory.ledger import CACHED, FRAGMENTATION, OUTSIDE, Ledger
from stepscope.analyses.memory.rules import PARTS
from stepscope.derive.memory.estimate import Estimate, Job

#: What makes a part larger.
GROWS = {
    "weights": "parameters",
    "gradients": "parameters",
    "optimizer states": "parameters",
    "activations": "tokens, layers",
    "temporary": "tokens",
    "communication": "parameters",
    "KV cache": "tokens held",
    CACHED: "sizes that change",
    FRAGMENTATION: "sizes that differ",
}
#: Rows of `--by time`.
_SLICES = 200


def of_device(ledger: Ledger, table: pl.DataFrame) -> pl.DataFrame:
    who = pl.lit(ledger.history.rank, pl.Int64).alias("rank"), pl.lit(ledger.history.device, pl.Int64).alias("device")
    return table.select(*who, pl.all())


def part_rows(ledger: Ledger, guessed: Estimate | None, used: int | None) -> pl.DataFrame:
    table = ledger.parts()
    outside = used - ledger.reserved if used is not None else None
    why = "in use (--used), less reserved" if used is not None else "not recorded: give --used"
    extra = {"part": OUTSIDE, "bytes": outside, "most_bytes": None, "blocks": None, "why": why}
    table = pl.concat([table, pl.DataFrame([extra], schema=table.schema)])
    estimates = guessed.peak.parts() if guessed is not None else {}
    missing = [p for p in PARTS if p in estimates and p not in table["part"].to_list()]
    if missing:
        blank = [
            {"part": p, "bytes": 0, "most_bytes": 0, "blocks": 0, "why": "nothing of it was seen"} for p in missing
        ]
        table = pl.concat([pl.DataFrame(blank, schema=table.schema), table])
    share = pl.when(pl.col("part") != OUTSIDE).then(100.0 * pl.col("bytes") / ledger.whole)
    size = pl.col("part").replace_strict(estimates, default=None, return_dtype=pl.Int64)
    grows = pl.col("part").replace_strict(GROWS, default=None, return_dtype=pl.String)
    table = table.with_columns(share.alias("share_pct"), size.alias("estimate_bytes"), grows.alias("grows_with"))
    return of_device(ledger, table)


def frame_rows(ledger: Ledger) -> pl.DataFrame:
    table = ledger.frames().with_columns((100.0 * pl.col("bytes") / ledger.whole).alias("share_pct"))
    return of_device(ledger, table)


def time_rows(ledger: Ledger) -> pl.DataFrame:
    """Slices of the recording, each at its highest moment, so that no peak is lost."""
    history, n = ledger.history, ledger.history.events + 1
    edges = np.unique(np.linspace(0, n, min(n, _SLICES) + 1).astype(np.int64))
    moments = np.array([a + int(np.argmax(history.allocated[a:b])) - 1 for a, b in pairwise(edges)])
    table = ledger.over_time(moments)
    times = None if history.time is None or not len(history.time) else history.time[np.maximum(moments, 0)]
    start = pl.Series("start_ns", [None] * len(moments) if times is None else times, dtype=pl.Int64)
    return of_device(ledger, table.with_columns(start))


def change_rows(ledger: Ledger, job: Job | None, dp: int) -> pl.DataFrame:
    if job is not None:
        return changes_table(of_job(job))
    return changes_table(of_ledger(ledger, dp))


def changes_table(changes: list[Change]) -> pl.DataFrame:
    rows = [(c.name, c.peak, c.saves, c.bound, c.how) for c in changes]
    schema = {"change": pl.String, "bytes": pl.Int64, "saves_bytes": pl.Int64, "at_most": pl.Boolean, "how": pl.String}
    return pl.DataFrame(rows, schema=schema, orient="row")


def term_rows(estimate: Estimate) -> pl.DataFrame:
    rows = [
        (None, None, part, label, formula, n, size * n, 100.0 * size * n / estimate.size)
        for (part, label, formula, size), n in estimate.peak.alive.items()
    ]
    names = ["rank", "device", "part", "term", "formula", "n", "bytes", "share_pct"]
    return pl.DataFrame(rows, schema=names, orient="row").sort("bytes", descending=True)
