"""Pieces of Markdown: escaped texts, code, tables. What is in them does nothing, whoever named it (`inert`)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from stepscope.model.visible import visible
from stepscope.render.inert import markdown

_QUOTED = re.compile(r"`([^`]+)`")
_BACKTICKS = re.compile(r"`+")


def code(value: str) -> str:
    """A text as code, whatever backticks it has."""
    plain = visible(" ".join(value.split()))
    fence = "`" * (1 + max((len(run) for run in _BACKTICKS.findall(plain)), default=0))
    pad = " " if plain.startswith("`") or plain.endswith("`") else ""
    return f"{fence}{pad}{plain}{pad}{fence}"


def prose(value: Any) -> str:
    """A sentence: what it quotes in backticks, such as a command, is code; the rest is escaped."""
    pieces = _QUOTED.split(str(value))
    # Pieces are escaped apart, which would lose the blanks at their ends.
    shown = [code(p) if i % 2 and p.strip() else _escaped(p) for i, p in enumerate(pieces)]
    return "".join(shown).strip()


def _escaped(piece: str) -> str:
    inner = markdown(piece)
    if not inner:
        return " " if piece else ""
    return " " * piece[:1].isspace() + inner + " " * piece[-1:].isspace()


def table(header: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[int] = ()) -> list[str]:
    """Lines of a table; columns of numbers to the right."""
    rule = ["---:" if i in numbers else "---" for i in range(len(header))]
    lines = ["| " + " | ".join(map(_in_table, header)) + " |", "|" + "|".join(rule) + "|"]
    return [*lines, *("| " + " | ".join(map(_in_table, row)) + " |" for row in rows), ""]


def _in_table(shown: str) -> str:
    """Also within code, a bar would end the cell."""
    return re.sub(r"(?<!\\)\|", r"\\|", shown)


def listed(lines: Iterable[str]) -> list[str]:
    """Items of a list; nothing of none."""
    items = [f"- {line}" for line in lines]
    return [*items, ""] if items else []


def folded(title: str, lines: Sequence[str]) -> list[str]:
    """Lines that a click unfolds; nothing of none."""
    return [f"<details><summary>{title}</summary>", "", *lines, "</details>", ""] if lines else []


def fenced(lines: Iterable[str]) -> list[str]:
    """Lines as they are, in letters of one width."""
    text = [visible(line) for line in lines]
    longest = max((len(run) for line in text for run in _BACKTICKS.findall(line)), default=0)
    fence = "`" * max(3, longest + 1)
    return [fence, *text, fence, ""]
