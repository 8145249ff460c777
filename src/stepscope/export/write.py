"""Writing an export: which form a name asks for, and all or nothing on the disk."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from stepscope.errors import BadInput
from stepscope.export.content import content_of
from stepscope.export.timeline import timeline
from stepscope.model.note import Note
from stepscope.model.profile import Profile
from stepscope.model.result import Result

Form = Literal["perfetto"]
FORMS: tuple[Form, ...] = get_args(Form)
#: By the ending of a file: what it is. The first of a form is the one to suggest.
ENDINGS: dict[str, Form] = {
    ".pftrace": "perfetto",
    ".perfetto-trace": "perfetto",
    ".pftrace.gz": "perfetto",
}


@dataclass(frozen=True)
class Exported:
    """What was written."""

    path: Path
    form: Form
    events: int
    bytes: int
    notes: list[Note] = field(default_factory=list)


def form_of(path: Path, to: str | None) -> Form:
    """The form that `to`, or else the ending of `path`, names."""
    if to is not None:
        if to not in FORMS:
            raise BadInput(f"--to {to}: no such form", f"give {', '.join(FORMS)}")
        return to
    name = path.name.lower()
    found = next((form for ending, form in ENDINGS.items() if name.endswith(ending)), None)
    if found is None:
        raise BadInput(f"-o {path}: the ending names no form", f"end it in {', '.join(ENDINGS)}, or give --to")
    return found


def export(
    profile: Profile,
    path: Path,
    form: Form,
    *,
    diagnose: Callable[[Profile], Result | None] | None = None,
) -> Exported:
    """The profile as a file; `diagnose` gives the findings that are drawn."""
    from stepscope.export import perfetto

    content = content_of(profile)
    found = diagnose(profile) if diagnose is not None else None
    drawn = timeline(content, found.rows, found.window) if found is not None else timeline(content)
    _whole(path, lambda beside: perfetto.write(drawn, beside))
    return Exported(path, form, drawn.count, _size(path), content.clock.notes)


def _whole(path: Path, write: Callable[[Path], None]) -> None:
    """What was there stays until the new content is complete."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        write(beside)
        if path.is_dir():
            shutil.rmtree(path)
        beside.replace(path)
    except OSError as error:
        raise BadInput(f"-o {path}: cannot write ({error.strerror})", "choose another place") from None
    finally:
        if beside.is_dir():
            shutil.rmtree(beside)
        else:
            beside.unlink(missing_ok=True)


def _size(path: Path) -> int:
    return sum(p.stat().st_size for p in path.rglob("*")) if path.is_dir() else path.stat().st_size
