"""Writing an export: which form a name asks for, what goes into it, and all or nothing on the disk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal, get_args

import polars as pl

from stepscope.derive.windows.window import Window
from stepscope.errors import BadInput, CannotAnswer
from stepscope.export import anonymize as pseudonyms
from stepscope.export import chrome, cut, kineto, parquet, perfetto
from stepscope.export.content import Content, content_of
from stepscope.export.timeline import timeline
from stepscope.files import budget
from stepscope.files.whole import building
from stepscope.model.exported import FOLDER_HEADER, TITLES
from stepscope.model.note import Note
from stepscope.model.profile import Profile
from stepscope.model.result import Result
from stepscope.model.schema import TABLES

Form = Literal["perfetto", "chrome", "parquet", "kineto"]
FORMS: tuple[Form, ...] = get_args(Form)
#: By the ending of a name: what it is.
ENDINGS: dict[str, Form] = {
    ".pftrace": "perfetto",
    ".perfetto-trace": "perfetto",
    ".pftrace.gz": "perfetto",
    ".pt.trace.json": "kineto",
    ".pt.trace.json.gz": "kineto",
    ".json": "chrome",
    ".json.gz": "chrome",
    ".parquet": "parquet",
}


@dataclass(frozen=True)
class Exported:
    """What was written."""

    path: Path
    form: Form
    events: int
    bytes: int
    notes: list[Note] = field(default_factory=list)


@dataclass(frozen=True)
class Order:
    """What to export: the windows (None: everything), under pseudonyms or not, and who gives the findings."""

    windows: Sequence[Window] | None = None
    anonymize: bool = False
    diagnose: Callable[[Profile], Result | None] | None = None


def form_of(path: Path, to: str | None) -> Form:
    """The form that `to`, or else the ending of `path`, names; checked before any work is done."""
    wanted: Form | None = None
    if to is not None:
        if to not in FORMS:
            raise BadInput(f"--to {to}: no such form", f"give {', '.join(FORMS)}")
        wanted = to
    name = path.name.lower()
    wanted = wanted or next((form for ending, form in ENDINGS.items() if name.endswith(ending)), None)
    if wanted is None:
        raise BadInput(f"-o {path}: the suffix names no format", f"end it in {', '.join(ENDINGS)}, or give --to")
    if not path.parent.is_dir():
        raise BadInput(f"-o {path}: no directory {path.parent}", "make it first")
    if wanted == "parquet" and path.exists() and not (path / FOLDER_HEADER).is_file():
        raise BadInput(f"-o {path}: already exists, and is not an export", "name a new folder")
    if wanted != "parquet" and path.is_dir():
        raise BadInput(f"-o {path}: is a directory", "name a file in it")
    return wanted


def export(profile: Profile, path: Path, form: Form, order: Order = Order()) -> Exported:
    """The profile as a file, or as a folder of files."""
    if form == "kineto":
        return _cut_torch(profile, path, order)
    # First: texts of these tables are to be among those of the content.
    others = _others(profile) if form == "parquet" and order.windows is None and not order.anonymize else {}
    content = content_of(profile)
    if order.windows is not None:
        content = cut.cut(content, order.windows)
    if order.anonymize:
        content = pseudonyms.anonymized(content, profile.taxonomy)
    if form == "parquet":
        rows = _whole(path, partial(parquet.write, content, others))
        return Exported(path, form, rows, _size(path), _notes(content))
    findings = order.diagnose(profile) if order.diagnose is not None and not order.anonymize else None
    drawn = timeline(content, findings.rows, findings.window) if findings is not None else timeline(content)
    notes = _notes(content)
    del content  # what is drawn is all that is written
    budget.settle()
    if form == "chrome":
        packed = path.suffix == ".gz"
        _whole(path, lambda beside: chrome.write(drawn, beside, compressed=packed))
    else:
        _whole(path, lambda beside: perfetto.write(drawn, beside))
    return Exported(path, form, drawn.count, _size(path), notes)


def _notes(content: Content) -> list[Note]:
    kept = [Note.from_data(note) for note in content.header.notes if note["code"] == "names-kept"]
    return [*content.clock.notes, *kept]


def _others(profile: Profile) -> dict[str, pl.DataFrame]:
    """Tables without times."""
    return {t: profile.table(t, detail=True) for t in TABLES if t not in TITLES and profile.has(t)}


def _cut_torch(profile: Profile, path: Path, order: Order) -> Exported:
    """One file of torch's, cut: what is in it stays as torch wrote it, so nothing can be put in or renamed."""
    if order.anonymize:
        raise BadInput("--anonymize: a torch trace is cut as it is", "export it as .pftrace or .json")
    used = sorted(set(profile.ranks["source"].to_list()))
    if any(profile.source_info(i).format != "kineto" for i in used) or not all(_is_json(profile, i) for i in used):
        raise CannotAnswer("--to kineto cuts traces that torch.profiler wrote as JSON", "use --to chrome for others")
    if len(used) > 1:
        raise BadInput(f"--to kineto: {len(used)} files, one per rank", "give one of them, or choose it with --rank")
    source = profile.source_path(used[0])
    packed = path.suffix == ".gz"

    def cut_to(beside: Path) -> int:
        kept = kineto.write(source, order.windows, beside, compressed=packed)
        profile.check()  # it is read once more here, and the windows are of what was read before
        return kept

    kept = _whole(path, cut_to)
    return Exported(path, "kineto", kept, _size(path))


def _is_json(profile: Profile, source: int) -> bool:
    return ".json" in profile.source_path(source).name.lower()


def _whole(path: Path, write: Callable[[Path], int | None]) -> int:
    """What was there stays until the new content is complete."""
    with building(path) as beside:
        return write(beside) or 0


def _size(path: Path) -> int:
    return sum(p.stat().st_size for p in path.rglob("*")) if path.is_dir() else path.stat().st_size
