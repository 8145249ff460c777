"""What a sentence calls the window that its figures are of: the step, the chunk, the capture."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from stepscope.derive.windows.spec import WindowSpec
from stepscope.derive.windows.steps import is_chunk
from stepscope.derive.windows.window import WHOLE, Window
from stepscope.model.units import about


def unit_of(spec: WindowSpec, labels: Iterable[str]) -> str:
    """`capture`, `step`, `chunk`; `window` where the user chose something else."""
    marked = {label for label in labels if label != WHOLE}
    if not marked:
        return "capture"
    if spec.start is not None:
        return "window"
    if all(map(is_chunk, marked)):
        return "chunk"
    return "step" if spec.anchor is None else "window"


def about_window(spec: WindowSpec, spans: Sequence[Window]) -> str:
    """`the step`; `the 8 steps` where ranks have several."""
    unit, most = unit_of(spec, (w.label for w in spans)), _each(spans)
    return f"the {most} {unit}s" if most > 1 else f"the {unit}"


def sized_window(spec: WindowSpec, spans: Sequence[Window]) -> str:
    """`the 112 ms step`: with its length, where it is one."""
    if len(spans) != 1 or not spans[0].gpu_ns:
        return about_window(spec, spans)
    return f"the {about(spans[0].gpu_ns)} {unit_of(spec, [spans[0].label])}"


def _each(spans: Sequence[Window]) -> int:
    """Windows of the rank that has most."""
    ranks = [w.rank for w in spans]
    return max(map(ranks.count, set(ranks)), default=1)
