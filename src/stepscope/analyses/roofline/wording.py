"""What is said of the roofline: how many kernels each bound has, the roofs over them, and the sentence that answers."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

import numpy as np

from stepscope.derive.kernel.bound import Bound
from stepscope.derive.kernel.roofline import Roof, Roofline, sm_clock
from stepscope.derive.kernel.work import LEVEL_NAMES, LEVELS
from stepscope.model.note import Note, noted
from stepscope.model.statement import several
from stepscope.model.units import about

#: A roof over the kernels, as the summary has it.
RoofRow = TypedDict(
    "RoofRow", {"roof": str, "peak_tflops": float | None, "bandwidth_gbps": float | None, "from": str | None}
)


def summed_up(roofline: Roofline, judged: list[Bound], chosen: list[int]) -> dict[str, Any]:
    """By what bounds them: how many kernels, and for how long; the roofs over them; the clock that they ran at."""
    spent = roofline.kernels.duration_ns
    groups: dict[str, dict[str, float]] = {}
    for row in chosen:
        group = groups.setdefault(judged[row].by or "unknown", {"kernels": 0, "total_ns": 0})
        group["kernels"] += 1
        group["total_ns"] += 0 if np.isnan(spent[row]) else int(spent[row])
    clock = sm_clock(roofline.kernels)[chosen]
    return {
        "bound": [{"bound": by, **group} for by, group in sorted(groups.items(), key=lambda g: -g[1]["total_ns"])],
        "roofs": _roofs(roofline, chosen),
        "sm_ghz": None if np.isnan(clock).all() else float(np.nanmedian(clock) / 1e9),
    }


def _roofs(roofline: Roofline, chosen: list[int]) -> list[RoofRow]:
    """The roofs over these kernels, each the median over those that use it: clocks differ from kernel to kernel."""
    roofs: list[RoofRow] = []
    for work, roof in zip(roofline.works, roofline.peaks, strict=True):
        used = [row for row in chosen if work.operations[row] > 0]
        roofs += _roof(work.label, "peak_tflops", roof, used, 1e12)
    for level in LEVELS:
        moving = [row for row in chosen if roofline.bytes[level][row] > 0]
        roofs += _roof(LEVEL_NAMES[level], "bandwidth_gbps", roofline.bandwidths[level], moving, 1e9)
    return roofs


def _roof(
    label: str, column: Literal["peak_tflops", "bandwidth_gbps"], roof: Roof, used: list[int], unit: float
) -> list[RoofRow]:
    with_roof = [row for row in used if not np.isnan(roof.per_second[row])]
    if not with_roof:
        return []
    peak = float(np.median(roof.per_second[with_roof]) / unit)
    origin = origin_of(peak, bool(roof.from_table[with_roof].any()))
    empty: RoofRow = {"roof": label, "peak_tflops": None, "bandwidth_gbps": None, "from": origin}
    empty[column] = peak
    return [empty]


def statement(roofline: Roofline, judged: list[Bound], chosen: list[int]) -> str:
    """The sentence that answers: which kernel takes most, what bounds it, and how far it is from its roof."""
    spent = np.nan_to_num(roofline.kernels.duration_ns)
    names = roofline.kernels.frame["short"]
    total: dict[str, float] = {}
    for row in chosen:
        total[names[row]] = total.get(names[row], 0.0) + spent[row]
    top = max(total, key=lambda name: total[name])
    longest = max((row for row in chosen if names[row] == top), key=lambda row: spent[row])
    reached = roofline.reached[longest]
    far = f", at {100 * reached:.0f} % of its roof ({roofline.roof[longest]})" if not np.isnan(reached) else ""
    by = judged[longest].by
    bound = f"bound by {by}" if by else "with no section that says what bounds it"
    return (
        f"{several(len(chosen), 'kernel')} measured, {about(sum(total.values()))} in all; `{top}` takes most "
        f"({about(total[top])}): the longest of them is {bound}{far}."
    )


def roof_notes(roofline: Roofline, chosen: list[int]) -> list[Note]:
    """What these kernels lack for a roof, and what stands in for it."""
    notes = []
    if roofline.beyond:
        counts = several(roofline.beyond, "count is", "counts are")
        notes.append(noted("values-unknown/counts", counts=counts))
    roofless = int(np.isnan(roofline.roof_ns[chosen]).sum())
    if roofless:
        notes.append(noted("no-roof", kernels=several(roofless, "kernel has", "kernels have")))
    table = any(roof.from_table[chosen].any() for roof in (*roofline.peaks, *roofline.bandwidths.values()))
    if table:
        notes.append(noted("peaks-from-table"))
    return notes


def origin_of(peak: float, from_table: bool) -> str | None:
    """Where a peak is from."""
    return None if np.isnan(peak) else "table of GPUs" if from_table else "report"
