"""Runs of compute kernels, launched one after the other: the unit in which the engine computes."""

from __future__ import annotations

import random
from array import array
from collections.abc import Sequence
from functools import lru_cache

from stepscope.simulate.job import costs
from stepscope.simulate.job.kernels import GROUPED_GEMM, LAUNCH, LAUNCH_EX

#: Jitter is a fixed-point factor; ONE means 1.0.
SHIFT = 14
ONE = 1 << SHIFT
#: Length of the jitter tables. They are read from any of the first POOL places on, wrapping at twice that.
POOL = 1 << 15


class Names:
    """Texts and their indices."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._index: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        index = self._index.get(text)
        if index is None:
            index = self._index[text] = len(self.texts)
            self.texts.append(text)
        return index


class Block:
    """Kernels in launch order: `rows` of (host gap, launch call, kernel duration), and their names and calls."""

    __slots__ = ("calls", "kernels", "rows")

    def __init__(self, names: Names, kernels: Sequence[tuple[str, int]]) -> None:
        self.rows = [(costs.LAUNCH_GAP, costs.LAUNCH_CALL, ns) for _, ns in kernels]
        self.kernels = array("i", [names(name) for name, _ in kernels])
        # cuBLAS and CUTLASS launch through the driver.
        driver = ("nvjet", GROUPED_GEMM[:20])
        self.calls = array("i", [names(LAUNCH_EX if n.startswith(driver) else LAUNCH) for n, _ in kernels])

    def __len__(self) -> int:
        return len(self.rows)


def stretch(kernels: Sequence[tuple[str, float]], tokens: float, scale: float, split: int) -> list[tuple[str, int]]:
    """The kernels (µs) of a stage: `scale` times as many, `tokens` times as long, each cut in `split`."""
    n = len(kernels)
    grown = [kernels[i * n // m] for m in (max(1, round(n * scale)),) for i in range(m)]
    each = [(name, max(1, round(us * 1000 * tokens / split))) for name, us in grown]
    return [kernel for kernel in each for _ in range(split)]


@lru_cache(maxsize=32)
def _draws(seed: str, sigma: float) -> tuple[int, ...]:
    """Fixed-point factors around 1. Kept: the truth runs a job again, without its fault, on the same ones."""
    rng = random.Random(seed)
    return tuple(max(ONE // 4, round(ONE * (1 + rng.gauss(0.0, sigma)))) for _ in range(POOL))


def jitter_table(seed: str, sigma: float, factor: float = 1.0) -> list[int]:
    """Fixed-point factors around `factor`. One table per purpose, the same for every run of a seed."""
    half = _draws(seed, sigma) if sigma else (ONE,) * POOL
    return ([round(f * factor) for f in half] if factor != 1.0 else list(half)) * 2
