"""What there is: profiles below the roots, analyses, tables of SQL; and all about one of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Required, TypedDict

from stepscope import questions
from stepscope.agent.failures import Refused, call
from stepscope.agent.options import analysis_of, offered
from stepscope.agent.roots import Roots
from stepscope.errors import BadInput, meant
from stepscope.model.result import Col
from stepscope.sources.detect import is_parquet_export
from stepscope.sources.open import kind_among_others, natural_key

#: Folders deeper than this below the one that is listed are not looked into, nor more entries than that.
_DEPTH = 6
_MOST_LOOKED_AT = 20_000

SQL_TEXT = (
    "One statement that reads: SELECT (WITH), EXPLAIN of one, DESCRIBE. No file but the profile can be read, and "
    "nothing written. Times are nanoseconds. Functions of stepscope: {macros}."
)


class ListedFile(TypedDict, total=False):
    """A profile; or why a file that is named like one is none."""

    path: Required[str]
    format: str
    bytes: int
    problem: str


class ListedAnalysis(TypedDict):
    analysis: str
    question: str
    about: str


class ListedTable(TypedDict):
    table: str
    row: str


def files(roots: Roots, under: str | None) -> tuple[list[ListedFile], list[str]]:
    """Profiles below a folder, or below all roots; and what was not looked at."""
    folders = [roots.path(under)] if under else list(roots.folders)
    items: list[ListedFile] = []
    notes = [f"paths are relative to {folder}" for folder in roots.folders[:1]]
    looked = 0
    for folder in folders:
        if folder.is_file():
            raise Refused("bad_argument", f"{under} is a file", "open it", call("open", profile=under))
        for entry in _walk(folder, roots, _DEPTH):
            looked += 1
            if looked > _MOST_LOOKED_AT:
                notes.append(f"stopped after {_MOST_LOOKED_AT:,} entries: give `under`, a folder")
                return items, notes
            if (item := _profile(entry, roots)) is not None:
                items.append(item)
    return items, notes


def analyses() -> list[ListedAnalysis]:
    """Every analysis, by group."""
    return [
        {"analysis": name, "question": questions.question(name), "about": title}
        for title, modules in questions.GROUPS.items()
        for name in (module.rsplit(".", 1)[1].replace("_", "-") for module in modules)
    ]


def tables() -> list[ListedTable]:
    """Every table that a query may mention."""
    from stepscope.sql.catalogue import catalogue

    return [{"table": table.name, "row": table.doc} for table in catalogue().values()]


def description(name: str) -> dict[str, Any]:
    """An analysis, a table, or SQL itself (`tables`)."""
    from stepscope.sql.catalogue import catalogue
    from stepscope.sql.macros import MACROS

    by_name = catalogue()
    if name == "tables":
        text = SQL_TEXT.format(macros="; ".join(f"{m.call}: {m.doc}" for m in MACROS))
        columns = {table.name: table.doc for table in by_name.values()}
        return _described(name, "sql", text, columns=columns)
    if name in by_name and name not in questions.names():
        return _described(name, "table", by_name[name].doc, columns=_docs(by_name[name].columns))
    wanted = name.strip().replace("_", "-")
    if wanted not in questions.names():
        hint = meant(name, [*questions.names(), *by_name]) or "name an analysis or a table"
        raise Refused("unknown_analysis", f"nothing is called {name!r}", hint, call("list", what="analyses"))
    analysis = analysis_of(wanted)
    example = call("run", profile="PATH" if analysis.needs_profile else None, analysis=analysis.name, options={})
    return {
        **_described(analysis.name, "analysis", analysis.doc, columns=_docs(analysis.columns)),
        "options": offered(analysis),
        "variants": {key: _variant(analysis.columns, columns) for key, columns in analysis.variants.items()},
        "example": example,
    }


def _described(name: str, kind: str, text: str, *, columns: dict[str, str]) -> dict[str, Any]:
    sql = f"SELECT * FROM {name} LIMIT 10"
    example = None if kind == "analysis" else call("sql", profile="PATH", query=sql)
    return {
        "name": name,
        "kind": kind,
        "text": text,
        "options": {},
        "columns": columns,
        "variants": {},
        "example": example,
    }


def _variant(usual: tuple[Col, ...], columns: tuple[Col, ...]) -> dict[str, Any]:
    """All columns by name, and what those mean that are not there otherwise."""
    usual_columns = set(usual)
    return {"columns": [c.name for c in columns], "new": _docs(tuple(c for c in columns if c not in usual_columns))}


def _docs(columns: tuple[Col, ...]) -> dict[str, str]:
    return {c.name: c.doc for c in columns}


def _walk(folder: Path, roots: Roots, depth: int) -> Iterator[Path]:
    """Files, and folders that are a profile, in natural order. Links are followed only to files below the roots."""
    try:
        entries = sorted((e for e in folder.iterdir() if not e.name.startswith(".")), key=natural_key)
    except OSError:
        return
    folders = []
    for entry in entries:
        if not roots.inside(entry):
            continue
        if entry.is_dir() and not is_parquet_export(entry):
            if not entry.is_symlink():
                folders.append(entry)
            continue
        yield entry
    if depth:
        for inner in folders:
            yield from _walk(inner, roots, depth - 1)


def _profile(entry: Path, roots: Roots) -> ListedFile | None:
    try:
        kind = kind_among_others(entry)
    except BadInput as error:  # named like a profile, and none
        return {"path": roots.shown(entry), "problem": str(error)}
    if kind is None:
        return None
    parts = entry.iterdir() if entry.is_dir() else [entry]
    return {"path": roots.shown(entry), "format": kind, "bytes": sum(p.stat().st_size for p in parts)}
