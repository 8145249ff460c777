"""Pipeline schedules and their ideal bubble.

Ideal share of the step that a schedule itself leaves idle, with p stages, m micro-batches, v virtual stages per rank,
and the compute times F, B (input gradient) and W (weight gradient) of a chunk:

    gpipe, 1f1b   (p−1) / (m + p−1)                   interleaved   (p−1) / (v·m + p−1)
    zero-bubble   (p−1)(F+B−W)                        (ZB-H1) over itself and m(F+B+W)
    dualpipev     (p−1)(F&B + B&W − 3W)               over itself and 2m(F+B+W); F&B an overlapped chunk
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

#: The purpose of communication between stages.
PIPELINE = "pp_p2p"
Schedule = Literal["gpipe", "1f1b", "interleaved", "zero-bubble", "dualpipev"]


class Shape(Struct, frozen=True):
    """The pipeline's shape, and the words that say where each figure comes from."""

    schedule: str | None
    stages: int | None
    micro_batches: int | None
    virtual: int
    said: tuple[str, ...]


def ideal(shape: Shape, times: dict[str, float]) -> float | None:
    """Share of the step that the schedule leaves idle; None where something it needs is not known."""
    p, m = shape.stages, shape.micro_batches
    if p is None or m is None or shape.schedule is None:
        return None
    if shape.schedule in ("gpipe", "1f1b"):
        return (p - 1) / (m + p - 1)
    if shape.schedule == "interleaved":
        return (p - 1) / (shape.virtual * m + p - 1)
    f, w = times.get("f"), times.get("w", 0.0)
    if shape.schedule == "zero-bubble":
        b = times["b"] if "b" in times else times["bw"] - w if "bw" in times else None
        if f is None or b is None:
            return None
        bubble, work = (p - 1) * (f + b - w), m * (f + b + w)
    else:
        both = times.get("fb")
        if f is None or both is None:
            return None
        bubble, work = (p - 1) * (both + (both - f) - 3 * w), 2 * m * both
    bubble = max(bubble, 0.0)
    return bubble / (work + bubble)
