"""The work of a rank: by shapes and, where they do not say, by what Nsight Compute counted.

What was counted was run, whether asked for or not.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl

from stepscope.derive.flops.work import Work, from_kernels, from_shapes
from stepscope.derive.kernel.matching import joined, matches_of
from stepscope.derive.kernel.roofline import roofline_of
from stepscope.derive.rank.data import RankData
from stepscope.intervals.arrays import NONE
from stepscope.model.profile import Profile

#: Families whose arithmetic counts: that of element-wise kernels does not, whoever counts it.
_FAMILIES = ["gemm", "attention", "convolution"]


def with_measured(profile: Profile, data: RankData, work: Work) -> Work:
    """The same work, with measured kernels where it has no count; as it is where nothing was measured."""
    if not joined(profile):
        return work
    kernel = profile.once(matches_of)[data.rank].kernel
    roofline = profile.once(roofline_of)
    family = profile.taxonomy.family(profile.names)
    counts = family.is_in(_FAMILIES).to_numpy()[data.name]
    has_flops = (work.ops["asked"].is_not_null()).to_numpy()
    counted = (work.of_kernel != NONE) & (has_flops[np.maximum(work.of_kernel, 0)] if len(has_flops) else False)
    operations = np.nan_to_num(roofline.operations, nan=-1.0)
    flops = np.where((kernel != NONE) & counts & ~counted, operations[np.maximum(kernel, 0)], -1.0)
    names = [work.precision for work in roofline.works]
    precision = pl.Series([names[at] if at >= 0 else None for at in roofline.main.tolist()], dtype=pl.String)
    more = from_kernels(
        flops.astype(np.int64),
        precision.gather(np.maximum(kernel, 0)) if len(precision) else pl.Series([None] * len(kernel), dtype=pl.String),
        profile.names.gather(data.name),
    )
    of_kernel = np.where(more.of_kernel != NONE, more.of_kernel + work.ops.height, work.of_kernel)
    return replace(work, ops=pl.concat([work.ops, more.ops]), of_kernel=of_kernel)


def work_of(data: RankData) -> Work:
    """The work of a rank: by shapes, and measured where they do not say."""
    return data.once(_work)


def _work(data: RankData) -> Work:
    return with_measured(data.profile, data, from_shapes(data.profile, data))
