"""From a rank's own clock to what timeline and pipeline are drawn on: ns since the first op, on the common clock.

A rank's clock may run faster than the common one, so its scale is a line through two moments. Ranks of one file share a
clock: there the line has slope 1, and nothing is rounded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl


@dataclass(frozen=True)
class Scale:
    """`own` is drawn at `drawn`; `rate` ns of the own clock pass in one of the common clock."""

    own: int
    drawn: int
    rate: float

    def at(self, own_ns: int) -> int:
        """Where a moment of the rank's own clock is drawn."""
        return self.drawn + round((own_ns - self.own) / self.rate)

    def data(self) -> dict[str, Any]:
        return {"own": str(self.own), "drawn": self.drawn, "rate": self.rate}  # more digits than a double holds


def scales(rows: pl.DataFrame, origin: int) -> dict[int, Scale]:
    """By rank, from rows with `start_ns` (own) and `common_start_ns`: from its first to its last."""
    moments = rows.group_by("rank", maintain_order=True).agg(
        *(pl.col(c).sort_by("start_ns").first().alias(f"{c}_0") for c in ("start_ns", "common_start_ns")),
        *(pl.col(c).sort_by("start_ns").last().alias(f"{c}_1") for c in ("start_ns", "common_start_ns")),
    )
    found = {}
    for rank, own, common, own_1, common_1 in moments.iter_rows():
        rate = (own_1 - own) / (common_1 - common) if common_1 > common else 1.0
        found[rank] = Scale(own, common - origin, rate)
    return found


def drawn(rows: pl.DataFrame, by_rank: dict[int, Scale], *columns: str) -> pl.DataFrame:
    """`rows` with `columns`, own times of their rank, as they are drawn; without ranks that have no scale."""
    table = pl.DataFrame(
        [{"rank": r, "own": s.own, "drawn": s.drawn, "rate": s.rate} for r, s in by_rank.items()],
        schema={"rank": pl.Int64, "own": pl.Int64, "drawn": pl.Int64, "rate": pl.Float64},
    )
    placed = [
        (pl.col("drawn") + ((pl.col(c) - pl.col("own")) / pl.col("rate")).round().cast(pl.Int64)).alias(c)
        for c in columns
    ]
    joined = rows.join(table, on="rank", maintain_order="left")
    return joined.with_columns(placed).drop("own", "drawn", "rate")
