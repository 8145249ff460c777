"""What a stretch of time holds: the answers of `breakdown`, `overlap` and `kernels` for it."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import polars as pl

from stepscope.errors import CannotAnswer
from stepscope.model.ranks import ranks_text
from stepscope.model.result import Result
from stepscope.web.scene import Scene

#: Kernels that are listed.
MOST_KERNELS = 12
_PARTS = ("window_ns", "compute_ns", "comm_exposed_ns", "copy_exposed_ns", "idle_ns", "comm_hidden_ns")
_OVERLAP = ("n", "comm_ns", "exposed_ns", "exposed_wall_ns", "barrier_ns")


def span(scene: Scene, ranks: list[int], lo: int, hi: int) -> dict[str, Any]:
    """[lo, hi) of drawn time on these ranks, each on its own clock."""
    asked = sorted((scene.own(rank, lo), max(scene.own(rank, hi), scene.own(rank, lo) + 1), rank) for rank in ranks)
    parts, overlaps, kernels, commands, notes = [], [], [], [], []
    for (start, end), group in groupby(asked, key=lambda each: each[:2]):
        of = {"rank": ranks_text([rank for *_, rank in group]), "start": start, "end": end}
        parts += scene.asker.ask("breakdown", **of).rows.to_dicts()
        kernels.append(scene.asker.ask("kernels", **of))
        try:
            overlaps += scene.asker.ask("overlap", **of).summary["total"]
        except CannotAnswer as reason:
            notes.append(reason.message)
        commands.append(scene.asker.command("breakdown", **of))
    totals = [total for answer in kernels for total in answer.summary["total"]]
    return {
        "from": lo,
        "to": hi,
        "ranks": parts,
        "sum": {key: sum(row[key] for row in parts) for key in _PARTS},
        "overlap": {key: sum(row[key] for row in overlaps) for key in _OVERLAP} if overlaps else None,
        "ops": sum(total["n"] for total in totals),
        "op_ns": sum(total["total_ns"] for total in totals),
        "kernels": _top(kernels),
        "commands": commands[:4],
        "notes": list(dict.fromkeys(notes)),
    }


def _top(answers: list[Result]) -> list[dict[str, Any]]:
    """The kernels that take most, all ranks together."""
    rows = [a.rows.select("name", "family", "n", "total_ns", "max_ns") for a in answers if a.rows.height]
    if not rows:
        return []
    table = pl.concat(rows).group_by("name", "family").agg(pl.col("n", "total_ns").sum(), pl.col("max_ns").max())
    return table.sort("total_ns", "name", descending=[True, False]).head(MOST_KERNELS).to_dicts()
