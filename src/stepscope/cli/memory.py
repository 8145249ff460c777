"""`--memory`: the budget that a command keeps to."""

from __future__ import annotations

import click

from stepscope.files import budget


def memory_option() -> click.Option:
    """Of every command that opens profiles. The budget is of the process: no command has to hand it on."""
    return click.Option(
        ["--memory"],
        metavar="SIZE",
        callback=lambda _context, _option, size: budget.keep(size),
        expose_value=False,
        help="Memory to keep to, as in 1GiB: what does not fit goes to temporary files. Default: 75% of what there is.",
    )


def snapshots_of(given: tuple[str, ...]) -> tuple[str, ...]:
    """`report --memory` takes allocator snapshots, too: what reads as a size is the budget, the rest is files."""
    sizes = [text for text in given if budget.size_of(text) is not None]
    budget.keep(sizes[-1] if sizes else None)
    return tuple(text for text in given if text not in sizes)
