"""Graph breaks and recompiles out of the text that `TORCH_LOGS=graph_breaks,recompiles` writes (torch 2.1 to 2.13).

Every line of a message carries the logger's prefix, and several processes may write into one file, so a message is
followed per process (and rank, where torchrun names it). What the versions say of a break:

    2.1, 2.2   Graph break: REASON from user code at:        then the stack, innermost frame last
    2.3, 2.4   Graph break: from user code at:               then the stack, then a traceback that ends in the reason
    2.5, 2.6   Graph break in user code at FILE:LINE         Reason: REASON
    2.7 …      Graph break in user code at FILE:LINE         Graph Break Reason: TITLE, or a title on a later line

To 2.4 torch logs one break per line of code only; later ones log repeats too ("… suppressed …").
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, TypedDict

import polars as pl
from msgspec import Struct

from stepscope.errors import BadInput
from stepscope.model.note import Note, noted
from stepscope.model.result import Result, rows
from stepscope.model.source import SourceInfo


class LoggedRow(TypedDict):
    kind: Annotated[
        str, "graph_break, recompile, or recompile_limit (torch gave up on a function, which then runs eager)"
    ]
    reason: Annotated[str, "why, as torch says; of several failed guards the first, which is the latest version's"]
    location: Annotated[str, "FILE:LINE of the user's code"]
    function: Annotated[str | None, "function that was compiled anew; null for breaks"]
    n: Annotated[int, "how often the log has it"]
    against_n: Annotated[int | None, "how often the other log has it; null without one"]
    change: Annotated[str, "n less against_n"]


KINDS = ("graph_break", "recompile", "recompile_limit")
_KEY = ["kind", "reason", "location", "function"]

_PREFIX = re.compile(
    r"^(?P<rank>\[rank\d+\]:\s?)?"
    r"(?:[A-Z]\d{4} [\d:.]+ (?P<pid>\d+) \S+\] |\[[\d\-]+ [\d:,.]+\] )?"
    r"(?:\[\d+/\d+(?:_\d+)?\] )?"
    r"(?:\[__(?P<artifact>\w+)\] ?|(?P<logger>[\w.]+): \[[A-Z]+\] ?)?"
)
_BREAK_AT = re.compile(r"^Graph break(?: \([^)]*\))? in user code at (.+):(\d+)\s*$")
_BREAK = re.compile(r"^Graph break: ?(.*?)\s*(?:from user code at:?)?\s*$")
_REASON = re.compile(r"^(?:Graph Break )?Reason: (.*)$")
_FRAME = re.compile(r'^\s*File "(.+)", line (\d+)')
_RAISED = re.compile(r"^torch\._dynamo\.exc\.\w+: (.+)$")
_RECOMPILE = re.compile(r"^Recompiling function (\S+) in (.+:\d+)\s*$")
_GUARD = re.compile(r"^\s*- (?:\d+/\d+(?:_\d+)?: )?(.+)$")
_LIMIT = re.compile(r"torch\._dynamo hit config\.(\w+) \((\d+)\)")
_LIMIT_AT = re.compile(r"^\s*function: '(.+)' \((.+:\d+)\)")


def log_beside(folder: Path | None, given: Path | None = None) -> Path | None:
    """The log that `capture run` collected beside a capture, of its first rank; a file is taken as it is."""
    if folder is None or not folder.is_dir():
        return given
    logs = sorted((folder / "compile").glob("rank*.log"), key=lambda f: int(re.sub(r"\D", "", f.stem) or 0))
    if not logs and given is not None:
        raise BadInput(
            f"--log {given}: no compile/rank0.log in it", "name the file; nothing was compiled, or all went well"
        )
    return logs[0] if logs else None


class Event(Struct):
    """One message, filled in as its lines come."""

    kind: str
    reason: str = ""
    location: str = ""
    function: str | None = None
    #: What the next lines may still add: the reason's title, the stack.
    wants_title: bool = False
    wants_stack: bool = False


def parse(lines: Iterable[str]) -> list[Event]:
    """All breaks and recompiles, in order."""
    events: list[Event] = []
    current: dict[tuple[str | None, str | None], Event] = {}
    for line in lines:
        prefix = _PREFIX.match(line)
        assert prefix is not None  # every part of it is optional
        who = (prefix["rank"], prefix["pid"])
        text = line[prefix.end() :].rstrip("\n")
        event = _begin(text, _is_artifact(prefix))
        if event is not None:
            events.append(event)
            current[who] = event
        elif who in current:
            _continue(current[who], text)
    return events


def _is_artifact(prefix: re.Match[str]) -> bool:
    """Whether a logger that was asked for wrote the line, or no prefix tells: torch's warnings repeat some breaks."""
    if prefix["artifact"] or prefix["logger"]:
        return (prefix["artifact"] or prefix["logger"]).endswith(("graph_breaks", "recompiles", "recompiles_verbose"))
    return prefix.end() == len(prefix["rank"] or "")


