"""Which torch op the CPU computes for most of some stretches, where torch ops were recorded."""

from __future__ import annotations

import numpy as np
import polars as pl

from stepscope.derive.pytorch.torch_ops import torch_ops
from stepscope.findings.evidence.hosts import Host
from stepscope.intervals import Spans
from stepscope.intervals.arrays import NONE
from stepscope.model.threshold import Threshold

FILLS = Threshold(
    50.0,
    "% of the stretches",
    "an op that fills most of the time is what the host does there; of less, nobody would name it",
    ("tests/findings/test_input_stall.py",),
)


def op_that_fills(host: Host, spans: Spans) -> str | None:
    """The name of the op that fills most of these stretches, those within it included. One that launches work for the
    GPU is not computed by the CPU."""
    ops = torch_ops(host.profile, host.data)
    start, end = (ops.frame[c].to_numpy() for c in ("start_ns", "end_ns"))
    launched = np.sort(host.data.launched_at[host.data.launch != NONE])
    launches = np.searchsorted(launched, end) > np.searchsorted(launched, start)
    outer = ops.frame.filter(pl.Series((ops.nesting.parent == NONE) & ~launches))
    if not outer.height or not spans.length():
        return None
    within = spans.measure_before(outer["end_ns"].to_numpy()) - spans.measure_before(outer["start_ns"].to_numpy())
    by_name = (
        pl.DataFrame({"name": outer["name"], "ns": within}).group_by("name").agg(pl.col("ns").sum()).sort("ns", "name")
    )
    name, ns = by_name.row(-1)
    return str(name) if ns >= FILLS.share * spans.length() else None
