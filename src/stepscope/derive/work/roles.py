"""What each kernel does, judged once per name: its role, the numbers it computes with, whether tensor cores do it.

Names alone, so that it holds for every trace; torch ops and shapes say more where they were recorded (`sizes`,
`groups`). Rules are data (`rules.py`).
"""

from __future__ import annotations

import re
from functools import cache

import numpy as np
import polars as pl
from msgspec import Struct

from stepscope.derive.rank.data import COMM, RankData
from stepscope.derive.work.rules import ALIGNMENT, BACKWARD, MULTIPLYING, NO_MATRIX, PRECISIONS, RULES, Role
from stepscope.intervals.arrays import I64, Mask, one_of
from stepscope.model.demangle import demangle
from stepscope.model.first_match import first_of

__all__ = ["Kernel", "Kernels", "Role", "kernel", "kernels"]

#: Codes of `Kernels.precision`.
PRECISION = ("", "fp4", "fp8", "int8", "bf16", "fp16", "tf32", "fp32", "fp64")

_NOISE = re.compile(r"^void |\(anonymous namespace\)::|<unnamed>::|\{anonymous\}::")


class Kernel(Struct, frozen=True):
    """What a name says. `precision` is of kernels that multiply; None where the name does not say.

    `alignment`: elements that the loads of a product are aligned to, where the name says (1, 2, 4, 8).
    `backward`: the name itself says that it computes gradients; False says nothing.
    """

    role: Role
    precision: str | None = None
    alignment: int | None = None
    backward: bool = False
    #: a product whose work is a matrix's: not with a vector, not the sum of a product's parts
    matrix: bool = False


@cache
def kernel(name: str) -> Kernel:
    """What the kernel of this name does."""
    text = _NOISE.sub("", demangle(name))
    # Of a mangled name that was cut short, what is readable may leave out all that says what it does.
    role = first_of(text, RULES) or first_of(name, RULES) or Role.OTHER
    backward = BACKWARD.search(text) is not None
    if role not in MULTIPLYING:
        return Kernel(role, backward=backward)
    aligned = ALIGNMENT.search(text)
    return Kernel(
        role,
        first_of(text, PRECISIONS),
        int(aligned[1]) if aligned else None,
        backward,
        NO_MATRIX.search(text) is None,
    )


class Kernels(Struct, frozen=True):
    """By row of the ops that were asked about: what their names say."""

    role: np.ndarray[tuple[int], np.dtype[np.int8]]
    #: index into PRECISION; 0 where the name does not say
    precision: np.ndarray[tuple[int], np.dtype[np.int8]]
    #: 1 on tensor cores, 0 not, -1 where the name does not say
    tensor: np.ndarray[tuple[int], np.dtype[np.int8]]
    #: 0 where the name does not say
    alignment: np.ndarray[tuple[int], np.dtype[np.int8]]
    backward: Mask
    matrix: Mask

    def are(self, *roles: Role) -> Mask:
        """Ops of one of these roles."""
        return one_of(self.role, roles)


def kernels(data: RankData, ops: I64) -> Kernels:
    """What the names of these ops say. An op is communication by its role in the trace (a peer copy is, too)."""
    names = data.name[ops].astype(np.intp)
    role, precision, tensor, alignment, backward, matrix = (of_name.take(names) for of_name in data.once(_of_names))
    role[data.role[ops] == COMM] = Role.COMMUNICATION
    return Kernels(role, precision, tensor, alignment, backward.astype(bool), matrix.astype(bool))


def _of_names(data: RankData) -> np.ndarray[tuple[int, int], np.dtype[np.int8]]:
    """By fact and id of a name: what the names of the rank's ops say."""
    ids = pl.Series(data.name).unique().cast(pl.Int64).to_numpy()
    texts = data.profile.names.gather(ids) if len(ids) else pl.Series([], dtype=pl.String)
    kernels_of = [kernel(text) for text in texts.to_list()]
    by_name = np.zeros((6, int(ids.max(initial=-1)) + 1), np.int8)
    facts: tuple[list[int], ...] = (
        [int(k.role) for k in kernels_of],
        [PRECISION.index(k.precision or "") for k in kernels_of],
        data.profile.taxonomy.tensor_core(texts).cast(pl.Int8).fill_null(-1).to_list(),
        [k.alignment or 0 for k in kernels_of],
        [int(k.backward) for k in kernels_of],
        [int(k.matrix) for k in kernels_of],
    )
    for row, values in enumerate(facts):
        by_name[row, ids] = values
    return by_name
