"""What is said of the roofline: how many kernels each bound has, the roofs over them, and the sentence that answers."""

from __future__ import annotations

from typing import Any

import numpy as np

from stepscope.derive.kernel.bound import Bound
from stepscope.derive.kernel.roofline import Roofline
from stepscope.derive.kernel.roofs import Roof, sm_clock
from stepscope.derive.kernel.work import LEVEL_NAMES, LEVELS
from stepscope.model.note import Note, noted
from stepscope.model.statement import several
from stepscope.model.units import about


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


def _roofs(roofline: Roofline, chosen: list[int]) -> list[dict[str, Any]]:
    """The roofs over these kernels, each the median over those that use it: clocks differ from kernel to kernel."""
    roofs: list[dict[str, Any]] = []
    for work, roof in zip(roofline.works, roofline.peaks, strict=True):
        used = [row for row in chosen if work.operations[row] > 0]
        roofs += _roof(work.label, "peak_tflops", roof, used, 1e12)
    for level in LEVELS:
        moving = [row for row in chosen if roofline.bytes[level][row] > 0]
        roofs += _roof(LEVEL_NAMES[level], "bandwidth_gbps", roofline.bandwidths[level], moving, 1e9)
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
        notes.append(noted("values-unknown/counts", counts=counts))
    roofless = int(np.isnan(found.roof_ns[chosen]).sum())
    if roofless:
        notes.append(noted("no-roof", kernels=several(roofless, "kernel has", "kernels have")))
    table = any(roof.from_table[chosen].any() for roof in (*found.peaks, *found.bandwidths.values()))
    if table:
        notes.append(noted("peaks-from-table"))
    return notes


def origin_of(peak: float, from_table: bool) -> str | None:
    """Where a peak is from."""
    return None if np.isnan(peak) else "table of GPUs" if from_table else "report"
