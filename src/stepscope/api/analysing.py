"""Asking a question: options checked, the window chosen, and the answer with what it rests on.

Every question lets users choose which rows are shown, and in which order. An answer that leaves rows out says so, in a
note: which they are of how many, and how to see the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepscope import progress, questions
from stepscope.api.options import (
    WINDOW_KEYWORDS,
    Ranks,
    check,
    check_number,
    keywords,
    parse_ranks,
    several,
    shared,
    takes_path,
    takes_profile,
    window_spec,
)
from stepscope.errors import BadInput, CannotAnswer, GateFailed, meant
from stepscope.files import forks
from stepscope.findings.finding import for_profile
from stepscope.model import profile as model
from stepscope.model.note import folded, foremost, noted
from stepscope.model.option import Option
from stepscope.model.ranks import world_of
from stepscope.model.result import Result
from stepscope.model.statement import STATEMENT


@dataclass(frozen=True)
class Showing:
    """Rows by `sort`; of these the `top` that matter most; of these `limit` from `offset` on. 0 is all."""

    sort: str | None = None
    top: int | None = None
    limit: int | None = None
    offset: int = 0

    def __post_init__(self) -> None:
        for option, value in (("top", self.top), ("limit", self.limit)):
            if value is not None:
                check_number(f"--{option}", value)
            if value is not None and value < 0:
                raise BadInput(f"--{option} {value}", "give how many rows to show; 0 for all")
        if self.sort is not None and not isinstance(self.sort, str):
            raise BadInput(f"--sort {self.sort!r} is not a text", "name columns as in 'rank,dur_ns:asc'")
        check_number("--offset", self.offset)
        if self.offset < 0:
            raise BadInput(f"--offset {self.offset}", "give the row to begin with; the first is 0")

    def of(self, result: Result) -> Result:
        """The rows that were asked for; a note where others are left out."""
        if self.sort is not None:
            result = result.sorted(self.sort)
        if self.top is not None:
            result = result.largest(self.top)
        if self.limit is not None or self.offset:
            result = result.paged(self.limit or 0, self.offset)
        if result.rows.height < result.total:
            page = result.page or f"that matter most, {result.rows.height:,} of {result.total:,}; --top 0 for all"
            result.notes = [*result.notes, noted("rows-not-shown", which=page)]
        return result


def analyse(
    profile: model.Profile | None,
    name: str,
    *,
    rank: Ranks | None = None,
    sort: str | None = None,
    top: int | None = None,
    limit: int | None = None,
    offset: int = 0,
    **options: Any,
) -> Result:
    """Ask `profile` the question `name`; `options` are those of the command line, with underscores.

    `sort` orders the rows by columns, `top` keeps so many that matter most (of sorted rows, the first), and `limit`
    and `offset` take a page of them. A note says which rows are left out.

    Without a profile, only what can do without one: `analyse(None, "compile", log="run.log")`.
    """
    forks.refuse()
    analysis = questions.get(name)
    if profile is None and analysis.needs_profile:
        raise BadInput(f"{name} needs a profile", "name a trace, a directory or a glob")
    valid = keywords(analysis)
    unknown = [k for k in options if k not in valid]
    if unknown:
        hint = meant(unknown[0], valid) or f"it has {', '.join(valid)}"
        raise TypeError(f"{name}: no option {unknown[0]!r}; {hint}")
    shown = Showing(sort, top, limit, offset)
    for option in analysis.options:
        if option.name in options:
            check(option, options[option.name])
            options[option.name] = _understood(option, options[option.name])
    if rank is not None and profile is not None:
        profile = profile.view(parse_ranks(rank))
    chosen = {k: options.pop(k) for k in WINDOW_KEYWORDS if k in options}
    for key, value in chosen.items():
        if shared()[key].type is bool:
            check(shared()[key], value)
    window = window_spec(profile, **chosen) if analysis.windowed else None

    def ask(of: model.Profile | None) -> Result:
        if of is not None and not analysis.timeless:
            questions.need_timeline(of, name)
        asked = (of, window) if analysis.windowed else (of,)
        try:
            return _finished(analysis.function(*asked, **options), name, of, shown)
        except GateFailed as failed:
            if failed.result is not None:
                failed.result = _finished(failed.result, name, of, shown)
            raise

    progress.report(f"working out {name}")
    with nullcontext() if profile is None else profile.asking:
        return _of_any_capture(profile, ask)


def _understood(option: Option, value: Any) -> Any:
    """A value as the analysis takes it: users name profiles and files by texts, and give one of several alone."""
    if several(option.type):
        return (value,) if isinstance(value, str) else tuple(value)
    if takes_profile(option.type) and isinstance(value, str | Path):
        from stepscope.api.opening import open as opened

        return opened(value)
    return Path(value) if isinstance(value, str) and takes_path(option.type) else value


def _of_any_capture(profile: model.Profile | None, ask: Callable[[model.Profile | None], Result]) -> Result:
    """The answer of the profile; where it lacks something, of another capture of the same job, which then says so."""
    try:
        return ask(profile)
    except CannotAnswer as lacking:
        for name, opened in getattr(profile, "others", {}).items():
            note = noted("other-capture", name=name, why=lacking.message)
            try:
                result = ask(opened().view(profile.limited_to if profile is not None else None))
            except CannotAnswer:
                continue
            except GateFailed as failed:
                if failed.result is not None:
                    failed.result.notes.insert(0, note)
                raise
            result.notes.insert(0, note)
            return result
        raise


def sql(
    profile: model.Profile,
    query: str,
    *,
    limit: int = 0,
    rank: Ranks | None = None,
    seconds: float | None = None,
    answers: Mapping[str, Result] | None = None,
) -> Result:
    """A question of one's own, in SQL; see docs/cookbook.md. The first `limit` rows, 0 for all, within `seconds`.

    `answers` of other questions are tables, too, by the names they are given; this answer has their windows and notes.
    """
    from stepscope.sql.query import query as answered

    if not isinstance(query, str):
        raise TypeError(f"sql: {query!r} is not a text")
    check_number("--limit", limit)
    if seconds is not None:
        check_number("--timeout", seconds, whole=False)
    if rank is not None:
        profile = profile.view(parse_ranks(rank))
    forks.refuse()
    given = answers or {}
    tables = {name: answer.rows for name, answer in given.items()}
    with profile.asking:
        result = answered(profile, query, limit=limit, seconds=seconds, answers=tables)
    result.window = [row for answer in given.values() for row in answer.window]
    result.notes = [*(note for answer in given.values() for note in answer.notes), *result.notes]
    return _finished(result, "sql", profile, Showing())


def prepare_sql() -> None:
    """A query follows once the profile is open: what takes a while to start may start now."""
    from stepscope.sql.query import prepare

    prepare()


def _finished(result: Result, name: str, profile: model.Profile | None, shown: Showing) -> Result:
    """The result with the scope that only the front end knows, and the rows that were asked for."""
    result = shown.of(result)
    result.command = name
    shown_as(result)
    if profile is None:
        return result
    used = {*profile.ranks["source"].to_list(), *profile.timeless_sources}
    result.sources = [s for i, s in enumerate(profile.sources) if i in used]
    result.ranks = profile.ranks.height if profile.has_timeline else 0  # a measured kernel is of no rank
    result.world = world_of(profile.ranks)
    result.begins = profile.begins(reading=False)
    named = getattr(profile, "named", None)
    if named is not None and "command" in result.rows.columns:
        result = for_profile(result, named.words)
    read = profile.notes if name == "info" else folded(profile.notes)
    result.notes = foremost(dict.fromkeys([*read, *result.notes]))
    if result.doubts and (said := result.summary.get(STATEMENT)):
        result.summary[STATEMENT] = f"Not to be trusted, the records are damaged or contradict each other: {said}"
    return result


def shown_as(result: Result) -> None:
    """Notebooks and `print` show what the command does."""
    result.notebook, result.printed, result.drawn = notebook, printed, drawn


def printed(result: Result) -> str:
    """The table that the command prints to a pipe."""
    from stepscope.render import render
    from stepscope.render.table import PIPED_WIDTH

    return render(result, "table", width=PIPED_WIDTH).decode().rstrip("\n")


def drawn(result: Result) -> Any:
    """The picture of an answer: imported where one is wanted."""
    from stepscope.render.plots import plot

    return plot(result)


def notebook(result: Result) -> str:
    """How a notebook shows an answer: imported where one does."""
    from stepscope.render.notebook import answer_html

    return answer_html(result)