def _begin(text: str, artifact: bool) -> Event | None:
    if match := _LIMIT.search(text):  # a warning, logged whatever was asked for
        return Event("recompile_limit", reason=f"{match[1]} ({match[2]})")
    if not artifact:
        return None
    if match := _BREAK_AT.match(text):
        return Event("graph_break", location=f"{match[1]}:{match[2]}")
    if match := _BREAK.match(text):
        # "skip:" and "torch.compile cannot properly resume …" say that the whole function runs eager; why comes later.
        reason = "" if match[1].startswith(("skip:", "torch.compile cannot")) else match[1]
        return Event("graph_break", reason=reason, wants_stack=True)
    if match := _RECOMPILE.match(text):
        return Event("recompile", location=match[2], function=match[1])
    return None


def _continue(event: Event, text: str) -> None:
    if event.kind == "graph_break":
        _continue_break(event, text)
    elif event.kind == "recompile" and not event.reason:
        if match := _GUARD.match(text):
            event.reason = match[1].split("  # ")[0].strip()
    elif event.kind == "recompile_limit" and (match := _LIMIT_AT.match(text)):
        event.function, event.location = match[1], match[2]


def _continue_break(event: Event, text: str) -> None:
    if event.wants_title and text.strip():
        event.reason, event.wants_title = text.strip(), False
    elif match := _REASON.match(text):
        # "Encountered graph break when attempting to trace CALL:" and its like announce the title; they are not it.
        event.reason, event.wants_title = match[1].strip(), match[1].rstrip().endswith(":")
    elif event.wants_stack and text.startswith("Traceback"):
        event.wants_stack = False
    elif event.wants_stack and (match := _FRAME.match(text)):
        event.location = f"{match[1]}:{match[2]}"
    elif not event.reason and (match := _RAISED.match(text)):
        event.reason = match[1].strip()


def log_result(log: Path, against: Path | None) -> Result:
    """Counts by reason and location, and of another run beside them."""
    notes: list[Note] = []
    table = _counts(_read(log, "--log", notes))
    if against is None:
        other = None
        table = table.with_columns(against_n=pl.lit(None, pl.Int64), change=pl.lit(None, pl.Int64))
    else:
        other = _counts(_read(against, "--against", notes))
        table = table.join(
            other.rename({"n": "against_n"}), on=_KEY, how="full", coalesce=True, nulls_equal=True
        ).with_columns(pl.col("n", "against_n").fill_null(0))
        table = table.with_columns(change=pl.col("n") - pl.col("against_n"))
    order = pl.col("kind").replace_strict({k: i for i, k in enumerate(KINDS)}, return_dtype=pl.Int64)
    by = [order, pl.col("n"), pl.col("against_n"), *map(pl.col, _KEY[1:])]
    table = table.sort(by, descending=[False, True, True, False, False, False], nulls_last=True)
    sources = [SourceInfo(Path(f).name, "torch-log") for f in (log, against) if f is not None]
    return Result(rows(LoggedRow, table), [], _summary(table, other is not None), notes, sources=sources)


def _read(file: Path, option: str, notes: list[Note]) -> list[Event]:
    try:
        with Path(file).open("r", encoding="utf-8", errors="replace") as lines:
            events = parse(lines)
    except OSError as error:
        raise BadInput(f"{option} {file}: cannot read ({error.strerror})", "give what TORCH_LOGS wrote") from None
    if not events:
        notes.append(noted("log-empty", name=Path(file).name))
    return events


def _counts(events: list[Event]) -> pl.DataFrame:
    schema = dict.fromkeys(_KEY, pl.String)
    frame = pl.DataFrame([(e.kind, e.reason, e.location, e.function) for e in events], schema=schema, orient="row")
    return frame.group_by(_KEY).agg(pl.len().cast(pl.Int64).alias("n"))


def _summary(table: pl.DataFrame, compared: bool) -> dict[str, Any]:
    summary: dict[str, Any] = {}
    parts = []
    for kind, words in zip(KINDS, ("graph breaks", "recompiles", "recompile limits"), strict=True):
        mine = table.filter(pl.col("kind") == kind)
        now = int(mine["n"].sum())
        summary[f"{kind}s"] = now
        if compared:
            before = int(mine["against_n"].sum())
            summary[f"against_{kind}s"] = before
            parts.append(f"{words} went from {before} to {now}" if before != now else f"{words} stayed at {now}")
        else:
            parts.append(f"{now} {words if now != 1 else words[:-1]}")
    # A limit is news only where one was hit.
    summary["statement"] = "; ".join(s for s in parts if not re.match(r"0 recompile l|recompile limits stayed at 0", s))
    return summary
