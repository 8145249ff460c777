"""Real jobs with and without a fault: pairs.toml has the captures, and the steps' lengths without a profiler."""

from __future__ import annotations

import json
import math
import os
import re
import statistics
import tarfile
import tomllib
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl

from promises.pair import Healthy, Pair, asked
from stepscope import api

HERE = Path(__file__).parent
DATA = HERE.parent / "data"
SHARED = HERE.parents[2] / "shared" / "traces" / "h200"
#: What marks steps, the job's own ranges first.
_STEPS = (r"^(train )?step \d+$", r"^ProfilerStep#\d+$")


def table() -> dict[str, list[dict[str, Any]]]:
    """Pairs and healthy jobs, one row for each tool."""
    given = tomllib.loads((HERE / "pairs.toml").read_text("utf-8"))
    return {
        kind: [{**row, "tool": tool, "files": files} for row in given[kind] for tool, files in row["captures"].items()]
        for kind in ("pair", "healthy")
    }


def there(row: dict[str, Any]) -> bool:
    """Whether its captures are on this machine: ../shared need not be."""
    return bool(_found(row["files"])) and (_twin(row) is not None or "with_ms" in row or "twins" not in row)


def pair(row: dict[str, Any], folder: Path) -> Pair:
    """A capture with a fault, diagnosed, beside what taking the fault away gave."""
    told = asked(_unpacked(row["files"], folder))
    profiled = _by_captures(row, folder)
    truth, pm, how = _unprofiled(row) or _unrecorded(row, folder) or (*profiled, "profiled")
    beside = asked(_unpacked(twin, folder)).said if (twin := _twin(row)) else ()
    # Where the twin has some of the fault too, the promise for the difference is the difference of promises.
    had = sum(s.ns for s in beside if s.id in row["ids"]) if row.get("beyond_twin") else 0
    said = tuple(s.less(had) if s.id in row["ids"] else s for s in told.said)
    return Pair(
        row["job"],
        row["tool"],
        row["fault"],
        tuple(row["ids"]),
        truth,
        pm,
        told.step_ns,
        said,
        row.get("ranks"),
        max((s.ns for s in beside), default=0),
        row["set"],
        how,
        profiled[0],
        _real_step(row, folder),
    )


def healthy(row: dict[str, Any], folder: Path) -> Healthy:
    told = asked(_unpacked(row["files"], folder))
    return Healthy(row["job"], row["tool"], told.step_ns, told.said, row.get("delivers", {}))


def _twin(row: dict[str, Any]) -> str | None:
    """The capture without the fault, by the same tool, where there is one."""
    twins = row.get("twins", {})
    found: str | None = twins.get(row["tool"])
    return found if found and _found(found) else None


def _real_step(row: dict[str, Any], folder: Path) -> float | None:
    """The step with the fault, without a profiler."""
    if "with_ms" in row:
        return statistics.median(row["with_ms"]) * 1e6
    before = steps_before(_unpacked(row["files"], folder))
    return statistics.median(before) if before else None


def _unprofiled(row: dict[str, Any]) -> tuple[float, float | None, str] | None:
    """What taking the fault away gives without a profiler, and how far that may be off."""
    if "with_ms" not in row:
        return None
    (a, da), (b, db) = _middle(row["with_ms"]), _middle(row["without_ms"])
    pm = math.hypot(da, db) * 1e6 if da is not None and db is not None else None
    return (a - b) * 1e6, pm, "unprofiled, another machine" if row.get("elsewhere") else "unprofiled"


def _unrecorded(row: dict[str, Any], folder: Path) -> tuple[float, float | None, str] | None:
    """The same from the steps of both runs before recording began, where `capture run` has noted them.

    No profiler was at work yet, so the runs of both tools tell the same, and count together.
    """
    if _twin(row) is None:
        return None
    before = [
        [ns for files in of.values() for ns in steps_before(_unpacked(files, folder))]
        for of in (row["captures"], row["twins"])
    ]
    if not all(before):
        return None
    (a, da), (b, db) = map(_middle, before)
    return a - b, math.hypot(da, db) if da is not None and db is not None else None, "before recording"


