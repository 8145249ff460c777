"""What is exported: tables of the model with all their columns, and what connects their rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from stepscope import progress
from stepscope.derive.comm.across import across
from stepscope.derive.comm.common_clock import CommonClock, common_clock
from stepscope.errors import CannotAnswer
from stepscope.model.exported import TITLES, Header
from stepscope.model.profile import Profile
from stepscope.model.schema import PROCESSES, TABLES

#: Added columns: ids that the rows of one launch, the sides of one communication, and the ops of one dependency share.
#: One op may take part in several communications (sends and receives that were grouped), and have many dependencies.
LAUNCH = "launch_flow"
MEETINGS = tuple(f"meeting_flow_{k}" for k in range(8))
DEPENDENCIES = tuple(f"dependency_flow_{k}" for k in range(8))
FLOWS = (LAUNCH, *MEETINGS, *DEPENDENCIES)
#: Where the ids of each begin.
_FIRST_MEETING, _FIRST_DEPENDENCY = 1 << 40, 1 << 41


@dataclass(frozen=True)
class Content:
    """Tables by name, each by rank and time; text ids are those of `names`."""

    ranks: pl.DataFrame
    tables: dict[str, pl.DataFrame]
    names: pl.Series
    clock: CommonClock
    header: Header

    def limited(self, tables: dict[str, pl.DataFrame]) -> Content:
        """The same with other rows."""
        return replace(self, tables=tables)


def content_of(profile: Profile) -> Content:
    """All tables that have times, as the profile has them."""
    recorded = [name for name in TITLES if profile.has(name)]
    tables = {}
    for done, name in enumerate(recorded):
        progress.report("reading tables", done, len(recorded))
        tables[name] = profile.table(name, detail=True)
    if "ops" in tables and "calls" in tables:
        tables["ops"], tables["calls"] = _launches(tables["ops"], tables["calls"])
    if "ops" in tables and profile.ranks.height > 1:
        tables["ops"] = _meetings(profile, tables["ops"])
    if "ops" in tables and "dependencies" in tables:
        tables["ops"] = _dependencies(tables["ops"], tables["dependencies"])
    return Content(profile.ranks, tables, profile.names, common_clock(profile), _header(profile))


def _launches(ops: pl.DataFrame, calls: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """An id for every call that launched something, on the call and on what it launched."""
    first = np.searchsorted(calls["rank"].to_numpy(), ops["rank"].to_numpy())
    flow = (ops["launch"].cast(pl.Int64) + pl.Series(first + 1)).alias(LAUNCH)
    launched = np.zeros(calls.height, dtype=bool)
    launched[flow.drop_nulls().to_numpy() - 1] = True
    number = pl.int_range(1, pl.len() + 1, dtype=pl.Int64)
    return ops.with_columns(flow), calls.with_columns(pl.when(pl.Series(launched)).then(number).alias(LAUNCH))


def _meetings(profile: Profile, ops: pl.DataFrame) -> pl.DataFrame:
    """An id for every communication that several ranks took part in, on the op of each. Launches have other ids."""
    try:
        met = across(profile)
    except CannotAnswer:
        return ops
    sides = met.matched.sides.select(
        pl.col("rank").cast(pl.Int32),
        pl.col("op").cast(pl.Int64),
        (pl.col("meeting").cast(pl.Int64) + _FIRST_MEETING).alias("flow"),
    ).unique(maintain_order=True)
    rows = ops.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).over("rank").alias("op"))
    return _with_flows(rows, sides, "op", MEETINGS).drop("op")


def _dependencies(ops: pl.DataFrame, dependencies: pl.DataFrame) -> pl.DataFrame:
    """An id for every dependency, on both its ops."""
    numbered = dependencies.with_columns(flow=pl.int_range(pl.len(), dtype=pl.Int64) + _FIRST_DEPENDENCY)
    ends = [numbered.select("rank", pl.col(end).alias("op_id"), "flow") for end in ("op_id", "after_id")]
    return _with_flows(ops, pl.concat(ends).sort("flow"), "op_id", DEPENDENCIES)


def _with_flows(ops: pl.DataFrame, flows: pl.DataFrame, key: str, columns: tuple[str, ...]) -> pl.DataFrame:
    """The ops with the flows of each, as many as there are columns for them."""
    nth = flows.with_columns(pl.int_range(pl.len()).over("rank", key).alias("nth"))
    for k, column in enumerate(columns):
        of = nth.filter(pl.col("nth") == k).select("rank", key, pl.col("flow").alias(column))
        if of.height:
            ops = ops.join(of, on=["rank", key], how="left", maintain_order="left")
    return ops


def _header(profile: Profile) -> Header:
    used = sorted(set(profile.ranks["source"].to_list()))
    sources = [profile.source_info(i) for i in used]
    first = sources[0]
    info: dict[str, Any] = {
        "files": [s.file.rsplit("/", 1)[-1] for s in sources],
        "format": first.format if len({s.format for s in sources}) == 1 else None,
        "tool": first.tool if len({s.tool for s in sources}) == 1 else None,
        "schema": first.schema if len({s.schema for s in sources}) == 1 else None,
        "epoch_ns": first.epoch_ns,
        "capture_ns": first.capture_ns if len(sources) == 1 else None,
        "facts": first.facts if all(s.facts == first.facts for s in sources) else {},
    }
    numbered = pl.int_range(pl.len(), dtype=pl.Int32).alias("proc")
    processes = profile.ranks.with_columns(numbered, devices=pl.lit(None, pl.String)).select(list(PROCESSES))
    read = [note.data() for note in profile.notes if note.origin != "analysis"]
    return Header([t for t in TABLES if t in TITLES and profile.has(t)], processes.to_dicts(), info, read)
