"""Figures as findings write them."""

from __future__ import annotations

from collections.abc import Mapping


def counted(names: Mapping[str, int], steps: int = 1, most: int = 2) -> str:
    """`32 cudaMalloc, 32 cudaFree`: of one step, the most frequent ones."""
    shown = [f"{max(round(n / steps), 1):,} {name}" for name, n in list(names.items())[:most]]
    rest = len(names) - most
    return ", ".join(shown) + (f" and {rest} other calls" if rest > 0 else "")
