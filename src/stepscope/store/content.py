"""What a profile is, by its bytes: two files with one digest hold the same profile, whatever their names and dates."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import xxhash

import stepscope
from stepscope import progress
from stepscope.files.identity import files_of
from stepscope.model.schema import MODEL_VERSION

#: Bumped whenever the form of the cache's files changes.
STORE_VERSION = 5

#: Fits the processor's own cache, and is long enough for hashing to leave the interpreter's lock.
_BLOCK = 1 << 18

#: From here on two threads are worth starting.
_LARGE = 1 << 26

#: Bytes between two reports of progress.
_REPORTED = 1 << 28


def key(path: Path) -> str:
    """The name of a profile in the cache: its content, and everything that decides what is made of it."""
    digest = xxhash.xxh3_128(f"{STORE_VERSION} {MODEL_VERSION} {_readers()} ".encode())
    for file in files_of(path):
        if path.is_dir():
            digest.update(os.fsencode(file.relative_to(path)) + b"\0%d\0" % file.stat().st_size)
        _hash(file, digest)
    text: str = digest.hexdigest()
    return text


def _hash(path: Path, digest: xxhash.xxh3_128) -> None:
    """A large file is hashed in two halves, on two threads: reading is most of the work, and leaves the lock."""
    total = path.stat().st_size
    if total < _LARGE:
        _hash_part(path, 0, None, digest)
        return
    halves = (xxhash.xxh3_128(), xxhash.xxh3_128())
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(_hash_part, (path, path), (0, total // 2), (total // 2, None), halves))
    for half in halves:
        digest.update(half.digest())


def _hash_part(path: Path, start: int, end: int | None, digest: xxhash.xxh3_128) -> None:
    """Read, not mapped: mapped pages would count as this process's memory, a multi-gigabyte file's worth."""
    buffer = memoryview(bytearray(_BLOCK))
    done, shown = start, start
    with path.open("rb", buffering=0) as file:
        file.seek(start)
        while size := file.readinto(buffer if end is None else buffer[: min(_BLOCK, end - done)]):
            digest.update(buffer[:size])
            done += size
            if done - shown >= _REPORTED:
                progress.report(f"looking up {path.name}")
                shown = done


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
