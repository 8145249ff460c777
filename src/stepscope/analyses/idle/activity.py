"""What the host did while the GPU waited, where the trace tells: calls of the OS and of libraries, torch ops, the GIL.

Of everything recorded on the launching thread, the innermost record open at the middle of a stretch says it best:
`read` rather than the training loop around it. Where there is none, a CPU sample taken in the stretch does.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from stepscope.analyses.idle.threads import sample_texts
from stepscope.derive.host.gil import WAITING, lock_ranges
from stepscope.derive.host.idle_causes import GIL, HOST, Pieces
from stepscope.derive.rank.data import RankData
from stepscope.derive.rank.libraries import library_ranges
from stepscope.intervals.arrays import NONE, one_of
from stepscope.model.nesting import nest
from stepscope.model.profile import Profile


def doing(profile: Profile, data: RankData, pieces: Pieces) -> pl.Series:
    """Innermost host record at the middle of each `host` stretch, as `kind: name`; null where nothing was recorded."""
    asked = np.flatnonzero(one_of(pieces.cause, (HOST, GIL)))
    records = _records(profile, data)
    recorded = pl.repeat(None, len(pieces.start), dtype=pl.String, eager=True).alias("doing")
    if records.height and len(asked):
        start, end, tid = (records[c].cast(pl.Int64).to_numpy() for c in ("start_ns", "end_ns", "tid"))
        middle = (pieces.start + pieces.end)[asked] // 2
        at = nest(tid, start, end).enclosing(pieces.tid[asked], middle)
        hit = at != NONE
        recorded = recorded.scatter(asked[hit], records["doing"].gather(at[hit]))
    return _or_sampled(profile, data, pieces, recorded)


def _or_sampled(profile: Profile, data: RankData, pieces: Pieces, recorded: pl.Series) -> pl.Series:
    """What is not told, by the first sample of the thread in the stretch: `sample: function [module]`."""
    if not profile.has("samples"):
        return recorded
    asked = np.flatnonzero(one_of(pieces.cause, (HOST, GIL)) & recorded.is_null().to_numpy())
    at = np.full(len(asked), NONE, dtype=np.int64)
    tid, start = (data.samples[c].cast(pl.Int64).to_numpy() for c in ("tid", "start_ns"))
    for thread in np.unique(pieces.tid[asked]).tolist():
        rows = np.flatnonzero(tid == thread)
        mine = np.flatnonzero(pieces.tid[asked] == thread)
        place = np.searchsorted(start[rows], pieces.start[asked[mine]])
        hit = place < len(rows)
        hit[hit] = start[rows[place[hit]]] < pieces.end[asked[mine[hit]]]
        at[mine[hit]] = rows[place[hit]]
    there = at != NONE
    texts = "sample: " + sample_texts(profile, data.samples[at[there]])
    return recorded.scatter(asked[there], texts)


def _records(profile: Profile, data: RankData) -> pl.DataFrame:
    """Host records of the rank, its library ranges and its waits for the GIL: tid, start_ns, end_ns and what to say."""
    times = ["tid", "start_ns", "end_ns"]
    host, gil = data.host, lock_ranges(data, WAITING)
    names = profile.names  # grows as tables are read: taken after them
    library = library_ranges(data)
    kinds = pl.concat(
        [
            host["kind"].cast(pl.String),
            pl.Series(["gil"] * gil.height, dtype=pl.String),
            names.gather(library["domain"]).str.to_lowercase(),
        ]
    )
    parts = [host, gil, library]
    called = names.gather(pl.concat([part["name"] for part in parts]))
    frame = pl.concat([part.select(times) for part in parts])
    return frame.with_columns(pl.concat_str(kinds, pl.lit(": "), called).alias("doing"))
