"""Figures as findings write them."""

from __future__ import annotations

from collections.abc import Mapping


def ms(ns: float) -> str:
    """Nanoseconds in a unit that needs no zeros."""
    if ns < 1_000_000:
        return us(ns)
    return f"{ns / 1e6:.1f} ms" if ns >= 10_000_000 else f"{ns / 1e6:.2f} ms"


def us(ns: float) -> str:
    """Short times."""
    return f"{ns / 1e3:.1f} µs" if ns < 100_000 else f"{ns / 1e3:.0f} µs"


def counted(names: Mapping[str, int], steps: int = 1, most: int = 2) -> str:
    """`32 cudaMalloc, 32 cudaFree`: of one step, the most frequent ones."""
    shown = [f"{max(round(n / steps), 1):,} {name}" for name, n in list(names.items())[:most]]
    rest = len(names) - most
    return ", ".join(shown) + (f" and {rest} other calls" if rest > 0 else "")
