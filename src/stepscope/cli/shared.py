"""Options that several commands share, each described once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import click

from stepscope.cli.output import Target
from stepscope.files import budget
from stepscope.model.option import Shell
from stepscope.render import FORMATS, Format

if TYPE_CHECKING:
    from stepscope.api import Profile

Profiles = Annotated[tuple[str, ...], "", Shell(metavar="PROFILE...")]
#: Where the command can do without, or says itself what is missing.
AnyProfiles = Annotated[tuple[str, ...], "", Shell(metavar="[PROFILE...]", required=False)]
#: The command to run.
Words = Annotated[tuple[str, ...], "", Shell(metavar="-- COMMAND...", required=False, words=True)]
RankNumbers = Annotated[str | None, "Only these ranks: 0,3-5.", Shell(metavar="RANKS")]
NoCache = Annotated[bool, "Read the files again, without the cache."]
Nsys = Annotated[str | None, "The nsys that exports .nsys-rep files.", Shell(metavar="PATH")]
Taxonomy = Annotated[str | None, "Additional rules for what counts as communication (TOML).", Shell(metavar="FILE")]
Labels = Annotated[
    str | None,
    "How the trainer names its ranges: steps, stages, purposes of communication (docs/labels.md).",
    Shell(metavar="PRESET|FILE"),
]
#: The budget is of the process: no command has to hand it on.
Memory = Annotated[
    str | None,
    "Memory to use at most, as in 1GiB: the rest goes to temporary files. Default: 75% of the memory there is.",
    Shell(metavar="SIZE", acts=budget.keep),
]
MaxSize = Annotated[str, "Budget of one file.", Shell(metavar="SIZE")]
Jobs = Annotated[int | None, "Processes that read files; default: one per core.", Shell(metavar="N")]
Cluster = Annotated[str | None, "Read on the Dask cluster at tcp://host:port instead.", Shell(metavar="ADDRESS")]
AnyFormat = Annotated[Format | None, "Format of the answer.", Shell(one_of=FORMATS)]


def by_user(option: str) -> bool:
    """Whether the user wrote it."""
    source = click.get_current_context().get_parameter_source(option)
    return source not in (None, click.core.ParameterSource.DEFAULT)


class Reading(NamedTuple):
    """How files are read, and by which rules: of every command that opens a profile."""

    no_cache: NoCache = False
    nsys: Nsys = None
    taxonomy: Taxonomy = None
    labels: Labels = None
    memory: Memory = None

    @property
    def keywords(self) -> dict[str, Any]:
        """As `api.open` takes them."""
        return {"cache": not self.no_cache, "nsys": self.nsys, "taxonomy": self.taxonomy, "labels": self.labels}

    def open(self, paths: Sequence[str], **more: Any) -> Profile:
        from stepscope import api

        return api.open(*paths, **self.keywords, **more)


class Workers(NamedTuple):
    """Who reads the files."""

    jobs: Jobs = None
    cluster: Cluster = None


class Output(NamedTuple):
    """Where an answer goes, and in which format."""

    format: Annotated[Format | None, "Default: table, or by the suffix of -o.", Shell(one_of=FORMATS)] = None
    output: Annotated[
        str | None, "Write to FILE instead of standard output.", Shell(flags=("-o", "--output"), metavar="FILE")
    ] = None

    @property
    def target(self) -> Target:
        """Checked before any work is done."""
        return Target.of(self.output, self.format)
