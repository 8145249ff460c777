"""The torch op around each launch, and the bytes that such an op has to move, by the shapes of its arguments."""

from __future__ import annotations

import math
import re
from functools import cache

import numpy as np
import polars as pl
from msgspec import Struct

from stepscope.derive.flops.count import Arguments
from stepscope.derive.pytorch.torch_ops import TorchOps, torch_ops
from stepscope.derive.rank.data import RankData
from stepscope.intervals.arrays import F64, I64, NONE, take

_BYTES = {
    "float": 4,
    "double": 8,
    "c10::half": 2,
    "c10::bfloat16": 2,
    "long int": 8,
    "long": 8,
    "int": 4,
    "bool": 1,
    "unsigned char": 1,
    "signed char": 1,
    "short int": 2,
    "c10::complex<float>": 8,
    "c10::float8_e4m3fn": 1,
    "c10::float8_e5m2": 1,
}
#: Ops that give little: what they read is all.
_REDUCING = re.compile(r"::(_?sum|mean|amax|amin|max|min|norm|linalg_vector_norm|var|std|any|all|argmax|nll_loss\w*)$")
_FILLING = re.compile(r"::(fill_|zero_|zeros\w*|ones\w*|full\w*)$")
#: The first argument is a table, of which only the rows asked for are read.
_LOOKING_UP = re.compile(r"::(embedding|index_select|gather|index)$")


class Launching(Struct, frozen=True):
    """The torch ops of a rank, and for each of its GPU ops the innermost of them around the launch; NONE for none."""

    torch: TorchOps
    op: I64

    def names(self, ops: I64) -> pl.Series:
        """The innermost torch op of each GPU op; null for none."""
        rows = pl.Series(self.op[ops]).replace(NONE, None)
        return self.torch.frame["name"].gather(rows)


def launching(data: RankData) -> Launching:
    """Which torch op launched what."""
    return data.once(_launching)


def _launching(data: RankData) -> Launching:
    torch = torch_ops(data.profile, data)
    op_of = np.full(len(data.start), NONE, dtype=np.int64)
    linked = np.flatnonzero(data.launch != NONE)
    if len(torch) and len(linked):
        threads = data.calls["tid"].cast(pl.Int64).to_numpy()[data.launch[linked]]
        op_of[linked] = torch.nesting.enclosing(threads, data.launched_at[linked])
    return Launching(torch, op_of)


def op_bytes(data: RankData, ops: I64) -> F64:
    """Bytes that the torch op of each kernel reads and writes; of several kernels of one op, a part by their times.

    NaN where shapes were not recorded.
    """
    launched = launching(data)
    rows = launched.op[ops]
    if not len(rows) or (rows == NONE).all():
        return np.full(len(ops), np.nan)
    asked, where = np.unique(rows, return_inverse=True)
    moved = take(
        _moved(launched.torch.frame, asked[asked != NONE]), np.where(asked == NONE, NONE, _places(asked)), np.nan
    )
    length = (data.end - data.start)[ops].astype(float)
    total = np.bincount(where, weights=length)
    op_bytes: F64 = moved[where] * np.divide(length, total[where], out=np.ones(len(ops)), where=total[where] > 0)
    return op_bytes


def _places(asked: I64) -> I64:
    """Places among those that are there: the first may be NONE."""
    places: I64 = np.arange(len(asked)) - int(len(asked) > 0 and asked[0] == NONE)
    return places


def _moved(frame: pl.DataFrame, rows: I64) -> F64:
    some = frame.select("name", "shapes", "types")[rows]
    distinct = some.unique(maintain_order=True)
    judged = [bytes_of(*row) for row in distinct.iter_rows()]
    with_bytes = distinct.with_columns(bytes=pl.Series(judged, dtype=pl.Float64))
    joined = some.join(with_bytes, on=some.columns, how="left", nulls_equal=True, maintain_order="left")
    return joined["bytes"].cast(pl.Float64).fill_null(np.nan).to_numpy()


@cache
def bytes_of(name: str, shapes: str | None, types: str | None) -> float | None:
    """What an op other than a product reads and writes, where shapes say; numbers are of 4 bytes where no type says."""
    if shapes is None:
        return None
    args = Arguments.parsed(shapes, types, None)
    tensors = [
        (math.prod(shape), _BYTES.get(args.type(i).lower(), 4))
        for i, shape in enumerate(args.shapes)
        if isinstance(shape, list) and shape and all(isinstance(n, int) for n in shape)
    ]
    if not tensors:
        return None
    if _FILLING.search(name):
        return float(tensors[0][0] * tensors[0][1])
    if _LOOKING_UP.search(name) and len(tensors) > 1:
        width = args.shapes[0][-1] if name.endswith("::embedding") else 1
        return float(2 * tensors[1][0] * width * tensors[0][1])
    read = sum(count * size for count, size in tensors)
    if name.endswith("::copy_"):
        return float(read)
    if _REDUCING.search(name):
        return float(read)
    largest = max(tensors)
    return float(read + largest[0] * (tensors[0][1] if name.endswith("_") else largest[1]))
