"""Reports of `nsys stats` and `nsys analyze` as Markdown, which nsys does not have: its columns, units and digits."""

from __future__ import annotations

from stepscope.model.result import Result
from stepscope.nsys.reports import Answer
from stepscope.nsys.reports.formats import Format, are_numbers, cells
from stepscope.render.layout import shorten
from stepscope.render.md import code, prose, table

_LONGEST_NAME = 40


def to_markdown(answer: Answer, format: Format, name: str, advice: str = "") -> str:
    """The report under its title: its rows, of a long one the first; nothing where there are none."""
    frame = cells(answer, format.units).fill_null("")
    if frame.height == 0:
        return ""
    shown = Result(frame, ranked_by="").for_people().rows
    numbers = [i for i, number in enumerate(are_numbers(answer, format.units)) if number]
    texts = [_texts(column.to_list(), i in numbers) for i, column in enumerate(shown)]
    out = [f"**{prose(answer.report.title)}** ({code(name)})", "", *([prose(advice), ""] if advice else [])]
    out += table([prose(title) for title in shown.columns], zip(*texts, strict=True), numbers)
    if left_out := frame.height - shown.height:
        out += [f"… and {left_out:,} more (`-f csv` has all)", ""]
    return "\n".join(out)


def _texts(column: list[str], number: bool) -> list[str]:
    if number:
        return [prose(text) for text in column]
    return [code(shorten(text, _LONGEST_NAME, _LONGEST_NAME // 2)) if text.strip() else "" for text in column]
