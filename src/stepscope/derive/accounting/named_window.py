"""What a sentence calls the window that its figures are of: the step, the chunk, the capture."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from stepscope.derive.windows.window import Window
from stepscope.model.units import about


def unit_of(kinds: Iterable[str]) -> str:
    """What windows of these kinds are: `capture`, `step`, `chunk`; `window` where the user chose something else."""
    units = set(kinds) or {"capture"}
    kind = units.pop() if len(units) == 1 else "window"
    return kind if kind in ("capture", "step", "chunk") else "window"


def about_window(spans: Sequence[Window]) -> str:
    """`the step`; `the 8 steps` where ranks have several."""
    unit, most = unit_of(w.kind for w in spans), _each(spans)
    return f"the {most} {unit}s" if most > 1 else f"the {unit}"


def sized_window(spans: Sequence[Window]) -> str:
    """`the 112 ms step`: with its length, where it is one."""
    if len(spans) != 1 or not spans[0].gpu_ns:
        return about_window(spans)
    return f"the {about(spans[0].gpu_ns)} {unit_of([spans[0].kind])}"


def _each(spans: Sequence[Window]) -> int:
    """Windows of the rank that has most."""
    ranks = [w.rank for w in spans]
    return max(map(ranks.count, set(ranks)), default=1)
