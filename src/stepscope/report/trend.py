"""Captures of one job over time: of each the step, where it went, and its findings; which of them came and went."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl
from msgspec import Struct

from stepscope.errors import CannotAnswer, StepscopeError
from stepscope.report.asker import Asker


class Captured(Struct, frozen=True):
    """One capture: means over its ranks, in the window that every question takes by default."""

    name: str
    path: str
    window: str
    ranks: int
    step_ns: float
    compute_ns: float
    exposed_ns: float
    idle_ns: float
    mfu_pct: float | None
    #: by id: title, and what it would give back
    findings: dict[str, tuple[str, int]]


class Unread(Struct, frozen=True):
    """A folder that gives no figures, and why."""

    name: str
    why: str


class Trend(Struct, frozen=True):
    """The captures in their order."""

    captures: list[Captured]
    unread: list[Unread]

    def findings(self) -> list[tuple[str, str, list[int | None]]]:
        """Every finding: id, title (of the last), and what each capture would give back; the costliest first."""
        ids = dict.fromkeys(key for one in self.captures for key in one.findings)
        rows = []
        for key in ids:
            findings = [one.findings.get(key) for one in self.captures]
            title = next(found[0] for found in reversed(findings) if found)
            rows.append((key, title, [found[1] if found else None for found in findings]))
        return sorted(rows, key=lambda row: (-max(ns for ns in row[2] if ns is not None), row[0]))

    def changes(self) -> list[str]:
        """What came, went or stayed from one capture to the next, in a line each."""
        lines = []
        for before, after in zip(self.captures, self.captures[1:], strict=False):
            came = [key for key in after.findings if key not in before.findings]
            went = [key for key in before.findings if key not in after.findings]
            if came or went:
                changes = [f"new: {', '.join(came)}"] * bool(came) + [f"gone: {', '.join(went)}"] * bool(went)
                lines.append(f"{before.name} → {after.name}: {'; '.join(changes)}")
        return lines


def captured(name: str, path: str, asker: Asker) -> Captured:
    """What a trend tells of one capture."""
    parts = asker.ask("breakdown")
    mean = {key: float(_mean(parts.rows[key])) for key in ("window_ns", "compute_ns", "comm_exposed_ns", "idle_ns")}
    label = next((str(row["label"]) for row in parts.window if row.get("label")), "")
    return Captured(
        name,
        path,
        label,
        parts.rows["rank"].n_unique(),
        mean["window_ns"],
        mean["compute_ns"],
        mean["comm_exposed_ns"],
        mean["idle_ns"],
        _mfu(asker),
        _findings(asker),
    )


def trend(captures: Sequence[Captured | Unread]) -> Trend:
    read = [one for one in captures if isinstance(one, Captured)]
    if not read:
        raise CannotAnswer("--over: none of these captures gives figures", "name folders with captures of one job")
    return Trend(read, [one for one in captures if isinstance(one, Unread)])


def _mean(values: pl.Series) -> Any:
    return values.mean() or 0.0


def _mfu(asker: Asker) -> float | None:
    try:
        shares = asker.ask("mfu").rows["mfu_pct"].drop_nulls()
    except StepscopeError:  # nothing tells FLOPs
        return None
    return float(_mean(shares)) if len(shares) else None


def _findings(asker: Asker) -> dict[str, tuple[str, int]]:
    """By id; of several with one id, the sum under the title of the costliest."""
    try:
        rows = asker.ask("diagnose").rows
    except StepscopeError:
        return {}
    sums: dict[str, tuple[str, int]] = {}
    for key, title, ns in (
        rows.sort("recoverable_ns", descending=True).select("id", "title", "recoverable_ns").iter_rows()
    ):
        first, so_far = sums.get(key, (title, 0))
        sums[key] = first, so_far + (ns or 0)
    return sums
