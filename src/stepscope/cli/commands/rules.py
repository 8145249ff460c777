"""The rules of `nsys analyze`: what is likely to cost time, with advice.

-r all, or no -r, tries every rule; a rule that finds nothing says so.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import click

from stepscope.cli import nsys
from stepscope.cli.declare import command_of
from stepscope.model.option import Shell

if TYPE_CHECKING:
    from stepscope.nsys.reports import Answer

_WIDTH = 79


def _rules(
    profile: nsys.Profiles,
    *,
    asked: nsys.Rules = (),
    showing: nsys.Showing,
    help_wanted: Annotated[
        str | None,
        "List the rules, or explain one.",
        Shell(flags=("--help-rules",), metavar="[NAME|ALL]", bare=""),
    ] = None,
    reading: nsys.Reading,
) -> None:
    from stepscope.nsys import reports as nsysreports
    from stepscope.nsys.reports.help import help_text
    from stepscope.nsys.reports.registry import find

    rules = nsysreports.all_rules()
    if help_wanted is not None:
        click.echo(help_text(rules, help_wanted, "rule"), nl=False)
        return
    names = nsys.split(asked)
    if not names or "all" in names:
        names = list(rules)
    orders = nsys.orders(names, lambda text: find(text, rules, "rule"), showing)
    nsys.run(profile, orders, showing, reading, _text)


def _text(order: nsys.Order, answer: Answer) -> Iterable[str]:
    text = "".join(nsys.text_of(order, answer, order.report.advice))
    rows = order.args.number("rows")
    more = f"\nOnly the first {rows} are shown; rows=-1 shows all.\n" if 0 < rows == answer.frame.height else ""
    advice = "\n".join(textwrap.wrap(order.report.advice, _WIDTH)) + "\n\n" if text else "Nothing found.\n"
    return nsys.titled(order, [text + (more if order.format.name in ("column", "table") else "")], advice)


command = command_of(_rules)
