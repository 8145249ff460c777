"""How far apart are the hosts' clocks, and how well is that known?

Offsets and drifts come from the ends of collectives that no rank leaves before all have come (barriers and all-reduces
first), solved over all overlapping groups at once. `offset_ns` is the clock minus the first host's at the start of the
capture, once times have been rebased by the sessions' UTC: subtract it. Clocks that differ by less than the residual
are taken for one. Hosts that share no such collective with the first have no offset.
"""

from __future__ import annotations

from typing import Annotated, TypedDict

import numpy as np

from stepscope.derive.comm.across import across
from stepscope.model.note import noted
from stepscope.model.profile import Profile
from stepscope.model.ranks import ranks_text
from stepscope.model.result import Result, rows

ACROSS = True


class Row(TypedDict):
    host: Annotated[str, "host, or the file's name where the trace does not say"]
    offset_ns: Annotated[int | None, "its clock minus that of the first host; null where nothing connects them"]
    drift_ppm: Annotated[float | None, "how much faster it runs, parts per million"]
    residual_p50_ns: Annotated[int | None, "median deviation of corrected ends from their collective's"]
    residual_p95_ns: Annotated[int | None, "95th percentile of it"]
    n: Annotated[int, "collectives that say so"]
    file: Annotated[str, "the file that has this clock"]
    ranks: Annotated[str, "ranks in it"]
    clock: Annotated[int, "files with the same number cannot be told apart: one clock"]


def clocks(profile: Profile) -> Result:
    sides = across(profile)
    c = sides.clocks
    table: list[Row] = []
    by_source = profile.by_source()
    numbers = {s: i for i, s in enumerate(np.unique(c.same).tolist())}
    for i, (source, mine) in enumerate(by_source.items()):
        joined = bool(c.component[i] == c.component[0])
        table.append(
            {
                "host": mine["host"][0],
                "offset_ns": round(c.offset[i]) if joined else None,
                "drift_ppm": float(c.drift[i] * 1e6) if joined else None,
                "residual_p50_ns": _whole(c.residual_p50[i]),
                "residual_p95_ns": _whole(c.residual_p95[i]),
                "n": int(c.n[i]),
                "file": profile.source_info(source).file.rsplit("/", 1)[-1],
                "ranks": ranks_text(mine["rank"].to_list()),
                "clock": numbers[int(c.same[i])],
            }
        )
    notes = list(sides.notes)
    if len(by_source) == 1:
        notes.append(noted("one-clock"))
    summary = {"residual_p95_ns": round(c.residual), "clocks": len(numbers)}
    return Result(rows(Row, table), summary=summary, notes=notes)


def _whole(ns: float) -> int | None:
    return None if np.isnan(ns) else round(float(ns))
