"""Of the ops of a window: how many measured kernels match, how that is known, and the time at their roofs."""

from __future__ import annotations

import numpy as np
import polars as pl

from stepscope.derive.kernel.matching import Matches, matches_of, on_gpu, variants_of
from stepscope.derive.kernel.roofline import roofline_of
from stepscope.derive.rank.data import RankData
from stepscope.intervals.arrays import F64, I64, NONE
from stepscope.model.kernel_names import short_names
from stepscope.model.note import Note, noted
from stepscope.model.profile import Profile
from stepscope.model.statement import percent, several

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
    states = pl.concat([_states(data, ops, matches[data.rank]) for data, ops in windows])
    states = states.filter(pl.col("kernel_op"))
    matched = states.filter(pl.col("how").is_in(["kind", "order", "range", "length"]))
    total, time = states.height, int(states["ns"].sum())
    hows = ", ".join(
        f"{n} by {how}" for how, n in matched.group_by("how").len().sort("len", descending=True).iter_rows()
    )
    notes = [
        noted(
            "measured-matched",
            matched=several(matched.height, "kernel"),
            total=total,
            share=percent(int(matched["ns"].sum()), time),
            hows=f" ({hows})" if hows else "",
            seen=_seen(profile, matches),
        )
    ]
    variants = profile.once(variants_of)
    gpus = [gpu for _, gpu in profile.ranks.select("rank", "gpu").iter_rows()]
    if all(on_gpu(variants, gpu).height == 0 for gpu in gpus):
        measured = ", ".join(sorted(variants["gpu"].drop_nulls().unique()))
        notes.append(noted("measured-elsewhere", measured=measured))
    unsure = states.filter(pl.col("how") == "ambiguous")
    if unsure.height:
        names = unsure.with_columns(short=short_names(profile.names.gather(unsure["name"])))
        most = names.group_by("short").agg(pl.len(), pl.col("ns").sum()).sort("ns", descending=True)
        listed = ", ".join(f"{n} × {name}" for name, n, _ in most.head(_MOST_NAMES).iter_rows())
        more = f" and {several(most.height - _MOST_NAMES, 'name')} more" if most.height > _MOST_NAMES else ""
        notes.append(
            noted(
                "measured-ambiguous",
                kernels=several(unsure.height, "kernel is", "kernels are"),
                listed=listed,
                more=more,
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
