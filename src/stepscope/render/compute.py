"""`compute` for people: fewer columns, and the budget as one bar in text."""

from __future__ import annotations

import textwrap
from dataclasses import replace

from stepscope.model.result import Result
from stepscope.model.units import duration

#: From where figures are known: JSON and CSV have it; a terminal has no room.
_WIDE = ("bytes_from", "phase_from", "what", "layers")
_IF_FILLED = ("flops", "done_flops", "precision", "good_from")
_LEAST_WIDTH = 40
_LETTERS = {
    "ideal": "I", "precision": "P", "below the roof": "B", "memory-bound by nature": "M", "not fused": "N",
    "layout": "L", "casts and copies": "C", "recomputation": "R", "optimizer": "O", "unknown kernels": "?",
    "exposed communication": "c", "exposed copies": "x",
}  # fmt: skip
_IDLE = "."
#: A space at which no line ends.
_FIXED = "\u00a0"


def narrowed(result: Result) -> Result:
    """The result with the columns that fit a terminal."""
    rows = result.rows
    empty = [c for c in _IF_FILLED if c in rows.columns and not rows[c].count()]
    alone = ["rank"] if "rank" in rows.columns and rows["rank"].n_unique() < 2 else []
    return replace(result, rows=rows.drop([*_WIDE, *empty, *alone, "pid"], strict=False))


def budget_bar(result: Result, width: int) -> list[str]:
    """One bar per rank and window: a letter for each row, as long as its share."""
    rows = result.rows
    if "loss" not in rows.columns or not rows.height or width < _LEAST_WIDTH:
        return []
    key = [c for c in ("rank", "index") if c in rows.columns]
    lines, used = [], {}
    for mine in rows.partition_by(key, maintain_order=True) if key else [rows]:
        total = int(mine["total_ns"].sum())
        name = "".join(f"{c} {mine[c][0]} " if c == "rank" else f"#{mine[c][0]} " for c in key)
        room = width - len(name) - len(duration(total)) - 4
        bar, done = "", 0
        for loss, ns in mine.select("loss", "total_ns").iter_rows():
            letter = _LETTERS.get(loss, _IDLE)
            done += ns
            long = round(room * done / total) - len(bar) if total else 0
            bar += letter * long
            if long:
                used[letter] = "idle" if letter == _IDLE else loss
        lines.append(f"{name}[{bar}] {duration(total)}")
    key_of = ", ".join(f"{letter} {loss}".replace(" ", _FIXED) for letter, loss in used.items())
    return [*lines, *(line.replace(_FIXED, " ") for line in textwrap.wrap(key_of, width))]
