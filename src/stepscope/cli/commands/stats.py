"""The reports of `nsys stats`: same names, columns, order and digits, from any profile.

Without -r, the reports that nsys shows by default, as far as the profile has the traces. Names of older versions are
understood.
"""

from __future__ import annotations

from typing import Annotated

import click

from stepscope.cli import nsys
from stepscope.cli.declare import command_of
from stepscope.model.option import Shell


def _stats(
    profile: nsys.Profiles,
    *,
    asked: nsys.Reports = (),
    showing: nsys.Showing,
    help_wanted: Annotated[
        str | None,
        "List the reports, or explain one.",
        Shell(flags=("--help-reports",), metavar="[NAME|ALL]", bare=""),
    ] = None,
    reading: nsys.Reading,
) -> None:
    from stepscope.nsys import reports as nsysreports
    from stepscope.nsys.reports.help import help_text
    from stepscope.nsys.reports.registry import find

    reports = nsysreports.reports()
    if help_wanted is not None:
        click.echo(help_text(reports, help_wanted), nl=False)
        return
    names = nsys.split(asked) or list(nsysreports.DEFAULT_REPORTS)
    orders = nsys.orders(names, lambda text: find(text, reports), showing)
    nsys.run(profile, orders, showing, reading, lambda order, answer: nsys.titled(order, nsys.text_of(order, answer)))


command = command_of(_stats)
