"""Answers of every command about one profile, in a form that can be compared: rows and figures, without paths."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from stepscope import api, questions
from stepscope.agent.nsys import KINDS, named
from stepscope.api.comparing import compare, gate
from stepscope.errors import GateFailed, StepscopeError
from stepscope.model.result import Result
from stepscope.verify.verify import verify

Value = Callable[[str, Any], Any]
#: Paths and the command lines that hold them are not figures; texts of checks hold sizes of files.
NOT_COMPARED = {"command", "file", "commands", "says", "where"}
_QUERIES = (
    "SELECT kind, count(*) AS n, sum(dur_ns) AS ns FROM ops GROUP BY ALL ORDER BY ALL",
    "SELECT rank, count(*) AS n, sum(dur_ns) AS ns FROM calls GROUP BY ALL ORDER BY ALL",
    "SELECT name, count(*) AS n, sum(dur_ns) AS ns FROM ranges GROUP BY ALL ORDER BY ALL",
    "SELECT rank, count(*) AS n, sum(exposed_ns) AS ns FROM exposures GROUP BY ALL ORDER BY ALL",
)


def answers(*paths: Path) -> dict[str, Any]:
    """Every command's rows and figures, or why it has none."""
    profile = api.open(*paths, cache=False)
    return {name: _answer(ask) for name, ask in _asked(profile, paths)}


def _asked(profile: api.Profile, paths: tuple[Path, ...]) -> Iterator[tuple[str, Callable[[], Any]]]:
    for name in questions.names():
        if questions.get(name).needs_profile:
            yield name, lambda name=name: api.analyse(profile, name)
    for kind, those in named().items():
        for name in those:
            if not name.endswith("_trace"):  # events one by one: `timeline` has them
                yield f"{kind} {name}", lambda kind=kind, name=name: KINDS[kind](profile, name)
    for number, query in enumerate(_QUERIES):
        yield f"sql {number}", lambda query=query: profile.sql(query)
    yield "compare", lambda: compare(profile, profile)
    yield "gate", lambda: gate(profile, profile)
    yield "capture verify", lambda: _verified(profile, paths)
    yield "report", lambda: _report(profile, paths)
    yield "export", lambda: _exported(profile)


def _answer(ask: Callable[[], Any]) -> Any:
    try:
        result = ask()
    except GateFailed as failed:
        result = failed.result
    except StepscopeError as error:
        return type(error).__name__
    return {"rows": result.rows.to_dicts(), "summary": result.summary} if isinstance(result, Result) else result


def _verified(profile: api.Profile, paths: tuple[Path, ...]) -> Result:
    """Every check but that of the file's size."""
    try:
        result = verify(profile, list(paths))
    except GateFailed as failed:
        result = failed.result  # type: ignore[assignment]
    return replace(result, rows=result.rows.filter(pl.col("check") != "size"))


def _report(profile: api.Profile, paths: tuple[Path, ...]) -> list[str]:
    """The figures of the report's Markdown, line by line: its tables."""
    with tempfile.TemporaryDirectory(prefix="stepscope-relations-") as folder:
        file = Path(folder) / "report.md"
        profile.report(file)
        lines = file.read_text("utf-8").splitlines()
    return [line for line in lines if line.startswith("|") and not any(path.name in line for path in paths)]


def _exported(profile: api.Profile) -> dict[str, Any]:
    """Rows of an export that is read back."""
    with tempfile.TemporaryDirectory(prefix="stepscope-relations-") as folder:
        profile.export(Path(folder) / "again.parquet")
        again = api.open(Path(folder) / "again.parquet", cache=False)
        return {name: _answer(lambda name=name: api.analyse(again, name)) for name in ("breakdown", "kernels", "nvtx")}


def expected(value: Any, become: Value, column: str = "") -> Any:
    """An answer of the file as it was, as it must be of the changed one."""
    if isinstance(value, dict):
        return {k: expected(v, become, str(k)) for k, v in value.items() if k not in NOT_COMPARED}
    if isinstance(value, list | tuple):
        return [expected(v, become, column) for v in value]
    if isinstance(value, float):
        return None if value != value else float(f"{value:.9g}")
    return become(column, value)


def same(_: str, value: Any) -> Any:
    return value


def differences(before: dict[str, Any], after: dict[str, Any], become: Value = same) -> list[str]:
    """Commands whose answer is not what was predicted."""
    return [name for name, answer in before.items() if expected(answer, become) != expected(after[name], same)]


def sums(frames: list[pl.DataFrame], by: list[str], column: str) -> dict[Any, int]:
    """Sums of a column over rows of several answers, by what they are about."""
    rows = pl.concat([f.select(pl.col(*by, column).cast(pl.Int64)) for f in frames])
    return {tuple(r[:-1]): r[-1] for r in rows.group_by(by).sum().iter_rows() if r[-1]}
