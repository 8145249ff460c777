"""The tools that an agent can call: what they take, and which function of the API each calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import polars as pl
from mcp_types import CallToolResult
from pydantic import Field, WithJsonSchema

from stepscope import api
from stepscope.agent import listing, nsys
from stepscope.agent.answers import Asked, Detail, answer
from stepscope.agent.asking import Desk, Paths, full_name, gated, short, told
from stepscope.agent.failures import Refused, call
from stepscope.agent.kept import first_of, key_of
from stepscope.agent.options import analysis_of, checked, common_schemas, line_of, question_of
from stepscope.agent.overview import overview
from stepscope.agent.shapes import Answer, Description, Listing, Overview
from stepscope.findings.finding import for_profile
from stepscope.model.command_line import command_line, flags
from stepscope.model.note import Note, noted
from stepscope.model.result import Result
from stepscope.questions import Analysis

#: A query that would give more rows, or take longer, is better written otherwise.
MOST_ROWS = 100_000
MOST_SECONDS = 120.0
_LONGEST_QUERY = 6_000

_Profile = Field(
    description="file, folder or glob below the server's folders, or several; many files are the ranks of one job"
)
DetailArgument = Annotated[
    Detail,
    Field(description="concise: the rows that matter, six digits; full: all, exact"),
]
LimitArgument = Annotated[int | None, Field(ge=1, le=1000, description="rows at most")]
CursorArgument = Annotated[str | None, Field(description="of `page.next`")]
RankArgument = Annotated[int | str | None, Field(description="only these ranks: 0,3-5")]
#: As clients see it; names that are not there are refused with those that are near.
_NAME = {"type": "string"}
AnalysisArgument = Annotated[str, WithJsonSchema({**_NAME, "description": "which question, from the list above"})]
OptionsArgument = Annotated[
    dict[str, Any],
    WithJsonSchema(
        {
            "type": "object",
            "description": "such as by; stepscope_describe lists all of an analysis, with types and choices",
            "properties": {name: {"type": schema["type"]} for name, schema in common_schemas().items()},
        }
    ),
]
AnswersArgument = Annotated[
    dict[str, Any],
    WithJsonSchema(
        {
            "type": "object",
            "description": "analyses whose rows are tables of the query, by the name of the table",
            "additionalProperties": {
                "type": "object",
                "properties": {"analysis": _NAME, "options": {"type": "object"}},
                "required": ["analysis"],
            },
        }
    ),
]


class Tools:
    """The seven tools of one server."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def open(self, profile: Annotated[Paths, _Profile]) -> Annotated[CallToolResult, Overview]:
        with self._desk.profiles.asked(short(profile)) as opened:
            return told(overview(opened, profile))

    def list(
        self,
        what: Annotated[Literal["files", "analyses", "tables", "reports"], Field(description="what to list")] = "files",
        under: Annotated[str | None, Field(description="of files: only those in this folder")] = None,
        cursor: CursorArgument = None,
    ) -> Annotated[CallToolResult, Listing]:
        notes: list[str] = []
        items: Sequence[Mapping[str, object]]
        if what == "files":
            items, notes = listing.files(self._desk.roots, under)
        elif what == "reports":
            items = nsys.listed()
        else:
            items = listing.analyses() if what == "analyses" else listing.tables()
        given = {"what": what, **({"under": under} if under else {})}
        key = key_of("list", given, items)
        listed = Asked(full_name("list"), given, key, Result(pl.DataFrame(items, infer_schema_length=None)), "")
        page = answer(listed, "full", first_of(cursor, key, "full", call("list", **given)), None)
        if (following := page["page"]["next"]) is not None:
            del following["arguments"]["detail"]
        shown = [{k: v for k, v in row.items() if v is not None} for row in page["rows"]]
        return told({"what": what, "items": shown, "page": page["page"], "notes": notes})

    def describe(
        self, name: Annotated[str, Field(description="an analysis, a table of stepscope_sql, or `tables`")]
    ) -> Annotated[CallToolResult, Description]:
        return told(listing.description(name))

    def run(
        self,
        analysis: AnalysisArgument,
        profile: Annotated[Paths | None, _Profile] = None,
        options: OptionsArgument = {},  # noqa: B006 (never changed)
        detail: DetailArgument = "concise",
        limit: LimitArgument = None,
        cursor: CursorArgument = None,
    ) -> Annotated[CallToolResult, Answer]:
        if analysis in nsys.KINDS:
            return self._of_nsys(analysis, profile, options, detail, limit, cursor)
        question = analysis_of(analysis)
        values = checked(question, options, self._desk.roots)
        arguments = {"profile": profile, "analysis": question.name, "options": options}

        def work(key: str) -> Asked:
            if profile is None:
                result, gate = gated(lambda: api.analyse(None, question.name, **values))
            else:
                with self._desk.profiles.asked(profile) as opened:
                    result, gate = gated(lambda: api.analyse(opened, question.name, **values))
            paths = self._desk.opened(profile)
            asked = Asked(full_name("run"), arguments, key, result, line_of(question, paths, values), gate)
            if "command" in result.rows.columns:
                asked.cited = result.rows["command"].to_list()
                asked.result = for_profile(result, paths)
            return asked

        return self._desk.ask("run", arguments, [profile], work, detail, limit, cursor)

    def _of_nsys(
        self,
        kind: str,
        profile: Paths | None,
        options: dict[str, Any],
        detail: Detail,
        limit: int | None,
        cursor: str | None,
    ) -> CallToolResult:
        name, given = nsys.checked(kind, options)
        if profile is None:
            raise Refused("bad_argument", f"{kind} needs a profile", "name one", call("list", what="files"))
        arguments = {"profile": profile, "analysis": kind, "options": options}

        def work(key: str) -> Asked:
            with self._desk.profiles.asked(profile) as opened:
                result = nsys.answered(opened, kind, name, given)
            line = nsys.line_of(kind, self._desk.opened(profile), name, given)
            return Asked(full_name("run"), arguments, key, result, line)

        return self._desk.ask("run", arguments, [profile], work, detail, limit, cursor)

    def diff(
        self,
        base: Annotated[Paths, Field(description="the run before: paths, or the file of a saved baseline")],
        new: Annotated[Paths, Field(description="the run after: paths")],
        by: Annotated[
            Literal["part", "stage", "rank", "family", "kernel"], Field(description="what a row is")
        ] = "part",
        margin: Annotated[
            float, Field(gt=0, lt=100, description="in percent: a smaller change counts as no difference")
        ] = 3.0,
        rank: RankArgument = None,
        anchor: Annotated[str | None, Field(description="ranges that are steps (regular expression)")] = None,
        chunk: Annotated[bool, Field(description="compare overlapped chunks of a pipeline, not steps")] = False,
        whole: Annotated[bool, Field(description="compare whole captures, each as one step")] = False,
        warmup: Annotated[int, Field(ge=0, description="steps at the beginning that do not count")] = 0,
        runs: Annotated[
            Literal["auto", "one", "folder", "file"],
            Field(description="how the files of each side are grouped into runs"),
        ] = "auto",
        detail: DetailArgument = "concise",
        limit: LimitArgument = None,
        cursor: CursorArgument = None,
    ) -> Annotated[CallToolResult, Answer]:
        given = {"by": by, "margin": margin, "rank": rank, "anchor": anchor, "chunk": chunk, "whole": whole}
        given |= {"warmup": warmup, "runs": runs}
        chosen: dict[str, Any] = {k: v for k, v in given.items() if v != _USUAL[k]}
        arguments = {"base": base, "new": new, **chosen}

        def work(key: str) -> Asked:
            sides = [[*map(str, self._desk.roots.paths(side))] for side in (base, new)]
            result = api.compare(sides[0], sides[1], top=0, **chosen, **self._desk.profiles.opening)
            sides_named = [*self._desk.typed(base), "--to", *self._desk.opened(new)]
            line = command_line("compare", *sides_named, *flags(chosen))
            return Asked(full_name("diff"), arguments, key, result, line)

        return self._desk.ask("diff", arguments, [base, new], work, detail, limit, cursor)

    def hang(
        self,
        dumps: Annotated[Paths, Field(description="folder, files or glob of one job's flight-recorder dumps")],
        detail: DetailArgument = "concise",
        limit: LimitArgument = None,
        cursor: CursorArgument = None,
    ) -> Annotated[CallToolResult, Answer]:
        arguments = {"dumps": dumps}

        def work(key: str) -> Asked:
            result = api.hang([*map(str, self._desk.roots.paths(dumps))])
            line = command_line("hang", *self._desk.typed(dumps))
            return Asked(full_name("hang"), arguments, key, result, line)

        return self._desk.ask("hang", arguments, [dumps], work, detail, limit, cursor)

    def sql(
        self,
        profile: Annotated[Paths, _Profile],
        query: Annotated[str, Field(description="one statement: SELECT or DESCRIBE", max_length=_LONGEST_QUERY)],
        answers: AnswersArgument = {},  # noqa: B006 (never changed)
        rank: RankArgument = None,
        detail: DetailArgument = "concise",
        limit: LimitArgument = None,
        cursor: CursorArgument = None,
    ) -> Annotated[CallToolResult, Answer]:
        arguments = {"profile": profile, "query": query, "answers": answers or None, "rank": rank}
        asked_too = {name: question_of(name, given, self._desk.roots) for name, given in answers.items()}

        def work(key: str) -> Asked:
            with self._desk.profiles.asked(profile) as opened:
                named = {name: _answered(opened, *question) for name, question in asked_too.items()}
                result = api.sql(opened, query, limit=MOST_ROWS, rank=rank, seconds=MOST_SECONDS, answers=named)
            result.notes = [_first_rows() if note.code == "first-rows" else note for note in result.notes]
            paths = self._desk.opened(profile)
            words = [] if rank is None else flags({"rank": rank})
            line = command_line("sql", *paths, *words, query)
            if asked_too:  # no one command does that
                lines = [f"{line_of(q, paths, v)} (as table {name})" for name, (q, v) in asked_too.items()]
                line = "; ".join([*lines, f"then {query}"])
            return Asked(full_name("sql"), arguments, key, result, line)

        return self._desk.ask("sql", arguments, [profile], work, detail, limit, cursor)


#: Arguments of `diff` that need not be repeated.
_USUAL = {"by": "part", "margin": 3.0, "rank": None, "anchor": None, "chunk": False, "whole": False}
_USUAL |= {"warmup": 0, "runs": "auto"}


def _answered(profile: api.Profile, question: Analysis, values: dict[str, Any]) -> Result:
    return gated(lambda: api.analyse(profile, question.name, **values))[0]


def _first_rows() -> Note:
    return noted("first-rows/agent", rows=MOST_ROWS)
