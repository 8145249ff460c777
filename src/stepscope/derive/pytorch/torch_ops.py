"""The torch ops of one rank, with what profilers say of their arguments and of the pass that they belong to.

torch.profiler has them as host ops; nsys as NVTX ranges, where torch was told to emit them (`--pytorch=autograd-nvtx`,
`emit_nvtx(record_shapes=True)`): then without types and values.

Backward nodes run on threads of the autograd engine, or on the caller's. An op within one belongs to the backward pass,
unless it was run with gradients recorded: then it is a forward op that is run again (activation checkpointing). Ops
that record gradients have a sequence number of their own, those of a backward node have none.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from stepscope.derive.rank.data import RankData
from stepscope.intervals.arrays import NONE, Mask
from stepscope.model.nesting import Nesting, nearest, nest
from stepscope.model.profile import Profile
from stepscope.model.range_names import TORCH_OP

_ENGINE = "autograd::engine::evaluate_function"
_NODE = r"Backward\d*$"
_NVTX = (
    r"^(?P<name>[^,]+)(?:, seq = (?P<sequence>\d+))?(?:, op_id = \d+)?"
    r"(?:, sizes = (?P<shapes>\[.*?\]))?(?:, input_op_ids|$)"
)


class TorchOps(Struct, frozen=True):
    """Ops nested per thread. Texts of `names`, `shapes`, `types` and `values` are null where they were not recorded."""

    frame: pl.DataFrame
    nesting: Nesting
    #: In a backward node; and of those, run with gradients recorded.
    backward: Mask
    again: Mask

    def __len__(self) -> int:
        return self.frame.height


def torch_ops(profile: Profile, data: RankData) -> TorchOps:
    """The torch ops of a rank, from whichever table has them."""
    frame = _host_ops(profile, data)
    if frame.height == 0:
        frame = _nvtx_ops(profile, data)
    tid, start, end = (frame[c].cast(pl.Int64).to_numpy() for c in ("tid", "start_ns", "end_ns"))
    nesting = nest(tid, start, end)
    node = frame["node"].to_numpy()
    recorded = (frame["sequence"].is_not_null() & ~frame["node"]).to_numpy()
    backward = nearest(node, nesting.parent) != NONE
    closest = nearest(node | recorded, nesting.parent)
    again = backward & (closest != NONE) & recorded[np.maximum(closest, 0)] if len(node) else backward
    return TorchOps(frame, nesting, backward, again)


def _host_ops(profile: Profile, data: RankData) -> pl.DataFrame:
    host = profile.once(_with_detail)[data.rank] if profile.has("host") else None
    names = profile.names
    if host is None:
        return _EMPTY
    host = host.filter(pl.col("kind") == "cpu_op")
    text = names.gather(host["name"]) if host.height else pl.Series([], dtype=pl.String)
    sequence = host["sequence"]
    # Torch numbers threads from 1: a forward op is of no forward thread, 0.
    node = (host["fwd_tid"].fill_null(0) > 0) | text.str.starts_with(_ENGINE)
    return pl.DataFrame(
        {
            **{c: host[c] for c in ("tid", "start_ns", "end_ns")},
            "name": text,
            **{c: _gather(names, host[of]) for c, of in _TEXTS.items()},
            "sequence": pl.select(pl.when(sequence >= 0).then(sequence)).to_series(),
            "node": node,
        },
        schema_overrides={"name": pl.String},
    )


def _nvtx_ops(profile: Profile, data: RankData) -> pl.DataFrame:
    ranges = data.ranges
    names = profile.names  # after the ranges: reading them adds their texts
    if ranges.height == 0:
        return _EMPTY
    torch = pl.Series(profile.names_with(TORCH_OP)[ranges["name"].to_numpy()])
    ranges = ranges.filter(torch & (ranges["kind"] == "pushpop"))
    if ranges.height == 0:
        return _EMPTY
    parts = names.gather(ranges["name"]).str.extract_groups(_NVTX).struct.unnest()
    text = parts["name"].fill_null("")
    return pl.DataFrame(
        {
            **{c: ranges[c] for c in ("tid", "start_ns", "end_ns")},
            "name": text,
            "shapes": parts["shapes"],
            "types": pl.Series([None] * len(text), dtype=pl.String),
            "values": pl.Series([None] * len(text), dtype=pl.String),
            "sequence": parts["sequence"].cast(pl.Int64),
            "node": text.str.starts_with(_ENGINE) | text.str.contains(_NODE),
        }
    )


_TEXTS = {"shapes": "shapes", "types": "types", "values": "inputs"}
_EMPTY = pl.DataFrame(
    schema={
        "tid": pl.Int32,
        "start_ns": pl.Int64,
        "end_ns": pl.Int64,
        "name": pl.String,
        **dict.fromkeys(_TEXTS, pl.String),
        "sequence": pl.Int64,
        "node": pl.Boolean,
    }
)


def _with_detail(profile: Profile) -> dict[int, pl.DataFrame]:
    return dict(profile.by_rank("host", detail=True))


def _gather(names: pl.Series, ids: pl.Series) -> pl.Series:
    """Texts by id, null for null."""
    return names.gather(ids.cast(pl.Int64)) if len(names) else pl.Series([None] * len(ids), dtype=pl.String)
