"""How far is each measured kernel from its roof, and what bounds it: bandwidth, compute, latency, overhead?

Of kernels that Nsight Compute measured (`.ncu-rep`, `ncu --csv`). FLOPs are counted by precision and pipe, bytes at
DRAM, L2 and L1, and the roofs above them are the report's own: peaks per cycle at the clock that the kernel ran at.
Tensor cores are compared with their dense roof, not with the one for sparse matrices. `bound` and the figures that
decide it (`why`) are those of Nsight Compute's speed of light: busy is 60 % of peak. A kernel where nothing is busy
waits (latency), unless most of its time goes to starting and ending it (overhead).

`roof_pct` is the part of its nearest roof that a kernel reaches: the longest of its FLOPs at their peak and its bytes
at each bandwidth, over the time that it took. Kernels run alone while they are measured, with caches cleared between
passes unless ncu was told otherwise: times are not those of the training step. `-o FILE.svg` draws the roofline.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import polars as pl

from stepscope.derive.kernel.access import access, pattern_of
from stepscope.derive.kernel.bound import Bound, bounds_of
from stepscope.derive.kernel.matching import joined, matches_of, variants_of
from stepscope.derive.kernel.roofline import Roofline, roofline_of
from stepscope.derive.kernel.roofs import Roof, sm_clock
from stepscope.derive.kernel.stalls import MEANING, stalls
from stepscope.derive.kernel.work import LEVELS, Level
from stepscope.derive.rank.pattern import check_pattern
from stepscope.errors import CannotAnswer
from stepscope.intervals.arrays import F64, NONE
from stepscope.model.note import Note
from stepscope.model.profile import Profile
from stepscope.model.result import Col, Result, rows
from stepscope.model.statement import STATEMENT, several
from stepscope.model.units import about

_WHICH = (
    Col("kernel", "its place in the report, from 0"),
    Col("name", "short name"),
)
COLUMNS = (
    *_WHICH,
    Col("dur_ns", "how long it took while it was measured"),
    Col("bound", "what bounds it: bandwidth, compute, latency or overhead; null where the report does not tell"),
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
    Col("matched", "how: by kind (name, grid, block), order, range or length; ambiguous; null without a timeline"),
)
VARIANTS = {
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
_LEVEL_NAMES: dict[Level, str] = {"dram": "DRAM", "l2": "L2", "l1": "L1"}
_MOST_REASONS = 20


def roofline(
    profile: Profile,
    *,
    by: Annotated[Literal["kernel", "precision", "level", "stall", "rule"], "what a row is"] = "kernel",
    only: Annotated[str | None, "kernels whose name matches (regular expression)"] = None,
    plot: Annotated[bool, "draw the roofline in the terminal (table format only)"] = False,
) -> Result:
    found = profile.once(roofline_of)
    chosen = _chosen(found, only)
    judged = profile.once(bounds_of)
    if by == "kernel":
        table, ranked = _by_kernel(profile, found, judged, chosen), "dur_ns"
    elif by == "precision":
        table, ranked = _by_precision(found, chosen), "flops"
    elif by == "level":
        table, ranked = _by_level(found, chosen), "bytes"
    elif by == "stall":
        table, ranked = _by_stall(found, chosen), "share_pct"
    else:
        table, ranked = _by_rule(profile, found, chosen), "speedup_pct"
    summary = _summary(found, judged, chosen) if by == "kernel" else {}
    summary[STATEMENT] = _statement(found, judged, chosen)
    columns = COLUMNS if by == "kernel" else VARIANTS[f"by={by}"]
    summary |= {"plot": True} if plot and by == "kernel" else {}
    return Result(rows(columns, table), summary=summary, notes=_notes(found, chosen), ranked_by=ranked)


def _chosen(found: Roofline, only: str | None) -> list[int]:
    """The kernels asked for."""
    if only is None:
        return list(range(len(found.kernels)))
    check_pattern("only", only)
    frame = found.kernels.frame
    matching = frame["short"].str.contains(only) | frame["name"].str.contains(only)
    wanted: list[int] = np.flatnonzero(matching.to_numpy()).tolist()
    if not wanted:
        raise CannotAnswer(f"no measured kernel matches --only {only!r}", "`stepscope roofline` lists them")
    return wanted


# -- rows --------------------------------------------------------------------------------------------------------------


def _by_kernel(profile: Profile, found: Roofline, judged: list[Bound], chosen: list[int]) -> list[dict[str, Any]]:
    kernels, seconds = found.kernels, found.kernels.duration_ns / 1e9
    operations, peak, moved = found.operations, found.peak, found.bytes
    waits, patterns = stalls(kernels), access(kernels)
    shares = {level: _pct(moved[level] / seconds, found.bandwidths[level].per_second) for level in LEVELS}
    in_timeline = _in_timeline(profile)
    table = []
    for row in chosen:
        about_it = kernels.frame.row(row, named=True)
        main = int(found.main[row])
        table.append(
            _which(found, row)
            | {
                "dur_ns": about_it["dur_ns"],
                "bound": judged[row].by,
                "unit": judged[row].unit,
                "precision": found.works[main].label if main >= 0 else None,
                "flops": _whole(operations[row]),
                "tflops": _known(operations[row] / seconds[row] / 1e12),
                "peak_tflops": _known(peak[row] / 1e12),
                "intensity": _known(_ratio(operations, moved["dram"])[row]),
                "dram_bytes": _whole(moved["dram"][row]),
                "dram_gbps": _known(moved["dram"][row] / seconds[row] / 1e9),
                **{f"{level}_pct": _known(shares[level][row]) for level in LEVELS},
                "roof": found.roof[row],
                "roof_ns": _whole(found.roof_ns[row]),
                "roof_pct": _known(100 * found.reached[row]),
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
            }
        )
    return table


def _in_timeline(profile: Profile) -> dict[int, dict[str, Any]]:
    """By kernel: how many ops of the timeline its variant stands for, and how they are known."""
    if not joined(profile):
        return {}
    variants, matches = profile.once(variants_of), profile.once(matches_of).values()
    every = pl.concat([pl.DataFrame({"stands": match.kernel, "how": match.how.cast(pl.String)}) for match in matches])
    counts = every.filter(pl.col("stands") != NONE).group_by("stands").agg(pl.len(), pl.col("how").first())
    known = {stands: (count, how) for stands, count, how in counts.iter_rows()}
    none = (0, "ambiguous")
    return {
        row: {"ops": known.get(stands, none)[0], "matched": known.get(stands, none)[1]}
        for row, stands in variants.select("row", "stands").iter_rows()
    }


def _by_precision(found: Roofline, chosen: list[int]) -> list[dict[str, Any]]:
    seconds = found.kernels.duration_ns / 1e9
    table = []
    for row in chosen:
        for work, roof in zip(found.works, found.peaks, strict=True):
            operations = work.operations[row]
            if not operations > 0:
                continue
            peak = roof.per_second[row]
            table.append(
                _which(found, row)
                | {
                    "precision": work.precision,
                    "pipe": work.pipe,
                    "flops": _whole(operations),
                    "tflops": _known(operations / seconds[row] / 1e12),
                    "peak_tflops": _known(peak / 1e12),
                    "peak_pct": _known(100 * operations / seconds[row] / peak),
                    **{
                        f"{level}_intensity": _known(_ratio(work.operations, found.bytes[level])[row])
                        for level in LEVELS
                    },
                    "peak_from": _origin(peak, bool(roof.from_table[row])),
                }
            )
    return table


def _by_level(found: Roofline, chosen: list[int]) -> list[dict[str, Any]]:
    seconds = found.kernels.duration_ns / 1e9
    return [
        _which(found, row)
        | {
            "level": _LEVEL_NAMES[level],
            "bytes": _whole(found.bytes[level][row]),
            "rate_gbps": _known(found.bytes[level][row] / seconds[row] / 1e9),
            "peak_gbps": _known(found.bandwidths[level].per_second[row] / 1e9),
            "peak_pct": _known(_pct(found.bytes[level] / seconds, found.bandwidths[level].per_second)[row]),
            "peak_from": _origin(
                found.bandwidths[level].per_second[row], bool(found.bandwidths[level].from_table[row])
            ),
        }
        for row in chosen
        for level in LEVELS
        if not np.isnan(found.bytes[level][row])
    ]


def _by_stall(found: Roofline, chosen: list[int]) -> list[dict[str, Any]]:
    waits = stalls(found.kernels, _MOST_REASONS)
    return [
        _which(found, row) | {"reason": reason, "share_pct": share, "meaning": MEANING.get(reason)}
        for row in chosen
        for reason, share in waits[row]
    ]


def _by_rule(profile: Profile, found: Roofline, chosen: list[int]) -> list[dict[str, Any]]:
    """What the rules say: of the kernel, in whichever page of its report they are."""
    advice, names = profile.table("advice"), profile.names
    frame = found.kernels.frame
    table = []
    for row in chosen:
        which = frame.row(row, named=True)
        of_it = advice.filter(pl.col("kernel") == which["kernel"])
        own = of_it.filter(pl.col("source") == which["source"])
        twins = of_it.filter(pl.col("source").is_in(found.kernels.twins.get(which["source"], [])))
        table += [
            _which(found, row)
            | {
                "rule": names[said["rule"]],
                "speedup_pct": said["speedup_pct"],
                "speedup_of": None if said["speedup_of"] is None else names[said["speedup_of"]],
                "text": names[said["text"]],
            }
            for said in pl.concat([own, twins]).iter_rows(named=True)
        ]
    return table


def _which(found: Roofline, row: int) -> dict[str, Any]:
    frame = found.kernels.frame
    return {"kernel": int(frame["kernel"][row]), "name": frame["short"][row]}


def _shape(about_it: dict[str, Any], what: str) -> str | None:
    sizes = [about_it[f"{what}_{axis}"] for axis in "xyz"]
    return None if any(size is None for size in sizes) else "x".join(map(str, sizes))


def _origin(peak: float, from_table: bool) -> str | None:
    return None if np.isnan(peak) else "table of GPUs" if from_table else "report"


# -- what is said of all -----------------------------------------------------------------------------------------------


def _summary(found: Roofline, judged: list[Bound], chosen: list[int]) -> dict[str, Any]:
    spent = found.kernels.duration_ns
    groups: dict[str, dict[str, float]] = {}
    for row in chosen:
        group = groups.setdefault(judged[row].by or "unknown", {"kernels": 0, "total_ns": 0})
        group["kernels"] += 1
        group["total_ns"] += 0 if np.isnan(spent[row]) else int(spent[row])
    clock = sm_clock(found.kernels)[chosen]
    return {
        "bound": [{"bound": by, **group} for by, group in sorted(groups.items(), key=lambda g: -g[1]["total_ns"])],
        "roofs": _roofs(found, chosen),
        "sm_ghz": None if np.isnan(clock).all() else float(np.nanmedian(clock) / 1e9),
    }


def _roofs(found: Roofline, chosen: list[int]) -> list[dict[str, Any]]:
    """The roofs over these kernels, each the median over those that use it: clocks differ from kernel to kernel."""
    roofs: list[dict[str, Any]] = []
    for work, roof in zip(found.works, found.peaks, strict=True):
        used = [row for row in chosen if work.operations[row] > 0]
        roofs += _roof(work.label, "peak_tflops", roof, used, 1e12)
    for level in LEVELS:
        moving = [row for row in chosen if found.bytes[level][row] > 0]
        roofs += _roof(_LEVEL_NAMES[level], "bandwidth_gbps", found.bandwidths[level], moving, 1e9)
    return roofs


def _roof(label: str, column: str, roof: Roof, used: list[int], unit: float) -> list[dict[str, Any]]:
    known = [row for row in used if not np.isnan(roof.per_second[row])]
    if not known:
        return []
    peak = float(np.median(roof.per_second[known]) / unit)
    empty: dict[str, Any] = {"roof": label, "peak_tflops": None, "bandwidth_gbps": None}
    return [empty | {column: peak, "from": _origin(peak, bool(roof.from_table[known].any()))}]


def _statement(found: Roofline, judged: list[Bound], chosen: list[int]) -> str:
    spent = np.nan_to_num(found.kernels.duration_ns)
    names = found.kernels.frame["short"]
    total: dict[str, float] = {}
    for row in chosen:
        total[names[row]] = total.get(names[row], 0.0) + spent[row]
    top = max(total, key=lambda name: total[name])
    longest = max((row for row in chosen if names[row] == top), key=lambda row: spent[row])
    reached = found.reached[longest]
    far = f", at {100 * reached:.0f} % of its roof ({found.roof[longest]})" if not np.isnan(reached) else ""
    by = judged[longest].by
    bound = f"bound by {by}" if by else "with no section that says what bounds it"
    return (
        f"{several(len(chosen), 'kernel')} measured, {about(sum(total.values()))} in all; `{top}` takes most "
        f"({about(total[top])}): the longest of them is {bound}{far}."
    )


def _notes(found: Roofline, chosen: list[int]) -> list[Note]:
    notes = []
    roofless = int(np.isnan(found.roof_ns[chosen]).sum())
    if roofless:
        notes.append(
            Note(
                "no-roof",
                f"{several(roofless, 'kernel has', 'kernels have')} no roof: the report has no counters of their "
                "arithmetic (`ncu --set roofline` or `--set full` has)",
                severity="warning",
                origin="recording",
            )
        )
    table = any(roof.from_table[chosen].any() for roof in (*found.peaks, *found.bandwidths.values()))
    if table:
        notes.append(
            Note(
                "peaks-from-table",
                "the report lacks some peaks: they are the data sheet's, at the boost clock",
                origin="recording",
            )
        )
    return notes


def _pct(rate: F64, peak: F64) -> F64:
    with np.errstate(divide="ignore", invalid="ignore"):
        return 100 * rate / peak


def _ratio(operations: F64, moved: F64) -> F64:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(moved > 0, operations / moved, np.nan)


def _known(value: float) -> float | None:
    return None if np.isnan(value) or np.isinf(value) else float(value)


def _whole(value: float) -> int | None:
    return None if np.isnan(value) else round(float(value))
