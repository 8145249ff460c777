"""Moments to look at: the longest stretches, kernels and transfers of a finding."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from stepscope.findings.case import Case
from stepscope.findings.finding import Place
from stepscope.intervals.arrays import I64

#: Moments to look at, per finding.
PLACES = 10


def places(rank: int, start: I64, end: I64) -> list[Place]:
    """The longest stretches, longest first."""
    order = np.argsort(start - end, kind="stable")[:PLACES]
    return [Place(rank, int(s), int(e)) for s, e in zip(start[order].tolist(), end[order].tolist(), strict=True)]


def longest(candidates: Iterable[Place]) -> tuple[Place, ...]:
    """The longest of all ranks' places."""
    return tuple(sorted(candidates, key=lambda p: (p.start_ns - p.end_ns, p.rank, p.start_ns))[:PLACES])


def places_of(case: Case, ops: list[tuple[int, int]]) -> tuple[Place, ...]:
    """Ops, each a rank and a row, as places."""
    data = {rank: case.data_of(rank) for rank, _ in ops}
    return tuple(Place(r, int(data[r].start[o]), int(data[r].end[o]), int(data[r].stream[o])) for r, o in ops)


def longest_kernels(case: Case, rank: int, names: list[str]) -> tuple[Place, ...]:
    """The longest kernels of these names on a rank."""
    data = case.data_of(rank)
    ops = case.windows[rank].ops
    wanted = case.profile.names.is_in(names).to_numpy()
    ops = ops[wanted[data.name[ops]]]
    ops = ops[np.argsort(data.start[ops] - data.end[ops], kind="stable")[:PLACES]]
    return places_of(case, [(rank, int(op)) for op in ops.tolist()])
