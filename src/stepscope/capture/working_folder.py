"""The folder that a capture is written to before it is put in place."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stepscope.errors import BadInput
from stepscope.files.whole import lock


@contextmanager
def alone(part: Path, out: Path) -> Iterator[None]:
    """The folder that is written to, empty, ours alone, and gone at the end; a killed run's remains are no obstacle."""
    try:
        part.mkdir(parents=True, exist_ok=True)
        handle = os.open(part, os.O_RDONLY)
    except OSError as error:
        what = f"{error.filename or out}: {error.strerror}"
        raise BadInput(f"cannot write the capture ({what})", "free some space, or choose another -o") from None
    try:
        if lock(handle) is False:
            raise BadInput(f"-o {out}: another capture run writes there", "name another folder, or wait")
        try:
            for left in part.iterdir():
                shutil.rmtree(left, ignore_errors=True) if left.is_dir() else left.unlink()
            yield
        finally:
            shutil.rmtree(part, ignore_errors=True)
    finally:
        os.close(handle)
