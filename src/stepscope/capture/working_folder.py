"""The folder that a capture is written to before it is put in place."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stepscope.errors import BadInput
from stepscope.files.signals import undisturbed
from stepscope.files.whole import lock


@contextmanager
def alone(part: Path, out: Path) -> Iterator[None]:
    """The folder that is written to, empty, ours alone, and gone at the end; remains of a killed run do no harm."""
    handle: int | None = None
    try:
        with undisturbed():  # a signal between making it and knowing of it would leave it behind
            handle = _claimed(part, out)
        for left in part.iterdir():
            shutil.rmtree(left, ignore_errors=True) if left.is_dir() else left.unlink()
        yield
    finally:
        if handle is not None:
            with undisturbed():
                shutil.rmtree(part, ignore_errors=True)
            os.close(handle)


def _claimed(part: Path, out: Path) -> int:
    """The handle of the folder that is made, locked."""
    try:
        part.mkdir(parents=True, exist_ok=True)
        handle = os.open(part, os.O_RDONLY)
    except OSError as error:
        what = f"{error.filename or out}: {error.strerror}"
        raise BadInput(f"cannot write the capture ({what})", "free some space, or choose another -o") from None
    if lock(handle) is False:
        os.close(handle)
        raise BadInput(f"-o {out}: another capture run writes there", "name another folder, or wait")
    return handle
