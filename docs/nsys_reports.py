"""reports.md: the reports of `stats` and the rules of `rules`, from their registry."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from stepscope.nsys.reports.help import signature
from stepscope.nsys.reports.registry import ALIASES, DEFAULT_REPORTS, all_rules, reports
from stepscope.nsys.reports.spec import PART, Argument, Report

Table = Callable[[tuple[str, ...], Iterable[tuple[str, ...]]], Iterator[str]]


def page(table: Table) -> Iterator[str]:
    """The page, less the line that says where it comes from."""
    yield from (
        "# Reports and rules",
        "",
        "`stepscope stats PROFILE --report NAME` prints a report of `nsys stats`, `stepscope rules PROFILE --rule",
        "NAME` a rule of `nsys analyze`: same names, columns, order and digits, from any profile, torch.profiler's",
        "too. Where we differ from nsys is in [differences.md](differences.md). Arguments follow the name:",
        "`cuda_gpu_kern_sum:base`. All take these:",
        "",
        *table(("argument", "meaning"), map(_argument, PART)),
        "Without `--report`, `stats` prints " + ", ".join(f"`{name}`" for name in DEFAULT_REPORTS) + ".",
        "",
        "## Reports",
        "",
    )
    for report in reports().values():
        yield from _section(report, table)
    yield from ("## Rules", "")
    for rule in all_rules().values():
        yield from _section(rule, table)


def _section(report: Report, table: Table) -> Iterator[str]:
    yield from (f"### {report.name}", "", f"*{report.title}.* {report.doc} {report.advice}".strip(), "")
    before = [f"`{alias}`" for alias, name in ALIASES.items() if name == report.name]
    if before:
        yield from (f"Also called {', '.join(before)}.", "")
    if report.args:
        yield from (f"`{signature(report)}`", "", *table(("argument", "meaning"), map(_argument, report.args)))
    yield from ("Columns: " + ", ".join(f"`{c.name.strip()}`" for c in report.columns) + ".", "")


def _argument(argument: Argument) -> tuple[str, str]:
    name = argument.name if argument.type is bool else f"{argument.name}=…"
    default = f" (default {argument.default})" if argument.default not in (None, False) else ""
    return f"`{name}`", f"{argument.help}{default}"
