"""Calls of libraries: cuBLAS, cuDNN, NCCL, MPI, UCX, OpenACC, as the profiler traced them or as they mark themselves.

They are ranges of their own kind: what was launched in one was launched by it, but it is not part of the program, so
never a step or a stage, and no range encloses an op because of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from stepscope.derive.rank.data import RankData
from stepscope.derive.rank.ranges import LIBRARY_DOMAINS
from stepscope.intervals.arrays import I64
from stepscope.model.nesting import Nesting, nest

#: Kinds of host records that are calls of a library, and what it is called.
_KINDS = {"mpi": "MPI", "cublas": "cuBLAS", "cudnn": "cuDNN", "ucx": "UCX", "openacc": "OpenACC"}


@dataclass(frozen=True)
class LibraryCalls:
    """Calls of one rank by thread: `tid`, `start_ns`, `end_ns`, `library` and `name`, as texts; and how they nest."""

    frame: pl.DataFrame
    nesting: Nesting

    def enclosing(self, tid: I64, at: I64) -> I64:
        """Row of the innermost call around each moment; NONE where there is none."""
        return self.nesting.enclosing(tid, at)


def library_ranges(data: RankData) -> pl.DataFrame:
    """Rows of the rank's ranges that libraries pushed themselves."""
    ranges = data.ranges
    of_library = pl.Series(data.profile.names_with(LIBRARY_DOMAINS))
    domain = ranges["domain"]
    return ranges.filter(of_library.gather(domain.fill_null(0)) & domain.is_not_null() & (pl.col("kind") == "pushpop"))


def library_calls(data: RankData) -> LibraryCalls:
    return data.once(_library_calls)


def _library_calls(data: RankData) -> LibraryCalls:
    times = ("tid", "start_ns", "end_ns")
    marked, traced = library_ranges(data), data.host.filter(pl.col("kind").is_in(list(_KINDS)))
    names = data.profile.names  # after both were read
    frame = pl.concat(
        [
            marked.select(
                *times, names.gather(marked["domain"]).alias("library"), names.gather(marked["name"]).alias("name")
            ),
            traced.select(
                *times,
                pl.col("kind").cast(pl.String).replace_strict(_KINDS, return_dtype=pl.String).alias("library"),
                names.gather(traced["name"]).alias("name"),
            ),
        ]
    )
    tid, start, end = (frame[c].cast(pl.Int64).to_numpy() for c in times)
    return LibraryCalls(frame, nest(tid, start, end))
