"""Figures as findings write them."""

from __future__ import annotations

from collections.abc import Mapping


def counted(names: Mapping[str, int], most: int = 2) -> str:
    """`32 cudaMalloc, 32 cudaFree`: of one step, the most frequent ones."""
    shown = [f"{n:,} {name}" for name, n in list(names.items())[:most]]
    rest = len(names) - most
    return ", ".join(shown) + (f" and {rest} other calls" if rest > 0 else "")
