"""Is the capture any good: all ranks, exactly the profiled steps, a steady state, nothing lost?

A check is `ok`, `warning` (the figures stand, with this in mind), `failed` (capture again), or `skipped`, with why.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypedDict

import polars as pl

from stepscope.capture import manifest, step_times
from stepscope.capture.private import secrets_in
from stepscope.capture.size import parse_size
from stepscope.derive.rank.data import ranks_of
from stepscope.errors import GateFailed
from stepscope.model.note import noted
from stepscope.model.profile import Profile
from stepscope.model.ranks import world_of
from stepscope.model.result import Result, rows
from stepscope.verify import about, asked, content, whole
from stepscope.verify.check import FAILED, OK, WARNING, Check


class Row(TypedDict):
    check: Annotated[str, "what was checked"]
    status: Annotated[str, "ok, warning, failed or skipped"]
    ranks: Annotated[str, "ranks that it is about; empty for all"]
    found: Annotated[str, "what the capture has"]
    expected: Annotated[str, "what it should have"]
    fix: Annotated[str, "what to do"]


@dataclass(frozen=True)
class Expected:
    """What a capture was meant to be, as far as is known."""

    ranks: int | None = None
    steps: int | None = None
    #: ranks that were meant to be traced, where not all were
    traced: list[int] | None = None
    max_size: int = parse_size("200MB")
    #: False where the machine had no GPU: the capture is of the host
    gpu: bool = True
    #: lengths of a recorded step and of an unprofiled one, of the same run or of another
    profiled_ns: float | None = None
    unprofiled_ns: float | None = None
    #: the lengths that these are medians of
    profiled_times: list[float] = field(default_factory=list)
    unprofiled_times: list[float] = field(default_factory=list)
    #: what `--with` asked of this profiler
    wants: list[str] = field(default_factory=list)
    #: by rank: versions and variables, as the rank itself said
    environments: dict[str, dict[str, Any]] = field(default_factory=dict)


def expected_of(folders: list[Path], backend: str | None = None, **known: Any) -> Expected:
    """From the manifests beside the files, where `backend` is given of that profiler's; what is known counts more."""
    job = manifest.of_folders(folders, backend)
    if job is None:
        return Expected(**known)
    scenario, captured = job["scenario"], job["captured"]
    given = {
        "ranks": scenario.get("ranks"),
        "steps": scenario.get("steps"),
        "traced": scenario.get("traced"),
        "gpu": bool(scenario.get("machine", {}).get("gpus")),
        "profiled_ns": step_times.profiled(job),
        "unprofiled_ns": step_times.unprofiled(job),
        "profiled_times": step_times.profiled_times(job),
        "unprofiled_times": step_times.unprofiled_times(job),
        "wants": scenario.get("with") or [],
        "environments": captured.get("environments") or {},
    }
    return Expected(**{**given, **known})


def together(results: Mapping[str, Result]) -> Result:
    """The checks of several captures of one job, by profiler."""
    first = next(iter(results.values()))
    if len(results) == 1:
        return first
    tables = [
        result.rows.with_columns((pl.lit(f"{name}: ") + pl.col("check")).alias("check"))
        for name, result in results.items()
    ]
    count = sum((Counter(result.summary) for result in results.values()), Counter())
    whole = Result(pl.concat(tables), summary=dict(sorted(count.items())))
    whole.command, whole.ranks, whole.world = first.command, first.ranks, first.world
    whole.sources = [source for result in results.values() for source in result.sources]
    whole.notes = [note.of(name) for name, result in results.items() for note in result.notes]
    return whole


def verify(profile: Profile, files: list[Path], expected: Expected | None = None) -> Result:
    """Every check, in order; `GateFailed`, with the result, where one failed."""
    want = expected or Expected()
    ranks = list(ranks_of(profile))
    checks: list[Check] = [
        about.ranks(profile, want.ranks, want.traced),
        about.setup(profile),
        about.steps(ranks, want.steps),
        about.nothing_before(ranks, profile),
        about.steady(ranks),
        content.kernels(ranks, want.gpu),
        content.ranges(ranks),
        whole.records(profile, ranks),  # before what lacks the records that were left out
        whole.cut(ranks),
        whole.launches(ranks),
        whole.closed(ranks, profile),
        whole.warnings(profile),
        content.clock(ranks),
        content.size(files, want.max_size),
        content.slowdown(want.profiled_ns, want.unprofiled_ns, want.profiled_times, want.unprofiled_times),
        asked.arrived(profile, files, want.wants),
        asked.payloads(profile),
        asked.parity(want.environments),
        secrets(files),
    ]
    count = Counter(c.status for c in checks)
    failed = [c for c in checks if c.status == FAILED]
    result = Result(rows(Row, [asdict(c) for c in checks]), summary=dict(sorted(count.items())))
    result.command, result.ranks, result.sources = "capture verify", len(ranks), profile.sources
    result.world = world_of(profile.ranks)
    for c in checks:  # in full: a table cuts them
        if c.status in (FAILED, WARNING):
            text = f"{c.status}: {c.check}: {c.found}" + (f"; {c.fix}" if c.fix else "")
            result.notes.append(noted("verify-check", text=text))
    if failed:
        first = f"{failed[0].check}: {failed[0].found}"
        more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
        raise GateFailed(f"the capture is not good: {first}{more}", failed[0].fix or None, result)
    return result


_MOST_NAMED = 5


def secrets(files: list[Path]) -> Check:
    """Values that look like tokens or keys, by the names of their variables: nsys writes the whole environment."""
    names: set[str] = set()
    for file in files:
        try:
            names |= set(secrets_in(file))
        except (OSError, sqlite3.Error, pl.exceptions.PolarsError):  # what is wrong with it another check says
            continue
    if not names:
        return Check("secrets", OK, found="none")
    shown = ", ".join(sorted(names)[:_MOST_NAMED]) + (f" and {len(names) - _MOST_NAMED} more" * (len(names) > 5))
    fix = "share an export (stepscope export --anonymize); `capture run` leaves such variables out; change the keys"
    return Check("secrets", WARNING, found=f"values that look like keys: {shown}", expected="none", fix=fix)
