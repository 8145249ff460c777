"""Which files an agent may have read: those below the folders that the server was started with, and no others.

A path is refused where it has `..`, where it is not below a root, and where a link on its way or in the folder that it
names leads out of the roots. Whether something exists outside is never told.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from stepscope.agent.failures import Refused, call
from stepscope.capture.manifest import FILE as MANIFEST
from stepscope.errors import BadInput

#: A glob that matches more is a mistake.
_MOST_MATCHES = 10_000
#: Files of a profile lie in the folder that is named, or (a parquet export) in a folder in it.
_DEPTH = 2


class Roots:
    """The folders, and the way from what an agent names to files below them."""

    def __init__(self, folders: Sequence[str | Path] = ()) -> None:
        given = [Path(os.path.expanduser(f)) for f in folders]  # noqa: PTH111 (pathlib fails where there is no such user)
        if not given:
            given = [Path.cwd()]
            if given[0].resolve() == Path(given[0].anchor):
                raise BadInput("the current folder is the root of the file system", "give --root FOLDER")
        for folder in given:
            if not folder.is_dir():
                raise BadInput(f"--root {folder}: not a folder", "name a folder that exists")
        self.folders = tuple(dict.fromkeys(folder.resolve() for folder in given))

    def paths(self, given: str | Sequence[str]) -> list[Path]:
        """What was named, as absolute paths without links; a glob as all that it matches."""
        named = [given] if isinstance(given, str) else list(given)
        if not named:
            raise Refused("bad_argument", "no path is given", "name a file, a folder or a glob", self._files())
        return [path for text in named for path in self._expanded(text)]

    def path(self, text: str) -> Path:
        """One file or folder that exists."""
        paths = self._expanded(text)
        if len(paths) != 1:
            raise Refused("bad_argument", f"{text}: {len(paths)} files match", "name one", self._files())
        return paths[0]

    def shown(self, path: Path) -> str:
        """A path as agents may name it: relative to the first root that has it."""
        for folder in self.folders:
            if path.is_relative_to(folder):
                return path.relative_to(folder).as_posix()
        return str(path)

    def typed(self, text: str) -> str:
        """What was named, as a person types it where the server runs."""
        here = Path.cwd()
        full = next((path for folder in self.folders if _matches(path := folder / text)), Path(text))
        return full.relative_to(here).as_posix() if full.is_relative_to(here) else str(full)

    def inside(self, path: Path) -> bool:
        """Whether a path, all links followed, is below a root."""
        try:
            real = path.resolve()
        except (OSError, RuntimeError):  # a link to itself
            return False
        return any(real.is_relative_to(folder) for folder in self.folders)

    def _expanded(self, text: str) -> list[Path]:
        if not text or "\0" in text:
            raise Refused("bad_argument", f"{text!r} is not a path", "name a file, a folder or a glob", self._files())
        if ".." in Path(text).parts:
            raise self._outside(text, "has `..` in it")
        candidates = [folder / text for folder in self.folders]  # an absolute path stays itself
        within = [path for path in candidates if self.inside(_fixed_part(path))]
        if not within:
            raise self._outside(text, "is outside the roots")
        try:
            paths = next((paths for path in within if (paths := _matches(path))), None)
        except (OSError, ValueError) as error:  # too long for the file system
            raise Refused("bad_input", f"{text:.200}: not a usable path ({error})", None, self._files()) from None
        if paths is None:
            raise Refused("bad_input", f"{text}: no such file", "check the path", self._files())
        for path in paths:
            beside = [path.parent / MANIFEST] if path.is_file() else []
            for part in (path, *beside, *_below(path, _DEPTH)):
                if not self.inside(part):
                    raise self._outside(text, f"leads out of the roots by a link ({part.name})")
        return [path.resolve() for path in paths]

    def _outside(self, text: str, why: str) -> Refused:
        roots = ", ".join(map(str, self.folders))
        return Refused("outside_roots", f"{text} {why}", f"only files below {roots} are read", self._files())

    def _files(self) -> dict[str, object]:
        return call("list", what="files")


def _fixed_part(path: Path) -> Path:
    """What stands before the first wildcard: a glob starts its search there."""
    parts = path.parts
    first = next((n for n, part in enumerate(parts) if glob.has_magic(part)), None)
    if first is None or os.path.lexists(path):
        return path
    return Path(*parts[:first])


def _matches(path: Path) -> list[Path]:
    if path.exists():  # first: a file may have brackets in its name
        return [path]
    if not glob.has_magic(str(path)):
        return []
    matches = []
    for text in glob.iglob(str(path), recursive=True):  # noqa: PTH207 (takes absolute ones)
        matches.append(Path(text))
        if len(matches) > _MOST_MATCHES:
            raise ValueError(f"matches more than {_MOST_MATCHES:,} files")
    return sorted(matches)


def _below(path: Path, depth: int) -> Iterator[Path]:
    """The links in a folder: all else in it is below the root that the folder is below."""
    if not path.is_dir() or depth == 0:
        return
    for entry in os.scandir(path):
        if entry.is_symlink():
            yield Path(entry.path)
        elif entry.is_dir():
            yield from _below(Path(entry.path), depth - 1)