def steps_before(paths: list[Path]) -> list[float]:
    """Lengths of the steps before recording, nanoseconds.

    Not of the first two, which settle, nor of the last before torch.profiler: it warms up there.
    """
    manifest = paths[0] / "manifest.json"
    if not manifest.is_file():
        return []
    told = json.loads(manifest.read_text("utf-8"))
    ranks = [[ns for ns, recorded in steps if not recorded] for steps in told["captured"]["step_ns"].values()]
    steps = [statistics.fmean(each) for each in zip(*ranks, strict=True)][2:]
    return steps[:-1] if told["scenario"]["backend"] == "torch" and len(steps) > 2 else steps


def _by_captures(row: dict[str, Any], folder: Path) -> tuple[float | None, float | None]:
    """The same as the difference of two captures by one tool; None where there are no two."""
    if (twin := _twin(row)) is None:
        return None, None
    (a, da), (b, db) = (_middle(step_lengths(_unpacked(f, folder))) for f in (row["files"], twin))
    return a - b, math.hypot(da, db) if da is not None and db is not None else None


def _middle(values: list[float]) -> tuple[float, float | None]:
    """Median, as the step that `diagnose` looks at is the median one, and about its standard error; of one, unknown."""
    if len(values) < 2:
        return values[0], None
    return statistics.median(values), 1.25 * statistics.stdev(values) / math.sqrt(len(values))


def step_lengths(paths: list[Path]) -> list[float]:
    """Lengths of the steps of a capture, nanoseconds: from the end of the one before.

    A step ends where the last rank's last op that was launched in it ends. The first counts only where it is alone,
    from its start: what lies before it is not known. Nothing of `derive` is used.
    """
    profile = api.open(*paths, cache=False)
    named = profile.ranges.with_columns(text=profile.names.gather(profile.ranges["name"]))
    marked = [named.filter(pl.col("text").str.contains(step)) for step in _STEPS]
    steps = next((found for found in marked if found.height), marked[0])
    steps = steps.with_columns(number=pl.col("text").str.extract(r"(\d+)").cast(pl.Int64))
    # `launch` is the row of a call among those of its rank.
    row = pl.int_range(pl.len(), dtype=pl.UInt32).over("rank").alias("launch")
    calls = profile.calls.select("rank", row, launched=pl.col("start_ns"))
    ops = profile.ops.join(calls, on=["rank", "launch"])
    if not steps.height:  # no range marks them: one step is all there is
        return [float(profile.ops["end_ns"].to_numpy().max() - profile.calls["start_ns"].to_numpy().min())]
    spans = steps.select("rank", "number", lo="start_ns", hi="end_ns")
    mine = ops.join(spans, on="rank").filter(pl.col("launched").is_between("lo", "hi", closed="left"))
    found = mine.group_by("number").agg(pl.len(), lo=pl.col("lo").min(), end=pl.max_horizontal("hi", "end_ns").max())
    # A step that the capture cuts off is none.
    found = found.filter(pl.col("len") > 0.5 * pl.col("len").max()).sort("number")
    starts, ends = found["lo"].to_list(), found["end"].to_list()
    lengths = [float(b - a) for a, b in pairwise([starts[0], *ends])]
    return lengths[1:] or lengths


def _found(pattern: str) -> list[Path]:
    """Files of `shared:GLOB` or `data:GLOB`."""
    where, _, glob = pattern.partition(":")
    base = SHARED if where == "shared" else DATA
    return sorted(base.glob(glob)) if base.is_dir() else []


def _unpacked(pattern: str, folder: Path) -> list[Path]:
    """The traces; archives are opened first."""
    paths: list[Path] = []
    for path in _found(pattern):
        if not path.name.endswith(".tar.xz"):
            paths.append(path)
            continue
        # Workers do not share them, and names recur.
        into = folder / str(os.getpid()) / re.sub(r"\W", "_", f"{path.parent.name} {path.name}")
        if not into.exists():
            with tarfile.open(path) as packed:
                packed.extractall(into, filter="data")
        paths.append(into)
    if not paths:
        raise FileNotFoundError(pattern)
    return paths


def all_there(kind: str) -> Iterable[dict[str, Any]]:
    return [row for row in table()[kind] if there(row)]
