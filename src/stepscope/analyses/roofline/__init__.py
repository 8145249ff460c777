"""How far is each measured kernel from its roof, and what bounds it: bandwidth, compute, latency, overhead?

Of kernels that Nsight Compute measured (`.ncu-rep`, `ncu --csv`). FLOPs are counted by precision and pipe, bytes at
DRAM, L2 and L1, and the roofs above them are the report's own: peaks per cycle at the clock that the kernel ran at.
Tensor cores are compared with their dense roof, not with the one for sparse matrices. `bound` and the figures that
decide it (`why`) are those of Nsight Compute's speed of light: busy is 60 % of peak. A kernel where nothing is busy
waits (latency), unless most of its time goes to starting and ending it (overhead).

`roof_pct` is the part of its nearest roof that a kernel reaches: the longest of its FLOPs at their peak and its bytes
at each bandwidth, over the time that it took. Kernels run alone while they are measured, with caches cleared between
passes unless ncu was told otherwise: times are not those of the training step. Launches of the same work (name, grid,
block, FLOPs) are one row; `--by kernel` has each. `-o FILE.svg` draws the roofline.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, cast

import numpy as np
import polars as pl

from stepscope.analyses.roofline.columns import ByLevel, ByPrecision, ByRule, ByStall, InTimeline, Row
from stepscope.analyses.roofline.stalls import stalls
from stepscope.analyses.roofline.views import (
    by_level,
    by_precision,
    by_rule,
    by_stall,
    finite,
    share_of_level,
    which_kernel,
    whole,
)
from stepscope.analyses.roofline.wording import roof_notes, statement, summed_up
from stepscope.derive.kernel.access import access, pattern_of
from stepscope.derive.kernel.bound import Bound, bounds_of
from stepscope.derive.kernel.matching import joined, matches_of, variants_of
from stepscope.derive.kernel.measured import ratio
from stepscope.derive.kernel.occupancy import Occupancy, occupancies
from stepscope.derive.kernel.roofline import Roofline, roofline_of
from stepscope.derive.kernel.work import LEVELS
from stepscope.derive.rank.pattern import check_pattern
from stepscope.errors import CannotAnswer
from stepscope.intervals.arrays import NONE
from stepscope.model.option import Effect
from stepscope.model.profile import Profile
from stepscope.model.result import Result, blank, rows
from stepscope.model.statement import STATEMENT

VARIANTS = {"by=kernel": Row, "by=precision": ByPrecision, "by=level": ByLevel, "by=stall": ByStall, "by=rule": ByRule}

#: Files without a timeline are what it is about.
TIMELESS = True
#: What a view shows, and the sections of ncu that have it.
_COLLECTS = {
    "stall": ("stall reasons", "--section WarpStateStats --section SourceCounters"),
    "rule": ("rules", "--section SpeedOfLight --apply-rules yes, with --page details for a CSV"),
    "level": ("bytes of DRAM, L2 or L1", "--section MemoryWorkloadAnalysis_Tables"),
    "precision": ("counts of operations", "--section SpeedOfLight_HierarchicalTensorRooflineChart"),
}
_MEASURED = "`stepscope capture ncu --for everything`"


def roofline(
    profile: Profile,
    *,
    by: Annotated[Literal["work", "kernel", "precision", "level", "stall", "rule"], "what a row is"] = "work",
    only: Annotated[str | None, "kernels whose name matches (regular expression)"] = None,
    plot: Annotated[bool, "draw the roofline in the terminal (table format only)", Effect.DRAWS] = False,
) -> Result:
    roofline = profile.once(roofline_of)
    chosen = _chosen(roofline, only)
    judged = profile.once(bounds_of)
    summary: dict[str, Any] = {}
    if by in ("work", "kernel"):
        kernels = _by_kernel(profile, roofline, judged, chosen)
        table, ranked = rows(Row, _once_each(profile, kernels, chosen) if by == "work" else kernels), "total_ns"
        summary = summed_up(roofline, judged, chosen) | ({"plot": True} if plot else {})
    elif by == "precision":
        table, ranked = rows(ByPrecision, by_precision(roofline, chosen)), "flops"
    elif by == "level":
        table, ranked = rows(ByLevel, by_level(roofline, chosen)), "bytes"
    elif by == "stall":
        table, ranked = rows(ByStall, by_stall(roofline, chosen)), "share_pct"
    else:
        table, ranked = rows(ByRule, by_rule(profile, roofline, chosen)), "speedup_pct"
    if not table.height and by in _COLLECTS:
        what, sections = _COLLECTS[by]
        raise CannotAnswer(
            f"the report has no {what} of these kernels", f"collect them: `ncu {sections}`, or {_MEASURED}"
        )
    summary[STATEMENT] = statement(roofline, judged, chosen)
    return Result(table, summary=summary, notes=roof_notes(roofline, chosen), ranked_by=ranked)


def _chosen(roofline: Roofline, only: str | None) -> list[int]:
    """The kernels asked for."""
    if only is None:
        return list(range(len(roofline.kernels)))
    check_pattern("only", only)
    frame = roofline.kernels.frame
    matching = frame["short"].str.contains(only) | frame["name"].str.contains(only)
    wanted: list[int] = np.flatnonzero(matching.to_numpy()).tolist()
    if not wanted:
        raise CannotAnswer(f"no measured kernel matches --only {only!r}", "`stepscope roofline` lists them")
    return wanted


# -- rows --------------------------------------------------------------------------------------------------------------


def _by_kernel(profile: Profile, roofline: Roofline, judged: list[Bound], chosen: list[int]) -> list[Row]:
    kernels, seconds = roofline.kernels, roofline.kernels.duration_ns / 1e9
    operations, peak, moved = roofline.operations, roofline.peak, roofline.bytes
    rate, intensity = ratio(operations, seconds), ratio(operations, moved["dram"])
    waits, patterns = stalls(kernels), access(kernels)
    shares = {level: share_of_level(roofline, level) for level in LEVELS}
    in_timeline, filled = _in_timeline(profile), occupancies(kernels)
    table: list[Row] = []
    for row in chosen:
        about_it = kernels.frame.row(row, named=True)
        main = int(roofline.main[row])
        table.append(
            {
                **which_kernel(roofline, row),
                "dur_ns": about_it["dur_ns"],
                "n": 1,
                "total_ns": about_it["dur_ns"],
                "bound": judged[row].by,
                "unit": judged[row].unit,
                "precision": roofline.works[main].label if main >= 0 else None,
                "flops": whole(operations[row]),
                "tflops": finite(rate[row] / 1e12),
                "peak_tflops": finite(peak[row] / 1e12),
                "intensity": finite(intensity[row]),
                "dram_bytes": whole(moved["dram"][row]),
                "dram_gbps": finite(moved["dram"][row] / seconds[row] / 1e9),
                "dram_pct": finite(shares["dram"][row]),
                "l2_pct": finite(shares["l2"][row]),
                "l1_pct": finite(shares["l1"][row]),
                "roof": roofline.roof[row],
                "roof_ns": whole(roofline.roof_ns[row]),
                "roof_pct": finite(100 * roofline.reached[row]),
                "compute_pct": judged[row].compute_pct,
                "memory_pct": judged[row].memory_pct,
                "why": judged[row].why,
                "stall": ", ".join(f"{reason} {share:.0f} %" for reason, share in waits[row]) or None,
                "access": pattern_of(float(patterns.uncoalesced_pct[row]), float(patterns.conflicts_pct[row])),
                "nvtx": about_it["nvtx"],
                "grid": _shape(about_it, "grid"),
                "block": _shape(about_it, "block"),
                "file": Path(profile.sources[about_it["source"]].file).name,
                **in_timeline.get(row, blank(InTimeline)),
                **cast(Occupancy, filled.row(row, named=True)),
            }
        )
    return table


def _in_timeline(profile: Profile) -> dict[int, InTimeline]:
    """By kernel: how many ops of the timeline its work stands for, and how they are known."""
    if not joined(profile):
        return {}
    matches = profile.once(matches_of).values()
    every = pl.concat(
        [
            pl.DataFrame({"stands": match.kernel, "kind": match.kind, "how": match.how.cast(pl.String)})
            for match in matches
        ]
    )
    counts = every.filter(pl.col("stands") != NONE).group_by("stands").agg(pl.len(), pl.col("how").first())
    by_kernel: dict[int, InTimeline] = {
        stands: {"ops": count, "matched": how} for stands, count, how in counts.iter_rows()
    }
    unsure = set(every.filter(pl.col("how") == "ambiguous")["kind"].to_list())
    return {
        row: by_kernel.get(stands, {"ops": 0, "matched": "ambiguous" if kind in unsure else "absent"})
        for row, stands, kind in profile.once(variants_of).select("row", "stands", "kind").iter_rows()
    }


def _once_each(profile: Profile, table: list[Row], chosen: list[int]) -> list[Row]:
    """One row for launches that do the same work: the one of median length, with how many there are."""
    stands = profile.once(variants_of)["stands"].to_list()
    alike: dict[int, list[int]] = {}
    for at, row in enumerate(chosen):
        alike.setdefault(stands[row], []).append(at)
    folded: list[Row] = []
    for kernel, members in alike.items():
        shown = next((at for at in members if chosen[at] == kernel), members[0])
        took = [table[at]["dur_ns"] or 0 for at in members]
        folded.append(table[shown] | {"n": len(members), "total_ns": sum(took)})
    return sorted(folded, key=lambda entry: -int(entry["total_ns"]))


def _shape(about_it: dict[str, Any], what: str) -> str | None:
    sizes = [about_it[f"{what}_{axis}"] for axis in "xyz"]
    return None if any(size is None for size in sizes) else "x".join(map(str, sizes))
