"""A profile as a file of another form: what `stepscope export` and `Profile.export` do."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from stepscope import questions
from stepscope.api.analysing import analyse
from stepscope.api.options import WINDOW_KEYWORDS, Ranks, parse_ranks, window_spec
from stepscope.errors import CannotAnswer
from stepscope.model.note import Note, noted
from stepscope.model.profile import Profile
from stepscope.model.result import Result

if TYPE_CHECKING:
    from stepscope.export.write import Exported


def export(
    profile: Profile,
    file: str | Path,
    *,
    to: str | None = None,
    rank: Ranks | None = None,
    findings: bool = True,
    anonymize: bool = False,
    **window: Any,
) -> Exported:
    """Write the profile to `file`, in the form that `to` or its ending names; cut to a window where one is given."""
    from stepscope.derive.windows.choosing import windows
    from stepscope.export.write import Order, form_of
    from stepscope.export.write import export as written

    unknown = [k for k in window if k not in WINDOW_KEYWORDS]
    if unknown:
        raise TypeError(f"export: no option {unknown[0]!r}; it has to, rank, findings, anonymize and those of a window")
    path = Path(file)
    form = form_of(path, to)
    questions.need_timeline(profile, "export")
    if rank is not None:
        profile = profile.view(parse_ranks(rank))
    given = {k: v for k, v in window.items() if v not in (None, False)}
    chosen = windows(profile, window_spec(profile, **given)) if given else None
    notes: list[Note] = []
    order = Order(
        chosen.spans if chosen is not None else None,
        anonymize,
        partial(_diagnosed, notes, given, path.name) if findings and form in ("perfetto", "chrome") else None,
    )
    made = written(profile, path, form, order)
    made.notes.extend([*notes, *(chosen.notes if chosen is not None else ())])
    return made


def _diagnosed(notes: list[Note], window: dict[str, Any], file: str, profile: Profile) -> Result | None:
    """The findings, with commands for the export; none where the profile cannot tell, which is noted."""
    if window.get("index") == "all":
        window = {k: v for k, v in window.items() if k != "index"}
    try:
        result = analyse(profile, "diagnose", **window)
    except CannotAnswer as reason:
        notes.append(noted("no-findings", why=reason.message))
        return None
    # Where the traces lie is nobody's business who gets the export, and its own name is what works there.
    lie = [str(path) for source in range(len(profile.sources)) for path in [profile.source_path(source)]]
    lie += [str(folder) for folder in profile.folders]
    command = pl.col("command").cast(pl.String).str.replace_many(lie, [file] * len(lie), leftmost=True)
    result.rows = result.rows.with_columns(command)
    return result
