"""The folder of the cache: where it is, how large it may grow, who may be thrown out.

Files of one entry share its key: `<key>.<part>.tbl`. They appear by renaming, so a reader sees a whole file or none,
and two processes that write the same file both write the same content. Removing a file that another process has mapped
is safe: its mapping lives on.
"""

from __future__ import annotations

import os
import re
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, cast

import polars as pl

from stepscope.files.whole import lock
from stepscope.store import container

#: Where the cache lies, and how large it may grow.
DIR_ENV = "STEPSCOPE_CACHE_DIR"
MAX_ENV = "STEPSCOPE_CACHE_MAX_BYTES"
MAX_BYTES = 8 << 30

#: Only files of these names are ever counted or removed: the folder may be the user's own choice.
_OURS = re.compile(r"([0-9a-f]{32})\.[a-z.]+\.tbl(\.[^.]+\.tmp)?")

#: A temporary file this old was left by a process that died; of a younger one, the lock tells. It is made, then locked.
_STALE_S = 3600.0
_LOCKED_S = 1.0

_in_use: Counter[str] = Counter()
_in_use_lock = threading.Lock()


def acquire(key: str) -> None:
    """From now on this process does not throw the entry out."""
    with _in_use_lock:
        _in_use[key] += 1


def release(key: str) -> None:
    with _in_use_lock:
        _in_use[key] -= 1


def default_dir() -> Path | None:
    """The user's cache directory; None where the user has no home, or `~NAME` names nobody."""
    if own := os.environ.get(DIR_ENV):
        own = os.path.expanduser(own)  # noqa: PTH111 (pathlib fails where there is no such user)
        return None if own.startswith("~") else Path(own)
    xdg = os.environ.get("XDG_CACHE_HOME", "")
    try:
        # The XDG specification has relative paths ignored.
        return (Path(xdg) if Path(xdg).is_absolute() else Path.home() / ".cache") / "stepscope"
    except RuntimeError:
        return None


def default_max_bytes() -> int:
    """The bound on the cache's size; a value that is not a number counts as the default."""
    text = os.environ.get(MAX_ENV, "")
    return int(text) if text.isdecimal() and len(text) < 20 else MAX_BYTES


@dataclass
class _Entry:
    files: list[Path] = field(default_factory=list)
    size: int = 0
    used: float = 0.0


class Disk:
    """A folder of cache files. It never raises for its own troubles: a cache that fails is a cache that misses."""

    def __init__(self, folder: Path, max_bytes: int | None = None) -> None:
        self._folder = folder / "tables"
        self._max_bytes = default_max_bytes() if max_bytes is None else max_bytes
        self._broken = False
        self._lock = threading.Lock()

    def usable(self) -> bool:
        """Whether there is any sense in asking: the folder exists or can be made."""
        with suppress(OSError, ValueError):  # a NUL in the name is a ValueError
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Unlike that of Path, this never fails, however long the name.
        return os.path.isdir(self._folder) and os.access(self._folder, os.R_OK | os.X_OK)  # noqa: PTH112

    def load(self, key: str, part: str) -> tuple[dict[str, Any], dict[str, pl.DataFrame]] | None:
        """What was saved under this name, None where there is nothing to be trusted."""
        path = self._path(key, part)
        try:
            meta, frames = container.read(path)
        except OSError:
            return None
        except Exception:  # whatever the matter is, the profile itself can answer
            self._remove(path)
            return None
        if (meta.get("key"), meta.get("part")) != (key, part):  # a whole file, but another's
            return None
        with suppress(OSError):
            os.utime(path)
        return meta, frames

    def save(self, key: str, part: str, meta: Mapping[str, Any], frames: Mapping[str, pl.DataFrame]) -> None:
        """Keep `frames` under this name if there is room."""
        need = sum(int(f.estimated_size()) for f in frames.values())
        with self._lock:
            if self._broken or not self._make_room(key, need):
                return
            path = self._path(key, part)
            temporary: Path | None = None
            try:
                handle, name = tempfile.mkstemp(prefix=path.name + ".", suffix=".tmp", dir=self._folder)
                temporary = Path(name)
                lock(handle)  # the others see that it is being written
                with os.fdopen(handle, "wb") as file:
                    container.write(cast(BinaryIO, file), {**meta, "key": key, "part": part}, frames)
                temporary.replace(path)
            except Exception:  # a full disk, no permission: go on without a cache, and do not try again
                self._broken = True
            finally:
                if temporary is not None:
                    self._remove(temporary)

    def _path(self, key: str, part: str) -> Path:
        return self._folder / f"{key}.{part}.tbl"

    def _make_room(self, key: str, need: int) -> bool:
        """Throw out the entries used longest ago until `need` more bytes fit; false where they cannot."""
        entries = self._entries()
        total = need + sum(e.size for e in entries.values())
        if entries.get(key, _Entry()).size + need > self._max_bytes:
            return False
        for other in sorted(entries, key=lambda k: entries[k].used):
            if total <= self._max_bytes:
                break
            if other == key or _in_use[other] > 0:
                continue
            for path in entries[other].files:
                self._remove(path)
            total -= entries[other].size
        return total <= self._max_bytes

    def _entries(self) -> dict[str, _Entry]:
        """Every entry with its files; what dead processes left behind is removed on the way."""
        entries: dict[str, _Entry] = {}
        try:
            listing = list(os.scandir(self._folder))
        except OSError:
            return entries
        for item in listing:
            match = _OURS.fullmatch(item.name)
            if match is None:
                continue
            try:
                stat = item.stat()
            except OSError:  # another process was faster
                continue
            if match[2] and _left(Path(item.path), time.time() - stat.st_mtime):
                self._remove(Path(item.path))
                continue
            entry = entries.setdefault(match[1], _Entry())
            entry.size += stat.st_size
            entry.used = max(entry.used, stat.st_mtime)
            entry.files.append(Path(item.path))
        return entries

    @staticmethod
    def _remove(path: Path) -> None:
        with suppress(OSError):
            path.unlink()


def _left(path: Path, age_s: float) -> bool:
    """Whether a temporary file is of a process that died."""
    if age_s < _LOCKED_S or age_s > _STALE_S:
        return age_s > _STALE_S
    with suppress(OSError), path.open("rb") as file:
        return lock(file.fileno()) is True
    return False
