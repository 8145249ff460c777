"""What a stretch of time holds: the answers of `breakdown`, `overlap` and `kernels` for it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, TypeVar, cast

import polars as pl

from stepscope.errors import CannotAnswer
from stepscope.model.ranks import ranks_text
from stepscope.model.result import Result
from stepscope.report.messages.shared import PartSums, RankSums, rows_of
from stepscope.web.messages import OverlapSums, SpanData, SpanKernel
from stepscope.web.scene import Served

Sums = TypeVar("Sums")
#: Kernels that are listed.
MOST_KERNELS = 12


def span(scene: Served, ranks: list[int], lo: int, hi: int) -> SpanData:
    """[lo, hi) of drawn time on these ranks, each on its own clock."""
    asked = sorted((scene.own(rank, lo), max(scene.own(rank, hi), scene.own(rank, lo) + 1), rank) for rank in ranks)
    parts, overlaps, kernels, commands, notes = [], [], [], [], []
    for (start, end), group in groupby(asked, key=lambda each: each[:2]):
        of = {"rank": ranks_text([rank for *_, rank in group]), "start": start, "end": end}
        parts += rows_of(RankSums, scene.asker.ask("breakdown", **of).rows)
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
        "sum": _sums(PartSums, parts),
        "overlap": _sums(OverlapSums, overlaps) if overlaps else None,
        "ops": sum(total["n"] for total in totals),
        "op_ns": sum(total["total_ns"] for total in totals),
        "kernels": _top(kernels),
        "commands": commands[:4],
        "notes": list(dict.fromkeys(notes)),
    }


def _sums(kind: type[Sums], rows: Sequence[Any]) -> Sums:
    """The columns that `kind` declares, added up."""
    return cast("Sums", {key: sum(row[key] for row in rows) for key in kind.__annotations__})


def _top(answers: list[Result]) -> list[SpanKernel]:
    """The kernels that take most, all ranks together."""
    rows = [a.rows.select("name", "family", "n", "total_ns", "max_ns") for a in answers if a.rows.height]
    if not rows:
        return []
    table = pl.concat(rows).group_by("name", "family").agg(pl.col("n", "total_ns").sum(), pl.col("max_ns").max())
    return rows_of(SpanKernel, table.sort("total_ns", "name", descending=[True, False]).head(MOST_KERNELS))
