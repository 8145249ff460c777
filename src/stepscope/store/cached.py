"""A source that remembers: what was read once is served from the cache, and the profile itself is not even opened."""

from __future__ import annotations

import dataclasses
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import polars as pl

from stepscope.files.identity import Identity
from stepscope.model.columns import Dtype, Part
from stepscope.model.door import Admission, Door
from stepscope.model.note import Note
from stepscope.model.schema import PROCESSES, TABLES, empty
from stepscope.model.source import Chunk, Quality, Source, SourceInfo
from stepscope.model.texts import Origin, Severity
from stepscope.store import background, content, disk

T = TypeVar("T")


class _Said(msgspec.Struct):
    """A note, as `Note.data` gives it."""

    code: str
    severity: Severity
    origin: Origin
    text: str
    ranks: tuple[int, ...] = ()

    def note(self) -> Note:
        return Note.from_data(msgspec.structs.asdict(self))


class _Notes(msgspec.Struct):
    """What is kept beside a table: notes, and how many rows of its core were delivered at the door."""

    notes: list[_Said]
    delivered: int = 0


class _About(msgspec.Struct):
    """What is kept beside the processes."""

    info: SourceInfo
    tables: frozenset[str]
    notes: list[_Said]


M = TypeVar("M", bound=msgspec.Struct)


class CachedSource:
    """Any source, with the cache `store` in front. `opener` is called when the cache does not know enough.

    What is kept has come through the door (`model.door`): it is validated when it is read from the file, not again.
    """

    behind_door = True

    def __init__(self, path: Path, opener: Callable[[], Source], store: disk.Disk) -> None:
        self.path = path
        self.quality = Quality()
        self._opener = opener
        self._store = store
        self._lock = threading.RLock()
        self._inner: Door | None = None
        self._admissions: dict[str, Admission] = {}
        self._writing: dict[str, Future[None]] = {}
        self._identity = Identity(path)  # before hashing: a change from here on is noticed
        self._key = content.key(path)
        disk.acquire(self._key)
        weakref.finalize(self, disk.release, self._key)
        self._processes: pl.DataFrame | None = None
        self._rows: dict[str, int] = {}
        kept = self._load("source", _About, {"processes": PROCESSES})
        if kept is None or not kept[0].tables <= TABLES.keys():
            self.info = self._open().info
            return
        about, frames = kept
        self._processes = frames["processes"]
        self._tables = about.tables
        # Everything but the file's name is in its content; the file may have been renamed. Sources differ in whether
        # they give it with its folders.
        given = about.info.file
        self.info = dataclasses.replace(about.info, file=path.name if Path(given).name == given else str(path))
        self._note([said.note() for said in about.notes])

    def processes(self) -> pl.DataFrame:
        with self._lock:
            if self._processes is None:
                found, notes = self._ask(lambda inner: inner.processes())
                self._processes, self._tables = found, self._open().tables()
                self._save(
                    "source",
                    {
                        "info": dataclasses.asdict(self.info),
                        "tables": sorted(self._tables),
                        "notes": [n.data() for n in notes],
                    },
                    {"processes": found},
                )
            return self._processes

    def tables(self) -> frozenset[str]:
        self.processes()
        return self._tables

    def read(self, table: str, part: Part = "core") -> Chunk:
        if table in TABLES and table not in self.tables():
            return Chunk(empty(table, part))
        with self._lock:
            name = f"{table}.{part}"
            if name in self._writing:
                self._writing.pop(name).result()
            kept = self._load(name, _Notes, {"frame": TABLES[table].part(part), "names": {"name": pl.String}})
            if kept is not None and self._rows.setdefault(table, kept[1]["frame"].height) == kept[1]["frame"].height:
                self._note([said.note() for said in kept[0].notes])
                if part == "core":
                    rows = kept[1].get("rows")
                    self._admissions[table] = Admission(
                        kept[0].delivered, None if rows is None else rows["row"].to_numpy()
                    )
                return Chunk(kept[1]["frame"], kept[1]["names"].to_series())
            chunk, notes = self._ask(lambda inner: inner.read(table, part))
            self._rows[table] = chunk.frame.height
            meta: dict[str, Any] = {"notes": [n.data() for n in notes]}
            frames = {"frame": chunk.frame, "names": chunk.names.to_frame()}
            if part == "core":
                admission = self._admissions[table] = self._open().admissions[table]
                meta["delivered"] = admission.delivered
                if admission.rows is not None:
                    frames["rows"] = pl.DataFrame({"row": admission.rows})
            self._save(name, meta, frames)
            return chunk

    def _load(
        self, name: str, form: type[M], frames: dict[str, dict[str, Dtype]]
    ) -> tuple[M, dict[str, pl.DataFrame]] | None:
        """What was saved, where it has the form in which it is saved; None where it is to be read afresh."""
        stored = self._store.load(self._key, name)
        if stored is None or any(n not in stored[1] or stored[1][n].schema != pl.Schema(s) for n, s in frames.items()):
            return None
        try:
            return msgspec.convert(stored[0], form), stored[1]
        except msgspec.ValidationError:
            return None

    def check(self) -> None:
        """Of a file that is gone, what the cache holds is still right; what is not there cannot be read any more."""
        with self._lock:
            if self.path.exists():
                self._same()

    def let_go(self) -> None:
        """Give back memory, where the file was opened."""
        with self._lock:
            if self._inner is not None:
                self._inner.let_go()

    def _same(self) -> None:
        """Refuse a file of other content; one that was only touched, or copied, is opened again when it is needed."""
        if not self._identity.changed():
            return
        try:
            identity = Identity(self.path)
            same = self._key == content.key(self.path)
        except OSError:
            same = False
        if not same:
            raise self._identity.refusal()
        self._identity, self._inner = identity, None

    def _open(self) -> Door:
        if self._inner is None:
            inner = Door(self._opener(), self._processes)
            inner.admissions.update(self._admissions)
            self._identity.check()  # what is open now has the content of the key
            if self._processes is not None:
                inner.quality.notes.clear()  # the cache had these already
            self._inner = inner
        return self._inner

    def _ask(self, question: Callable[[Door], T]) -> tuple[T, list[Note]]:
        """The inner source's answer, and what it noted while answering."""
        self._same()
        inner = self._open()
        answer = question(inner)
        self._identity.check()
        notes = list(inner.quality.notes)
        inner.quality.notes.clear()  # so that the next question's notes are its own
        self._note(notes)
        return answer, notes

    def _note(self, notes: list[Note]) -> None:
        for note in notes:
            self.quality.note(note)

    def _save(self, name: str, meta: dict[str, Any], frames: dict[str, pl.DataFrame]) -> None:
        self._writing[name] = background.submit(lambda: self._store.save(self._key, name, meta, frames))


def cached(path: Path, opener: Callable[[], Source]) -> Source:
    """The source at `path` behind the user's cache; `opener()` itself where there can be no cache."""
    folder = disk.default_dir()
    store = disk.Disk(folder) if folder is not None else None
    if store is None or not store.usable():
        return opener()
    try:
        return CachedSource(path, opener, store)
    except OSError:  # the profile cannot be read through: whoever opens it says so best
        return opener()
