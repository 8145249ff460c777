"""The report of a profile: one page, or Markdown. What it says is asked when one of them is wanted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from html import escape
from pathlib import Path
from typing import Any

from stepscope import questions
from stepscope.api.analysing import analyse
from stepscope.api.options import Ranks, parse_ranks
from stepscope.errors import BadInput
from stepscope.files import whole
from stepscope.model import profile as model
from stepscope.model.ranks import ranks_text
from stepscope.report import Asker, gather

#: By suffix: whether the report is drawn.
SUFFIXES = {".html": True, ".htm": True, ".md": False, ".markdown": False}
#: Of the page in a notebook.
_HEIGHT = "800px"


@dataclass(frozen=True)
class Page:
    """A report: `html`, `markdown`, and `save`, by the suffix of the file. A notebook shows the page itself."""

    asker: Asker
    #: further words of the command line that gives it again
    words: tuple[str, ...] = ()

    @cached_property
    def html(self) -> str:
        from stepscope.render.html.report import to_html

        return to_html(gather(self.asker, self._command))

    @cached_property
    def markdown(self) -> str:
        from stepscope.render.report_markdown import to_markdown

        return to_markdown(gather(self.asker, self._command, drawn=False))

    @property
    def _command(self) -> str:
        command = self.asker.command("report", *self.words)
        return command.encode("utf-8", "replace").decode()  # file names need not be text

    def text(self, path: str | Path) -> str:
        """What a file of this name holds."""
        return self.html if drawn(path) else self.markdown

    def save(self, path: str | Path) -> Path:
        """Write it: report.html or report.md."""
        file = Path(path)
        whole.write(file, self.text(path).encode(), "{}")
        return file

    def __repr__(self) -> str:
        return f"<a report of {', '.join(self.asker.paths)}: .save('report.html') or .save('report.md') keeps it>"

    def _repr_html_(self) -> str:
        # A frame of its own: its styles and scripts are of no concern to the notebook.
        return f'<iframe srcdoc="{escape(self.html)}" style="width:100%;height:{_HEIGHT};border:0"></iframe>'


def drawn(path: str | Path) -> bool:
    """Whether a file of this name is a page; refused where it is neither that nor Markdown."""
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise BadInput(f"-o {path}: a report is a page or Markdown", "end it in .html or .md")
    return SUFFIXES[suffix]


def report(
    profile: model.Profile,
    paths: Sequence[str],
    *,
    rank: Ranks | None = None,
    memory: tuple[model.Profile, Sequence[str]] | None = None,
    words: tuple[str, ...] = (),
    **window: Any,
) -> Page:
    """The report of a profile that was opened from `paths`, and of snapshots of the allocator, where there are any."""
    questions.need_timeline(profile, "report")
    ranks = None if rank is None else parse_ranks(rank)
    chosen = profile.view(ranks).view(in_one_part=True)  # many questions
    shown = None if ranks is None else rank if isinstance(rank, str) else ranks_text(ranks)
    held = asker_of(*memory) if memory is not None else None
    return Page(asker_of(chosen, paths, window=window, rank=shown, of_memory=held), words)


def asker_of(profile: model.Profile, paths: Sequence[str], **more: Any) -> Asker:
    """Who answers questions about a profile that was opened from `paths`."""
    named = getattr(profile, "named", None)
    rules = tuple(named.rules) if named is not None else ()
    return Asker(
        partial(analyse, profile),
        tuple(paths),
        rules=rules,
        of_rank=lambda rank: partial(analyse, profile.view([rank])),
        **more,
    )
