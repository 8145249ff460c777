"""Collapsed stacks (`rank 0;step 3;forward 1234`), one line each: what flame graph tools read."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from stepscope.errors import BadInput
from stepscope.files import whole
from stepscope.model.profile import Profile

_WEIGHT = {
    "host": pl.col("self_host_ns"),
    "gpu": pl.col("self_kernel_ns") + pl.col("self_comm_ns") + pl.col("self_copy_ns"),
}


def collapsed(table: pl.DataFrame, weight: str) -> list[str]:
    """Lines of self time in nanoseconds per rank and path, largest first; `table` has `path` and the self columns."""
    clean = pl.col("path").str.replace_all(";", ":", literal=True).str.replace_all(r"\s+", " ")
    stacks = (
        table.with_columns(_WEIGHT[weight].alias("ns"))
        .group_by("rank", clean.str.replace_all(" > ", ";", literal=True).alias("stack"))
        .agg(pl.col("ns").sum())
        .filter(pl.col("ns") > 0)
        .sort(["rank", "ns", "stack"], descending=[False, True, False])
    )
    return [f"rank {rank};{stack} {ns}" for rank, stack, ns in stacks.iter_rows()]


def write_flame(profile: Profile, table: pl.DataFrame, file: Path, weight: str) -> None:
    """Write the stacks, but never over what was read."""
    file = Path(file)
    if profile.reads(file):
        raise BadInput(f"--flame {file}: is one of the inputs", "choose another file")
    whole.write(file, "".join(f"{line}\n" for line in collapsed(table, weight)).encode(), "--flame {}")
