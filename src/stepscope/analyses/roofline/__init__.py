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
from typing import Annotated, Any, Literal

import numpy as np
import polars as pl

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
from stepscope.derive.kernel.occupancy import COLUMNS as OCCUPANCY
from stepscope.derive.kernel.occupancy import occupancies
from stepscope.derive.kernel.roofline import Roofline, roofline_of
from stepscope.derive.kernel.work import LEVELS
from stepscope.derive.rank.pattern import check_pattern
from stepscope.errors import CannotAnswer
from stepscope.intervals.arrays import NONE
from stepscope.model.effect import Effect
from stepscope.model.profile import Profile
from stepscope.model.result import Col, Result, rows
from stepscope.model.statement import STATEMENT

_WHICH = (
    Col("kernel", "its place in the report, from 0"),
    Col("name", "short name"),
)
COLUMNS = (
    *_WHICH,
    Col("dur_ns", "how long it took while it was measured"),
    Col("n", "launches of the same work that were measured; the row is of the one of median length (1 by kernel)"),
    Col("total_ns", "how long these took together"),
    Col("bound", "what bounds it: bandwidth, compute, latency or overhead; null where the report does not say"),
    Col("unit", "the busiest unit of what bounds it: tensor pipe, instruction issue, DRAM, L2 …"),
    Col("precision", "precision and pipe of the FLOPs that would take longest at their peak: `bf16 tensor`"),
    Col("flops", "operations of that precision on that pipe (for integers, too)"),
    Col("tflops", "achieved rate of these, 10¹² a second"),
    Col("peak_tflops", "its dense peak at the clock of the measurement"),
    Col("intensity", "these operations per byte of DRAM"),
    Col("dram_bytes", "bytes from and to DRAM"),
    Col("dram_gbps", "the rate of these"),
    Col("dram_pct", "of the bandwidth of DRAM"),
    Col("l2_pct", "of the bandwidth from L2 to the multiprocessors"),
    Col("l1_pct", "of the bandwidth of L1"),
    Col("roof", "its nearest roof: a precision and pipe, DRAM, L2, L1 or shared memory"),
    Col("roof_ns", "how long it would take there"),
    Col("roof_pct", "the part of that roof that it reaches"),
    Col("compute_pct", "Nsight Compute's compute throughput, of peak"),
    Col("memory_pct", "Nsight Compute's memory throughput, of peak"),
    Col("why", "the figures that decide what bounds it"),
    Col("stall", "what its warps wait for most, with shares of their cycles"),
    Col("access", "uncoalesced access to global memory, or bank conflicts, where the counters show them"),
    Col("nvtx", "ranges around its launch"),
    Col("grid", "grid size"),
    Col("block", "block size"),
    Col("file", "report it is from"),
    Col("ops", "ops of the timeline that it, or its like, stands for; null without a timeline"),
    Col(
        "matched",
        "how: by kind (name, grid, block), order, range or length; ambiguous; absent; null without a timeline",
    ),
    *OCCUPANCY,
)
VARIANTS = {
    "by=kernel": COLUMNS,
    "by=precision": (
        *_WHICH,
        Col("precision", "of the numbers that are multiplied or added"),
        Col("pipe", "tensor or vector"),
        Col("flops", "operations"),
        Col("tflops", "achieved rate, 10¹² a second"),
        Col("peak_tflops", "dense peak at the clock of the measurement"),
        Col("peak_pct", "of that peak"),
        Col("dram_intensity", "operations per byte of DRAM"),
        Col("l2_intensity", "operations per byte from L2"),
        Col("l1_intensity", "operations per byte from L1"),
        Col("peak_from", "where the peak is from: the report, or the table of GPUs"),
    ),
    "by=level": (
        *_WHICH,
        Col("level", "DRAM, L2 or L1"),
        Col("bytes", "bytes moved"),
        Col("rate_gbps", "achieved rate"),
        Col("peak_gbps", "bandwidth at the clock of the measurement"),
        Col("peak_pct", "of that bandwidth"),
        Col("peak_from", "where the bandwidth is from: the report, or the table of GPUs"),
    ),
    "by=stall": (
        *_WHICH,
        Col("reason", "Nsight Compute's name of what warps wait for"),
        Col("share_pct", "share of the cycles of a warp"),
        Col("meaning", "what that is"),
    ),
    "by=rule": (
        *_WHICH,
        Col("rule", "Nsight Compute's rule"),
        Col("speedup_pct", "the speed-up that it estimates; null where it gives none"),
        Col("speedup_of", "global: of the kernel; local: of the part that it is about"),
        Col("text", "what it says"),
    ),
}
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
        table, ranked = _by_kernel(profile, roofline, judged, chosen), "total_ns"
        table = _once_each(profile, table, chosen) if by == "work" else table
        summary = summed_up(roofline, judged, chosen) | ({"plot": True} if plot else {})
    elif by == "precision":
        table, ranked = by_precision(roofline, chosen), "flops"
    elif by == "level":
        table, ranked = by_level(roofline, chosen), "bytes"
    elif by == "stall":
        table, ranked = by_stall(roofline, chosen), "share_pct"
    else:
        table, ranked = by_rule(profile, roofline, chosen), "speedup_pct"
    if not table and by in _COLLECTS:
        what, sections = _COLLECTS[by]
        raise CannotAnswer(
            f"the report has no {what} of these kernels", f"collect them: `ncu {sections}`, or {_MEASURED}"
        )
    summary[STATEMENT] = statement(roofline, judged, chosen)
    columns = VARIANTS.get(f"by={by}", COLUMNS)
    return Result(rows(columns, table), summary=summary, notes=roof_notes(roofline, chosen), ranked_by=ranked)


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


