"""Who the ranks are, as labels beside them say."""

from __future__ import annotations

from stepscope.model.result import Result
from stepscope.timeline.messages import Rank


def ranks_of_setup(setup: Result) -> list[Rank]:
    """Every rank with its place in the mesh: `pp 0 ep 3`."""
    axes = [c.removesuffix("_rank") for c in setup.rows.columns if c.endswith("_rank")]
    out = []
    for row in setup.rows.to_dicts():
        place = [f"{a} {row[f'{a}_rank']}" for a in axes if (row[f"{a}_size"] or 1) > 1]
        out.append(Rank(rank=row["rank"], host=row["host"], gpu=row["gpu"], place=" ".join(place)))
    return out
