"""A profile as a file of another form: what `stepscope export` and `Profile.export` do."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepscope import questions
from stepscope.api.analysing import analyse
from stepscope.api.options import WINDOW_KEYWORDS, Ranks, parse_ranks
from stepscope.errors import CannotAnswer, GateFailed
from stepscope.model.note import Note
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
    **window: Any,
) -> Exported:
    """Write the profile to `file`, in the form that `to` or its ending names."""
    from stepscope.export.write import export as written
    from stepscope.export.write import form_of

    unknown = [k for k in window if k not in WINDOW_KEYWORDS]
    if unknown:
        raise TypeError(f"export: no option {unknown[0]!r}")
    path = Path(file)
    form = form_of(path, to)
    questions.need_timeline(profile, "export")
    if rank is not None:
        profile = profile.view(parse_ranks(rank))
    notes: list[Note] = []
    made = written(profile, path, form, diagnose=_diagnosis(notes, window) if findings else None)
    made.notes.extend(notes)
    return made


def _diagnosis(notes: list[Note], window: dict[str, Any]) -> Callable[[Profile], Result | None]:
    return partial(_diagnosed, notes, window)


def _diagnosed(notes: list[Note], window: dict[str, Any], profile: Profile) -> Result | None:
    """The findings; none where the profile cannot tell, which is noted."""
    try:
        return analyse(profile, "diagnose", **{k: v for k, v in window.items() if v not in (None, False)})
    except (CannotAnswer, GateFailed) as reason:
        notes.append(Note("no-findings", f"no findings are drawn: {reason.message}"))
        return None
