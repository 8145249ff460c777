"""The reports of `nsys stats`: same names, columns, order and digits, from any profile."""

from __future__ import annotations

from typing import Any

import click

from stepscope.cli import nsys


def _stats(profile: tuple[str, ...], asked: tuple[str, ...], help_wanted: str | None, **given: Any) -> None:
    from stepscope.nsys import reports as nsysreports
    from stepscope.nsys.reports.help import help_text
    from stepscope.nsys.reports.registry import find

    reports = nsysreports.reports()
    if help_wanted is not None:
        click.echo(help_text(reports, help_wanted), nl=False)
        return
    names = nsys.split(asked) or list(nsysreports.DEFAULT_REPORTS)
    orders = nsys.orders(names, lambda text: find(text, reports), given)
    nsys.run(profile, orders, given, lambda order, answer: nsys.titled(order, nsys.text_of(order, answer)))


command = click.Command(
    "stats",
    callback=_stats,
    params=nsys.options("report"),
    help="The reports of `nsys stats`: same names, columns, order and digits, from any profile.\n\nWithout -r, the"
    " reports that nsys shows by default, as far as the profile has the traces. Names of older versions are"
    " understood.",
)
