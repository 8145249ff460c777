"""Answers for reports that no profile is needed for: few figures, with any names, or very many ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl

from stepscope.errors import CannotAnswer
from stepscope.model.result import Result

STEP_NS = 1_000_000


def finding(**changed: Any) -> dict[str, Any]:
    """A row of `diagnose`, by its contract."""
    row: dict[str, Any] = {
        "id": "straggler",
        "title": "rank 0 is slow",
        "ranks": "0",
        "recoverable_ns": 1000,
        "share_pct": 12.5,
        "confidence": "high",
        "evidence": "its kernels take 1.5 times as long",
        "try_next": "look at that GPU",
        "command": "stepscope stragglers PROFILE",
        "stage": None,
        "where": [{"rank": 0, "start_ns": 10, "end_ns": 20, "stream": 7}],
        "recoverable_low_ns": 900,
        "recoverable_high_ns": 1100,
        "cause": "certain",
        "expected_ns": 1000,
    }
    return row | changed


def diagnosis(*findings: dict[str, Any], statement: str = "rank 0 is slow", window: Any = None) -> Result:
    rows = pl.DataFrame(list(findings), infer_schema_length=None) if findings else pl.DataFrame({"id": []})
    summary = {"step_ns": STEP_NS, "statement": statement, "clean": not findings, "skipped": []}
    return Result(rows, window or windows(), summary, command="diagnose")


def windows(label: str = "step 1") -> list[dict[str, Any]]:
    span = {"cpu_start_ns": 0, "cpu_end_ns": 1, "gpu_start_ns": 0, "gpu_end_ns": STEP_NS}
    return [{"rank": 0, "pid": 1, "label": label, "index": 1, "count": 3, **span}]


def ops(names: list[str], ranges: list[str | None]) -> pl.DataFrame:
    """One op after another on one stream of rank 0, as `timeline` gives them."""
    n = len(names)
    start = np.linspace(0, STEP_NS - 10, n).astype(np.int64)
    end = np.minimum(np.r_[start[1:], STEP_NS], start + max(1, STEP_NS // n - 1))
    return pl.DataFrame(
        {
            "rank": np.zeros(n, np.int64),
            "pid": np.ones(n, np.int64),
            "stream": np.full(n, 7),
            "start_ns": start,
            "end_ns": end,
            "dur_ns": end - start,
            "common_start_ns": start,
            "role": ["compute"] * n,
            "inside": [True] * n,
            "stage": ["(no stage)"] * n,
            "range": pl.Series(ranges, dtype=pl.String),
            "name": names,
        }
    )


def answers(table: pl.DataFrame, concluded: Result, label: str = "step 1") -> Callable[..., Result]:
    """Who answers as `api.analyse` would; everything across ranks is missing."""

    def answer(name: str, **options: Any) -> Result:
        rows = _rows(name, options, table, label)
        return concluded if name == "diagnose" else Result(rows, windows(label), {}, [], name)

    return answer


def _rows(name: str, options: dict[str, Any], table: pl.DataFrame, label: str) -> pl.DataFrame:
    parts = {"compute_ns": STEP_NS // 2, "comm_exposed_ns": STEP_NS // 4, "copy_exposed_ns": 0, "idle_ns": STEP_NS // 4}
    shares = {k.replace("_ns", "_pct"): 100 * v / STEP_NS for k, v in parts.items()}
    when = {"rank": [0], "pid": [1], "start_ns": [0], "end_ns": [STEP_NS], "dur_ns": [STEP_NS], "common_start_ns": [0]}
    if name == "timeline" and options.get("by") == "range":
        return pl.DataFrame({**when, "depth": [0], "n": [table.height], "range": [label]})
    if name == "timeline" and options.get("by") == "part":
        return pl.DataFrame({**when, "part": ["compute"]})
    if name == "timeline" and options.get("by") == "host":
        return pl.DataFrame({**when, "tid": [5], "depth": [0], "kind": ["range"], "name": [label]})
    if name == "timeline" and options.get("by") == "counter":
        raise CannotAnswer("the profile has no sampled counters", "capture it again")
    if name == "timeline":
        return table
    if name == "breakdown":
        return pl.DataFrame([{"rank": 0, "pid": 1, "window_ns": STEP_NS, **parts, "comm_hidden_ns": 0, **shares}])
    if name == "idle":
        return pl.DataFrame({"rank": [0], "pid": [1], "cause": ["host"], "n": [1], "total_ns": [STEP_NS // 4]})
    if name == "setup":
        return pl.DataFrame({"rank": [0], "host": ["node0"], "gpu": ["GPU"]})
    if name == "streams":
        return pl.DataFrame({"rank": [0], "stream": [7], "kind": ["compute"], "purpose": [None]})
    if name in ("diagnose", "window"):
        return pl.DataFrame()
    raise CannotAnswer(f"no {name} here", "profile a step of a multi-GPU run")
