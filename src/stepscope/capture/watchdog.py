"""Ends a training run whose `capture run` was killed: nobody else is left who could.

A process of its own, which waits on a pipe that only `capture run` holds. While that lives, it does nothing. When the
pipe closes without a word, everything that carries the run's token ends, and the folder that was written to goes.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

_GOODBYE = b"done"


class Watchdog:
    """Watches as long as the block lasts."""

    def __init__(self, token: str, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, token, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True, cwd="/", env=_environment(),
        )  # fmt: skip

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._process.communicate(_GOODBYE)


def _environment() -> dict[str, str]:
    """With this package importable from wherever it is."""
    paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def watch(token: str, folder: Path) -> None:
    from stepscope.capture.process import end_all
    from stepscope.files.whole import lock

    if sys.stdin.buffer.read() == _GOODBYE:
        return
    end_all(token)
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        if lock(handle) is not False:  # else another run has claimed it since
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    watch(sys.argv[1], Path(sys.argv[2]))
