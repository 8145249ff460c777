"""What there is to ask for: the text of `--help-reports` and `--help-rules`."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from stepscope.nsys.reports.registry import find
from stepscope.nsys.reports.spec import PART, Argument, Report

_WIDTH = 100


def help_text(among: dict[str, Report], wanted: str = "", what: str = "report") -> str:
    """All in short; one, or with `ALL` every one, at length."""
    if not wanted:
        widest = max(map(len, among))
        return "".join(f"  {r.name.ljust(widest)}  {r.title}\n" for r in among.values())
    chosen = list(among.values()) if wanted.upper() == "ALL" else [find(wanted, among, what)[0]]
    return "\n".join(_long(report) for report in chosen)


def signature(report: Report) -> str:
    """`name[:flag][:key=…]`."""
    return report.name + "".join(f"[:{a.name}{'' if a.type is bool else '=…'}]" for a in report.args)


def _long(report: Report) -> str:
    lines = [f"{signature(report)} -- {report.title}", "", *_wrapped(report.doc)]
    if report.advice:
        lines += ["", *_wrapped(report.advice)]
    lines += ["", "  Arguments:", *_arguments((*report.args, *PART))]
    lines += ["", *_wrapped("Columns: " + ", ".join(c.name.strip() for c in report.columns) + ".")]
    return "\n".join(lines) + "\n"


def _arguments(arguments: Iterable[Argument]) -> Iterable[str]:
    for a in arguments:
        default = f" (default {a.default})" if a.default not in (None, False) else ""
        yield f"    {a.name if a.type is bool else f'{a.name}=…'}: {a.help}{default}"


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent="  ", subsequent_indent="  ")
