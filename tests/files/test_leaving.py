"""Leaving at once: within moments, with nothing left behind, whatever is held where the signal came."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

#: What holds a lock that leaving takes, in the thread that leaves and in another.
_HELD = """
import threading, time
from stepscope.files import leaving, temporary
from stepscope.store import background

folder = temporary.temporary_folder()
(folder / "part").write_text("…")
def hold():
    with background._lock, temporary._guard:
        held.set()
        time.sleep(60)
held = threading.Event()
background._PATIENCE_S = 0.2
if {other}:
    threading.Thread(target=hold, daemon=True).start()
    held.wait()
    leaving.leave(7)
else:
    with background._lock, temporary._guard:
        leaving.leave(7)
"""


@pytest.mark.parametrize("other", [False, True])
def test_it_leaves_though_locks_are_held(tmp_path: Path, other: bool) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _HELD.format(other=other)], capture_output=True, text=True, check=False, timeout=30,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert (done.returncode, done.stderr, list(tmp_path.iterdir())) == (7, "", [])


def test_what_others_registered_is_not_waited_for() -> None:
    """A pool of threads is joined at the end of a process, whatever they are at."""
    script = """
import time
from concurrent.futures import ThreadPoolExecutor
from stepscope.files.leaving import leave
ThreadPoolExecutor().submit(time.sleep, 600)
leave(3)
"""
    done = subprocess.run([sys.executable, "-c", script], check=False, timeout=30)
    assert done.returncode == 3
