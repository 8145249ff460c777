"""Gradients of gathered rows: sorts of the index, and dense gradients of tables of which few rows were used.

What it could save is the step replayed without those sorts, without filling such gradients, and without the part of the
optimizer's step that passes over them.

In the backward pass an index is sorted so that rows that come twice are added in order (`index_put` with accumulate,
embeddings): `index_add_` and sparse gradients need no sort, nor what goes with it. A gradient of a table is as large as
the table: it is filled with zeros, and the optimizer passes over all of it. A sparse gradient has the rows that were
used alone. Few are used where filling takes longer than scattering, and where the grid that scatters covers a part of
the table only, in a model most of whose parameters are tables: of a language model the embedding is one of many, and
its optimizer passes over all. A tensor is a table's where it is filled within a segment that scatters to a table, and
of its size the optimizer's kernels have a share.
"""

from __future__ import annotations

import numpy as np

from stepscope.derive.work.roles import Role
from stepscope.derive.work.sizes import launches
from stepscope.findings.case import Case
from stepscope.findings.evidence.claims import claimed
from stepscope.findings.evidence.sequence import SAME_SIZE, SMALL_TENSOR, Sequence
from stepscope.findings.evidence.wasted import Told
from stepscope.findings.texts import advice, title
from stepscope.intervals.arrays import F64, I64, Mask
from stepscope.model.statement import several
from stepscope.model.threshold import Threshold
from stepscope.model.units import about

ID = "slow-indexing"

MOSTLY_ZEROS = Threshold(
    2.0,
    "times the scattering",
    "filling a table with zeros takes less than scattering to most of its rows",
    ("tests/findings/test_slow_indexing.py", "h200/hf/hf1_healthy.sqlite"),
)
FEW_ROWS = Threshold(
    25.0,
    "% of the table",
    "sparse gradients are sorted and added up, too: of more rows than that, a dense pass is about as quick",
    ("tests/findings/test_slow_indexing.py", "tests/data/pairs"),
)
MODEL_OF_TABLES = Threshold(
    80.0,
    "% of what the optimizer passes over",
    "embeddings are 98 % of a recommendation model, and up to 67 % of language models of two layers",
    ("tests/findings/test_slow_indexing.py", "tests/data/pairs"),
)


_SCATTERED = r"(?i)embedding\w*(backward|_grad)|compute_grad_weight|sum_and_scatter|krn_partial|indexing_backward"
#: Counting and offsets, for sorted gradients alone.
_OF_SORTING = r"(?i)krn_partial|compute_num_of_partial"
#: Kernels that have a fill before them and no table: they choose, and do not scatter.
_FUSED_STEP = r"(?i)multi_tensor_apply|fused_?adam"


def claim(sequence: Sequence, free: Mask) -> F64:
    """What is left of each kernel that another formulation would not need: nothing; NaN for others."""
    left = np.full(len(sequence.ops), np.nan)
    scattered = sequence.data.profile.names_with(_SCATTERED)[sequence.data.name[sequence.ops]] & sequence.back
    if not scattered.any():
        return left
    near = np.isin(sequence.stretch, np.unique(sequence.stretch[scattered])) & sequence.back
    left[free & near & _sorting(sequence)] = 0.0
    fills = near & sequence.kinds.are(Role.FILL) & (sequence.sizes.elements >= SMALL_TENSOR.value)
    tables = np.flatnonzero(fills)
    if not len(tables):
        return left
    if sequence.ns[tables].sum() < MOSTLY_ZEROS.value * sequence.ns[scattered].sum():
        tables = _of_few_rows(sequence, tables, scattered)
    left[tables[free[tables]]] = 0.0
    _step(sequence, tables, free, left)
    return left


def _sorting(sequence: Sequence) -> Mask:
    """Sorts, their counters that are set to zero before, and what only sorted gradients need."""
    sort = sequence.kinds.are(Role.SORT)
    behind = np.r_[sort[1:], False] & np.r_[sequence.stretch[1:] == sequence.stretch[:-1], False]
    counter = sequence.kinds.are(Role.FILL) & ~sequence.data.is_kernel[sequence.ops] & behind
    of_sorting = sequence.data.profile.names_with(_OF_SORTING)[sequence.data.name[sequence.ops]]
    mask: Mask = sort | counter | of_sorting
    return mask


def _of_few_rows(sequence: Sequence, tables: I64, scattered: Mask) -> I64:
    """Those of which grids that scatter cover little, where the optimizer passes over little else; else none."""
    shape = launches(sequence.data, sequence.ops)
    threads = np.where(scattered, shape.blocks * shape.threads, 0)
    covered = np.maximum.reduceat(threads, tables)  # from each table to the next
    elements = sequence.sizes.elements[tables]
    few = (covered > 0) & (covered <= FEW_ROWS.share * elements)
    stepped = sequence.optimizer & ~np.isnan(sequence.sizes.elements)
    _, name = np.unique(sequence.data.name[sequence.ops[stepped]], return_inverse=True)
    passed = np.bincount(name, weights=sequence.sizes.elements[stepped]).max(initial=0.0)
    return tables[few] if elements[few].sum() > MODEL_OF_TABLES.share * passed > 0 else tables[:0]


def _step(sequence: Sequence, tables: I64, free: Mask, left: F64) -> None:
    """The optimizer's kernels: of a kernel for one tensor, those of the tables' sizes; of one for many, a share."""
    at = np.flatnonzero(free & sequence.optimizer & ~np.isnan(sequence.sizes.elements))
    if not len(at) or not len(tables):
        return
    sizes = np.unique(sequence.sizes.elements[tables])
    elements = sequence.sizes.elements[at]
    nearest = sizes[np.argmin(np.abs(elements[:, None] - sizes[None, :]), axis=1)]
    alone = np.abs(elements / nearest - 1) < SAME_SIZE.share
    left[at[alone]] = 0.0
    listed = sequence.data.profile.names_with(_FUSED_STEP)[sequence.data.name[sequence.ops[at]]] & ~alone
    rows = at[listed]
    if len(rows) and not alone.any():
        by_name = np.unique(sequence.data.name[sequence.ops[rows]], return_inverse=True)[1]
        whole = np.bincount(by_name, weights=sequence.sizes.elements[rows])[by_name]
        kept = np.clip(1 - float(sequence.sizes.elements[tables].sum()) / whole, 0.0, 1.0)
        left[rows[kept < 1]] = kept[kept < 1]


def _worded(case: Case, lost: Told) -> tuple[str, str, str]:
    return (
        title("slow-indexing", kernels=several(lost.kernels, "kernel"), rank=lost.rank),
        f"sorting indices, zeroing whole tables and the optimizer's pass over them take {about(lost.took_ns)} of "
        f"the step on rank {lost.rank}, {lost.most}; {about(lost.good_ns)} of that would remain",
        advice("slow-indexing"),
    )


remedy, detect = claimed(ID, _worded)
