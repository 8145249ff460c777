"""One side of a comparison, measured: a run, or several runs of the same, with what is known about them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stepscope.compare.facts import Facts
from stepscope.compare.run import PARTS, Run
from stepscope.errors import CannotAnswer
from stepscope.intervals.arrays import F64
from stepscope.model.note import Note
from stepscope.model.source import SourceInfo
from stepscope.statistics.changes import median_weights
from stepscope.statistics.recurring import mean_weights


@dataclass
class Side:
    """The runs of a side. `said` is how the arguments were understood."""

    runs: list[Run]
    facts: Facts
    manifest: dict[str, Any] | None = None
    sources: list[SourceInfo] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    said: str = ""

    @property
    def steps(self) -> int:
        """Steps of all its runs."""
        return sum(len(r.labels) for r in self.runs)

    @property
    def ranks(self) -> list[int]:
        return self.runs[0].ranks

    def keys(self, by: str) -> list[str]:
        """Keys of a table over all runs, in order of first appearance."""
        return list(dict.fromkeys(k for run in self.runs for k in _table(run, by).keys))

    def samples(self, by: str, keys: list[str], whole: bool, *, mean: bool = False) -> tuple[F64, F64, F64]:
        """`ns[sample, key, part]`, `n[sample, key]` and the length of each sample's step.

        A sample is a step; with `whole`, the median step of a run, or its mean one: over whole periods of its steps.
        """
        ns, n, total = [], [], []
        for run in self.runs:
            table = _table(run, by)
            at = {k: i for i, k in enumerate(table.keys)}
            pick = [at.get(k, -1) for k in keys]
            padded = np.concatenate([table.ns, np.zeros((len(table.ns), 1, len(PARTS)))], axis=1)[:, pick]
            counts = np.concatenate([table.n, np.zeros((len(table.n), 1))], axis=1)[:, pick]
            step = run.step_ns
            if whole:
                weights = mean_weights(step) if mean else median_weights(step)
                padded = np.tensordot(weights, padded, 1)[None]
                counts, step = counts.mean(axis=0)[None], np.array([weights @ step])
            ns.append(padded)
            n.append(counts)
            total.append(step)
        return np.concatenate(ns), np.concatenate(n), np.concatenate(total)


def _table(run: Run, by: str) -> Any:
    if by not in run.tables:
        raise CannotAnswer(f"a baseline does not keep what --by {by} needs", "compare with the profile itself")
    return run.tables[by]
