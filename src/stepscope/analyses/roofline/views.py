"""Rows of `roofline --by`: by precision, level of memory, reason of stalls and rule."""

from __future__ import annotations

import numpy as np
import polars as pl

from stepscope.analyses.roofline.columns import ByLevel, ByPrecision, ByRule, ByStall, Which
from stepscope.analyses.roofline.stalls import MEANING, stalls
from stepscope.analyses.roofline.wording import origin_of
from stepscope.derive.kernel.measured import ratio
from stepscope.derive.kernel.roofline import Roofline
from stepscope.derive.kernel.work import LEVEL_NAMES, LEVELS, Level
from stepscope.intervals.arrays import F64
from stepscope.model.profile import Profile

#: Reasons of one kernel that are listed.
_MOST_REASONS = 20
#: What 64 bits hold: a count that is larger is none.
_MOST_WHOLE = 2.0**62


def by_precision(roofline: Roofline, chosen: list[int]) -> list[ByPrecision]:
    seconds = roofline.kernels.duration_ns / 1e9
    table: list[ByPrecision] = []
    for work, roof in zip(roofline.works, roofline.peaks, strict=True):
        rate = ratio(work.operations, seconds)
        share = 100 * ratio(rate, roof.per_second)
        intensity = {level: ratio(work.operations, roofline.bytes[level]) for level in LEVELS}
        table += [
            {
                **which_kernel(roofline, row),
                "precision": work.precision,
                "pipe": work.pipe,
                "flops": whole(work.operations[row]),
                "tflops": finite(rate[row] / 1e12),
                "peak_tflops": finite(roof.per_second[row] / 1e12),
                "peak_pct": finite(share[row]),
                "dram_intensity": finite(intensity["dram"][row]),
                "l2_intensity": finite(intensity["l2"][row]),
                "l1_intensity": finite(intensity["l1"][row]),
                "peak_from": origin_of(roof.per_second[row], bool(roof.from_table[row])),
            }
            for row in chosen
            if work.operations[row] > 0
        ]
    return sorted(table, key=lambda entry: entry["kernel"])


def by_level(roofline: Roofline, chosen: list[int]) -> list[ByLevel]:
    seconds = roofline.kernels.duration_ns / 1e9
    table: list[ByLevel] = []
    for level in LEVELS:
        rate, share = ratio(roofline.bytes[level], seconds), share_of_level(roofline, level)
        roof = roofline.bandwidths[level]
        table += [
            {
                **which_kernel(roofline, row),
                "level": LEVEL_NAMES[level],
                "bytes": whole(roofline.bytes[level][row]),
                "rate_gbps": finite(rate[row] / 1e9),
                "peak_gbps": finite(roof.per_second[row] / 1e9),
                "peak_pct": finite(share[row]),
                "peak_from": origin_of(roof.per_second[row], bool(roof.from_table[row])),
            }
            for row in chosen
            if not np.isnan(roofline.bytes[level][row])
        ]
    return sorted(table, key=lambda entry: entry["kernel"])


def share_of_level(roofline: Roofline, level: Level) -> F64:
    """Per cent of the bandwidth of a level."""
    rate = ratio(roofline.bytes[level], roofline.kernels.duration_ns / 1e9)
    return 100 * ratio(rate, roofline.bandwidths[level].per_second)


def by_stall(roofline: Roofline, chosen: list[int]) -> list[ByStall]:
    waits = stalls(roofline.kernels, _MOST_REASONS)
    return [
        {**which_kernel(roofline, row), "reason": reason, "share_pct": share, "meaning": MEANING.get(reason)}
        for row in chosen
        for reason, share in waits[row]
    ]


def by_rule(profile: Profile, roofline: Roofline, chosen: list[int]) -> list[ByRule]:
    """What the rules say: of the kernel, in whichever page of its report they are."""
    advice, names = profile.table("advice"), profile.names
    frame = roofline.kernels.frame
    table: list[ByRule] = []
    for row in chosen:
        which = frame.row(row, named=True)
        of_it = advice.filter(pl.col("kernel") == which["kernel"])
        own = of_it.filter(pl.col("source") == which["source"])
        twins = of_it.filter(pl.col("source").is_in(roofline.kernels.twins.get(which["source"], [])))
        table += [
            {
                **which_kernel(roofline, row),
                "rule": names[advised["rule"]],
                "speedup_pct": advised["speedup_pct"],
                "speedup_of": None if advised["speedup_of"] is None else names[advised["speedup_of"]],
                "text": names[advised["text"]],
            }
            for advised in pl.concat([own, twins]).iter_rows(named=True)
        ]
    return table


def which_kernel(roofline: Roofline, row: int) -> Which:
    frame = roofline.kernels.frame
    return {"kernel": int(frame["kernel"][row]), "name": frame["short"][row]}


def finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def whole(value: float) -> int | None:
    return round(float(value)) if abs(value) < _MOST_WHOLE else None
