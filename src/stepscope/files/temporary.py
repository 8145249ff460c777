"""Temporary folders: gone with whoever needed them, and those of killed processes with the next one that needs some.

All of a process lie in one folder that it has claimed: a folder of its own each would be an open file each.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from contextlib import suppress
from functools import cache
from pathlib import Path

from stepscope.errors import BadInput
from stepscope.files import leaving
from stepscope.files.whole import claimed, sweep

_PREFIX = "stepscope-temporary-"

_guard = threading.Lock()
#: By process, its folder and what holds it: a forked child has no part in its parent's.
_own: dict[int, tuple[Path, int]] = {}


def place(otherwise: Path | None = None) -> Path:
    """Where temporary folders lie; where none can be written (a read-only container), `otherwise` if that can."""
    with suppress(FileNotFoundError):
        return Path(tempfile.gettempdir())
    if otherwise is not None:
        with suppress(OSError):
            otherwise.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.access(otherwise, os.W_OK | os.X_OK):
            return otherwise
    raise BadInput("no folder for temporary files can be written", "set TMPDIR to one that can")


@cache
def on_disk() -> Path:
    """As `place`, for what shall not be in memory: many machines have their temporary folder there (tmpfs)."""
    first = place()
    return next((folder for folder in (first, Path("/var/tmp")) if _is_disk(folder)), first)


def _is_disk(folder: Path) -> bool:
    """Whether what is written there takes no memory, as far as the system tells."""
    try:
        lines = Path("/proc/self/mountinfo").read_text("utf-8", errors="replace").splitlines()
    except OSError:
        return os.access(folder, os.W_OK | os.X_OK)
    points = [(line.split()[4], line.partition(" - ")[2].split()[0]) for line in lines]
    above = {str(p) for p in (folder.resolve(), *folder.resolve().parents)}
    _, kind = max(((len(point), kind) for point, kind in points if point in above), default=(0, ""))
    return kind not in ("tmpfs", "ramfs") and os.access(folder, os.W_OK | os.X_OK)


def temporary_folder() -> Path:
    """A new one, to be dropped."""
    with _guard:
        if os.getpid() not in _own:
            parent = place()
            sweep(parent, _PREFIX)
            _own[os.getpid()] = claimed(parent, _PREFIX)
        return Path(tempfile.mkdtemp(dir=_own[os.getpid()][0]))


def drop(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    with _guard, suppress(KeyError, OSError):
        own, handle = _own[os.getpid()]
        own.rmdir()  # unless there are others
        os.close(handle)
        del _own[os.getpid()]


@leaving.removes_files
def drop_all() -> None:
    """All of this process, whoever still needs them: it leaves at once. A thread of it may have the guard."""
    if os.getpid() in _own:
        shutil.rmtree(_own[os.getpid()][0], ignore_errors=True)
