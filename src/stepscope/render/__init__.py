"""Results for people and programs. Each format is one function from a result to bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from stepscope.model.result import Result

Format = Literal["table", "json", "csv", "md", "parquet"]
FORMATS: tuple[Format, ...] = get_args(Format)

#: What a file's suffix asks for.
SUFFIXES: dict[str, Format] = {
    ".txt": "table",
    ".json": "json",
    ".csv": "csv",
    ".md": "md",
    ".parquet": "parquet",
}
#: Formats that are rows alone: whoever writes them shows the notes elsewhere.
WITHOUT_NOTES: tuple[Format, ...] = ("csv", "parquet")


def render(result: Result, format: Format, *, width: int = 100, colour: bool = False) -> bytes:
    """The result in one format, UTF-8 where it is text. `width` and `colour` are for tables."""
    if format == "json":
        from stepscope.render.json import to_json

        return to_json(result)
    if format == "table":
        if result.command == "diagnose":
            from stepscope.render.findings import findings_text

            return findings_text(result, width, colour).encode()
        if result.command in ("compare", "gate"):
            from stepscope.render.comparison import narrowed

            result = narrowed(result)
        from stepscope.render.table import to_text

        return to_text(result, width, colour).encode()
    from stepscope.render import flat

    return {"csv": flat.to_csv, "md": flat.to_markdown, "parquet": flat.to_parquet}[format](result)
