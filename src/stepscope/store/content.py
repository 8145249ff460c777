"""What a profile is, by its bytes: two files with one digest hold the same profile, whatever their names and dates."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import xxhash

import stepscope
from stepscope import progress
from stepscope.model.schema import MODEL_VERSION

#: Bumped whenever the form of the cache's files changes.
STORE_VERSION = 2

#: Fits the processor's own cache, and is long enough for hashing to leave the interpreter's lock.
_BLOCK = 1 << 18

#: Bytes between two reports of progress.
_REPORTED = 1 << 28

#: What tells that a file may have been rewritten: device, file number, size, and the times of both kinds of change.
Stamp = tuple[tuple[str, int, int, int, int, int], ...]


def key(path: Path) -> str:
    """The name of a profile in the cache: its content, and everything that decides what is made of it."""
    digest = xxhash.xxh3_128(f"{STORE_VERSION} {MODEL_VERSION} {_readers()} ".encode())
    for file in _files(path):
        if path.is_dir():
            digest.update(os.fsencode(file.relative_to(path)) + b"\0%d\0" % file.stat().st_size)
        _hash(file, digest)
    text: str = digest.hexdigest()
    return text


def stamp(path: Path) -> Stamp:
    """Changes whenever the file or directory is written to: what is read after a change is of unknown content."""
    found = []
    for file in _files(path):
        s = file.stat()
        found.append((str(file), s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns))
    return tuple(found)


def _files(path: Path) -> list[Path]:
    return sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]


def _hash(path: Path, digest: xxhash.xxh3_128) -> None:
    """Read, not mapped: mapped pages would count as this process's memory, a multi-gigabyte file's worth."""
    buffer = memoryview(bytearray(_BLOCK))
    total, done, said = path.stat().st_size, 0, 0
    with path.open("rb", buffering=0) as file:
        while size := file.readinto(buffer):
            digest.update(buffer[:size])
            done += size
            if done - said >= _REPORTED:
                progress.report(f"looking up {path.name}", done, total)
                said = done


@cache
def _readers() -> str:
    """A digest of the code that reads profiles: what a mended reader finds differs from what was cached before."""
    digest = xxhash.xxh3_64()
    package = Path(stepscope.__file__).parent
    for part in ("model", "sources"):
        for file in sorted((package / part).rglob("*.py")):
            digest.update(file.read_bytes())
    text: str = digest.hexdigest()
    return text
