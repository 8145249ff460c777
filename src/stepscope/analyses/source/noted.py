"""Kernels that graphs replay, credited by what the program noted when it captured them."""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import structs

from stepscope.derive.pytorch.annotations import noted_at_capture
from stepscope.derive.pytorch.frames import BACKWARD, FORWARD, Callers
from stepscope.derive.rank.data import RankData
from stepscope.intervals.arrays import I64


def with_notes(data: RankData, ops: I64, found: Callers) -> Callers:
    """The same, with module, line and pass of ops that were noted: a replay's own launch says nothing of them."""
    noted = noted_at_capture(data)
    if noted is None:
        return found
    of_ops = noted[ops]
    placed = of_ops["module"].is_not_null() | of_ops["frame"].is_not_null()
    backward = (of_ops["phase"] == "backward").fill_null(False).to_numpy()
    module = pl.select(pl.coalesce(of_ops["module"], found.module)).to_series()
    frame = pl.select(pl.coalesce(of_ops["frame"], pl.when(~placed).then(found.frame))).to_series()
    # A name is of what `mark_kernels` encloses, which says `backward` of its own; a stack alone is of any pass.
    named = of_ops["module"].is_not_null().to_numpy()
    phase = np.where(backward, BACKWARD, np.where(named, FORWARD, found.phase))
    return structs.replace(found, module=module, frame=frame, phase=phase)
