"""Files and folders of ours: there whole, or not at all, however a write ends. The one owner of writing them.

What is written grows in a hidden folder beside the place (`.NAME.XXXX.part`), and is renamed when it is complete. The
folder goes whether that succeeds, fails or is interrupted. Only a killed process (SIGKILL, power) leaves it; it is
locked while its process lives, so that whoever writes there next can tell, and clears it away.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from stepscope.errors import BadInput, StepscopeError
from stepscope.files.signals import undisturbed

_ENDING = ".part"
#: So much of a name is in that of the folder beside it: a name may be as long as the file system takes.
_OF_NAME = 40
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def write(path: Path, data: bytes | Iterable[bytes], named: str = "-o {}") -> None:
    """The bytes as a file at `path`; what was there stays until they are complete."""
    with building(path, named) as beside, beside.open("wb") as file:
        file.writelines([data] if isinstance(data, bytes) else data)
        file.flush()
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            os.fsync(file.fileno())  # some file systems say only now that they are full


@contextmanager
def building(path: Path, named: str = "-o {}") -> Iterator[Path]:
    """Where to write a file or folder that shall be at `path`: it gets there when the block ends well.

    `named` is what the user gave it by. What cannot be written is `BadInput`, and leaves what was there. Pipes and
    devices are written to as they are.
    """
    with _told(path, named):
        if path.exists() and not path.is_file() and not path.is_dir():
            yield path
            return
        target = path.resolve() if path.is_symlink() else path
        if target.exists() and not os.access(target, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        with working_folder(target.parent, f".{target.name[:_OF_NAME]}.", _ENDING) as folder:
            beside = folder / target.name
            yield beside
            _put(beside, target, folder)


@contextmanager
def building_set(folder: Path, last: str, named: str = "-o {}") -> Iterator[Path]:
    """Where to write files that belong together and shall be in `folder`, which may hold others.

    A folder that is not there yet appears with all of them. In one that is, they are renamed one after the other when
    all are complete: `last` is taken away first and put back last, so that it is there only beside those it belongs to.
    """
    if not folder.exists():
        with building(folder, named) as beside:
            beside.mkdir()
            yield beside
        return
    with _told(folder, named), working_folder(folder, ".stepscope.", _ENDING) as beside:
        yield beside
        (folder / last).unlink(missing_ok=True)
        for file in sorted(beside.iterdir(), key=lambda p: p.name == last):
            file.replace(folder / file.name)


@contextmanager
def _told(path: Path, named: str) -> Iterator[None]:
    """Failures to write as one line."""
    try:
        yield
    except StepscopeError:
        raise
    except Exception as error:
        number = _number(error)
        if number is None:
            raise
        why = getattr(error, "strerror", None) or os.strerror(number)
        hint = "free some space, or choose another place" if number in _FULL else "choose another place"
        raise BadInput(f"{named.format(path)}: cannot write ({why})", hint) from None


def _number(error: Exception) -> int | None:
    """The system's number of a failure, which Polars has in its text only; None where it is of another kind."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno
    match = re.search(r"\(os error (\d+)\)", str(error))
    return int(match[1]) if match else None


@contextmanager
def working_folder(parent: Path, prefix: str, suffix: str = "") -> Iterator[Path]:
    """A folder that is gone at the end, and with it those that killed processes left."""
    sweep(parent, prefix, suffix)
    made: list[tuple[Path, int]] = []
    try:
        try:
            with undisturbed():
                made.append(claimed(parent, prefix, suffix))
            yield made[0][0]
        finally:
            _remove(made)
    finally:
        _remove(made)  # a signal may come just before the other


def _remove(made: list[tuple[Path, int]]) -> None:
    with undisturbed():
        for folder, handle in made:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(handle)
        made.clear()


def sweep(parent: Path, prefix: str, suffix: str = "") -> None:
    """Remove the folders of this form that no living process has claimed."""
    with suppress(OSError):
        for entry in list(os.scandir(parent)):
            if entry.name.startswith(prefix) and entry.name.endswith(suffix) and entry.is_dir(follow_symlinks=False):
                _remove_unclaimed(Path(entry.path))


def _remove_unclaimed(folder: Path) -> None:
    with suppress(OSError):  # another user's, or gone meanwhile
        handle = os.open(folder, os.O_RDONLY)
        try:
            if lock(handle):
                shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(handle)


def lock(handle: int) -> bool | None:
    """Claim an open file or folder, for as long as it is open; false where somebody has it, None where nobody can."""
    try:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (OSError, ImportError):  # a file system, or a system, without locks
        return None
    return True


def claimed(parent: Path, prefix: str, suffix: str = "") -> tuple[Path, int]:
    """A new folder, and what holds it. Between making and locking it, another process may have cleared it away."""
    while True:
        folder = Path(tempfile.mkdtemp(suffix, prefix, parent))
        try:
            handle = os.open(folder, os.O_RDONLY)
        except FileNotFoundError:
            continue
        if lock(handle) is not False and folder.exists():
            return folder, handle
        os.close(handle)


def _put(beside: Path, target: Path, folder: Path) -> None:
    """Rename what is complete to where it belongs. A folder goes over no other: that is moved away first."""
    if beside.is_dir():
        if target.is_dir():
            target.rename(folder / "before")
    elif target.exists():
        beside.chmod(stat.S_IMODE(target.stat().st_mode))
    beside.replace(target)