def _by_kernel(profile: Profile, roofline: Roofline, judged: list[Bound], chosen: list[int]) -> list[dict[str, Any]]:
    kernels, seconds = roofline.kernels, roofline.kernels.duration_ns / 1e9
    operations, peak, moved = roofline.operations, roofline.peak, roofline.bytes
    rate, intensity = ratio(operations, seconds), ratio(operations, moved["dram"])
    waits, patterns = stalls(kernels), access(kernels)
    shares = {level: share_of_level(roofline, level) for level in LEVELS}
    in_timeline, filled = _in_timeline(profile), occupancies(kernels)
    table = []
    for row in chosen:
        about_it = kernels.frame.row(row, named=True)
        main = int(roofline.main[row])
        table.append(
            which_kernel(roofline, row)
            | {
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
                **{f"{level}_pct": finite(shares[level][row]) for level in LEVELS},
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
                **in_timeline.get(row, {"ops": None, "matched": None}),
                **filled.row(row, named=True),
            }
        )
    return table


def _in_timeline(profile: Profile) -> dict[int, dict[str, Any]]:
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
    known = {stands: {"ops": count, "matched": how} for stands, count, how in counts.iter_rows()}
    unsure = set(every.filter(pl.col("how") == "ambiguous")["kind"].to_list())
    return {
        row: known.get(stands, {"ops": 0, "matched": "ambiguous" if kind in unsure else "absent"})
        for row, stands, kind in profile.once(variants_of).select("row", "stands", "kind").iter_rows()
    }


def _once_each(profile: Profile, table: list[dict[str, Any]], chosen: list[int]) -> list[dict[str, Any]]:
    """One row for launches that do the same work: the one of median length, with how many there are."""
    stands = profile.once(variants_of)["stands"].to_list()
    alike: dict[int, list[int]] = {}
    for at, row in enumerate(chosen):
        alike.setdefault(stands[row], []).append(at)
    folded = []
    for kernel, members in alike.items():
        shown = next((at for at in members if chosen[at] == kernel), members[0])
        took = [table[at]["dur_ns"] or 0 for at in members]
        folded.append(table[shown] | {"n": len(members), "total_ns": sum(took)})
    return sorted(folded, key=lambda entry: -int(entry["total_ns"]))


def _shape(about_it: dict[str, Any], what: str) -> str | None:
    sizes = [about_it[f"{what}_{axis}"] for axis in "xyz"]
    return None if any(size is None for size in sizes) else "x".join(map(str, sizes))
