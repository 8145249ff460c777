"""Results for people and programs. Each format is one function from a result to bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, get_args

from stepscope.errors import BadInput

if TYPE_CHECKING:
    from stepscope.model.result import Result

Format = Literal["table", "json", "csv", "md", "parquet", "svg"]
#: A picture is asked for by the suffix of a file: few questions have one.
FORMATS: tuple[Format, ...] = tuple(f for f in get_args(Format) if f != "svg")

#: What a file's suffix asks for.
SUFFIXES: dict[str, Format] = {
    ".txt": "table",
    ".json": "json",
    ".csv": "csv",
    ".md": "md",
    ".parquet": "parquet",
    ".svg": "svg",
}
#: Formats that are rows alone: whoever writes them shows the notes elsewhere.
WITHOUT_NOTES: tuple[Format, ...] = ("csv", "parquet", "svg")


def render(result: Result, format: Format, *, width: int = 100, colour: bool = False) -> bytes:
    """The result in one format, UTF-8 where it is text. `width` and `colour` are for tables."""
    if format == "json":
        from stepscope.render.json import to_json

        return to_json(result)
    if format == "table":
        from stepscope.render.inert import visible_result

        result = visible_result(result)
        if result.command == "diagnose":
            from stepscope.render.findings import findings_text

            return findings_text(result, width, colour).encode()
        if result.command in ("capture verify", "capture doctor"):
            from stepscope.render.checks import checks_text

            return checks_text(result, width, colour).encode()
        if result.command == "hang":
            from stepscope.render.hang import hang_text

            return hang_text(result, width, colour).encode()
        from stepscope.render.table import to_text

        return to_text(narrowed(result), width, colour).encode()
    if format == "svg":
        return _picture(result).encode()
    if format == "md":
        if result.command == "hang":
            from stepscope.render.hang import hang_markdown

            return hang_markdown(result)
        if result.command == "gate":
            from stepscope.render.gate import to_markdown
        else:
            from stepscope.render.answer_markdown import to_markdown

        return to_markdown(result)
    from stepscope.render import flat

    return flat.to_csv(result) if format == "csv" else flat.to_parquet(result)


def render_blocks(result: Result, format: Format, *, width: int = 100, colour: bool = False) -> Iterator[bytes]:
    """The same in parts, where the format has them."""
    if format == "json":
        from stepscope.render.json import blocks

        yield from blocks(result)
    else:
        yield render(result, format, width=width, colour=colour)


def narrowed(result: Result) -> Result:
    """The result with the columns that people read; files and programs get all of them."""
    made = _narrowed(result)
    if result.ranked_by and result.ranked_by not in made.rows.columns:
        return _narrowed(result.for_people())  # rows are chosen by a column that is not shown
    return made


def _narrowed(result: Result) -> Result:
    if result.command in ("compare", "gate"):
        from stepscope.render.comparison import narrowed

        return narrowed(result)
    if result.command in ("roofline", "kernels"):
        from stepscope.render.roofline import narrowed as without_details

        return without_details(result)
    if result.command == "source" and "kernel" not in result.rows.columns:  # lines of code need the room
        return replace(result, rows=result.rows.drop(["call", "api_ns", "api_less_gpu_ns"], strict=False))
    if result.command == "compute":
        from stepscope.render.compute import narrowed as without_sources

        return without_sources(result)
    if result.command == "memory":
        from stepscope.render.memory import narrowed as narrow_ledger

        return narrow_ledger(result)
    return result


def _picture(result: Result) -> str:
    """The picture of a result, of the few that have one."""
    if result.command == "memory":
        from stepscope.render.memory import memory_svg

        return memory_svg(result)
    if result.command != "roofline":
        raise BadInput(
            f"-o FILE.svg: `{result.command}` has no picture",
            "`roofline` and `memory --by time` have, and `report -o FILE.html` has more",
        )
    from stepscope.render.roofline import roofline_svg

    return roofline_svg(result)
