"""What is said of measured kernels: how many of a window were, and how that is known; their roofs, and the sentence."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from stepscope.derive.kernel.bound import Bound
from stepscope.derive.kernel.matching import Matches, matches_of, on_gpu, variants_of
from stepscope.derive.kernel.roofline import Roofline, roofline_of
from stepscope.derive.kernel.roofs import Roof, sm_clock
from stepscope.derive.kernel.work import LEVEL_NAMES, LEVELS
from stepscope.derive.rank.data import RankData
from stepscope.intervals.arrays import F64, I64, NONE
from stepscope.model.kernel_names import short_names
from stepscope.model.note import Note
from stepscope.model.profile import Profile
from stepscope.model.statement import percent, several
from stepscope.model.units import about

#: Names of ambiguous kernels that a note lists.
_MOST_NAMES = 4


def roof_ns_of(profile: Profile, rank: int, ops: I64) -> tuple[F64, I64]:
    """Of ops of a rank: the time at the roof of the kernel that stands for each, NaN for none; and which it is."""
    kernel = profile.once(matches_of)[rank].kernel[ops]
    roof = profile.once(roofline_of).roof_ns
    return np.where(kernel != NONE, roof[np.maximum(kernel, 0)], np.nan), kernel


def match_notes(profile: Profile, windows: list[tuple[RankData, I64]]) -> list[Note]:
    """How much of these ops was measured, and which of them are ambiguous."""
    matches = profile.once(matches_of)
    found = pl.concat([_states(data, ops, matches[data.rank]) for data, ops in windows])
    found = found.filter(pl.col("kernel_op"))
    known = found.filter(pl.col("how").is_in(["kind", "order", "range", "length"]))
    total, time = found.height, int(found["ns"].sum())
    hows = ", ".join(f"{n} by {how}" for how, n in known.group_by("how").len().sort("len", descending=True).iter_rows())
    notes = [
        Note(
            "measured-matched",
            f"{several(known.height, 'kernel')} of {total} in the window ({percent(int(known['ns'].sum()), time)} of "
            f"their time) match measured ones{f' ({hows})' if hows else ''}; {_seen(profile, matches)}",
        )
    ]
    variants = profile.once(variants_of)
    gpus = [gpu for _, gpu in profile.ranks.select("rank", "gpu").iter_rows()]
    if all(on_gpu(variants, gpu).height == 0 for gpu in gpus):
        measured = ", ".join(sorted(variants["gpu"].drop_nulls().unique()))
        notes.append(
            Note(
                "measured-elsewhere",
                f"the kernels were measured on another GPU ({measured}): their roofs are not those of this profile",
                severity="warning",
            )
        )
    unsure = found.filter(pl.col("how") == "ambiguous")
    if unsure.height:
        names = unsure.with_columns(short=short_names(profile.names.gather(unsure["name"])))
        most = names.group_by("short").agg(pl.len(), pl.col("ns").sum()).sort("ns", descending=True)
        listed = ", ".join(f"{n} × {name}" for name, n, _ in most.head(_MOST_NAMES).iter_rows())
        more = f" and {several(most.height - _MOST_NAMES, 'name')} more" if most.height > _MOST_NAMES else ""
        notes.append(
            Note(
                "measured-ambiguous",
                f"{several(unsure.height, 'kernel is', 'kernels are')} ambiguous: name, grid and block are those of a "
                f"measured one, but nothing tells which work it is, or it took another time ({listed}{more}): no roof",
                severity="warning",
            )
        )
    return notes


def _states(data: RankData, ops: I64, matches: Matches) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "name": data.name[ops],
            "ns": (data.end - data.start)[ops],
            "how": matches.how.gather(ops).cast(pl.String),
            "kernel_op": data.is_kernel[ops],
        }
    )


def _seen(profile: Profile, matches: dict[int, Matches]) -> str:
    """How many of the measured kernels the timeline has."""
    variants = profile.once(variants_of)
    seen = np.unique(np.concatenate([match.kernel for match in matches.values()]))
    here = variants.filter(pl.col("stands").is_in(seen[seen != NONE].tolist())).height
    return f"{here} of {several(variants.height, 'measured kernel')} {'is' if here == 1 else 'are'} in the timeline"


# -- of the roofline itself ------------------------------------------------------------------------------------------


def summed_up(found: Roofline, judged: list[Bound], chosen: list[int]) -> dict[str, Any]:
    """By what bounds them: how many kernels, and for how long; the roofs over them; the clock that they ran at."""
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
        roofs += _roof(LEVEL_NAMES[level], "bandwidth_gbps", found.bandwidths[level], moving, 1e9)
    return roofs


def _roof(label: str, column: str, roof: Roof, used: list[int], unit: float) -> list[dict[str, Any]]:
    known = [row for row in used if not np.isnan(roof.per_second[row])]
    if not known:
        return []
    peak = float(np.median(roof.per_second[known]) / unit)
    empty: dict[str, Any] = {"roof": label, "peak_tflops": None, "bandwidth_gbps": None}
    return [empty | {column: peak, "from": origin_of(peak, bool(roof.from_table[known].any()))}]


def statement(found: Roofline, judged: list[Bound], chosen: list[int]) -> str:
    """The sentence that answers: which kernel takes most, what bounds it, and how far it is from its roof."""
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


def roof_notes(found: Roofline, chosen: list[int]) -> list[Note]:
    """What these kernels lack for a roof, and what stands in for it."""
    notes = []
    if found.beyond:
        counts = several(found.beyond, "count is", "counts are")
        text = f"{counts} more than the GPU does in the kernel's time: taken as unknown"
        notes.append(Note("values-unknown", text, severity="loss", origin="import"))
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


def origin_of(peak: float, from_table: bool) -> str | None:
    """Where a peak is from."""
    return None if np.isnan(peak) else "table of GPUs" if from_table else "report"
