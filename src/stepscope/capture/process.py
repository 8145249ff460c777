"""Run a command with all it starts, and end all of it: no orphans, whatever happens."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from stepscope.capture.spec import PREFIX
from stepscope.errors import BadInput

_POLL_S = 0.2


class Run:
    """A command in a session of its own, its output in a file."""

    def __init__(
        self, argv: tuple[str, ...], env: Mapping[str, str], log: Path, token: str, cwd: Path | None = None
    ) -> None:
        self._token = token
        self._log = log.open("ab")
        try:
            self._process = subprocess.Popen(
                argv, env={**os.environ, **env}, stdin=subprocess.DEVNULL, stdout=self._log, stderr=subprocess.STDOUT,
                start_new_session=True, cwd=cwd,
            )  # fmt: skip
        except FileNotFoundError:
            self._log.close()
            raise BadInput(f"{argv[0]}: no such command", "check the path, or load its module") from None
        except PermissionError:
            self._log.close()
            raise BadInput(f"{argv[0]}: no permission to run it", "is it executable?") from None

    def wait(self, tick: Callable[[], bool]) -> int | None:
        """Its exit status; `tick` is called now and then, and ends the wait (None) by returning True."""
        try:
            while (status := self._process.poll()) is None:
                if tick():
                    return None
                time.sleep(_POLL_S)
            return status
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        """End everything that carries our token: the profiler's helpers leave the process group, but not that."""
        for sent, patience in ((signal.SIGTERM, 5.0), (signal.SIGKILL, 5.0)):
            alive = self._alive()
            for pid in alive:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, sent)
            until = time.monotonic() + patience
            while time.monotonic() < until and self._alive():
                self._process.poll()
                time.sleep(_POLL_S / 2)
            if not self._alive():
                break
        self._process.poll()
        self._log.close()

    def _alive(self) -> list[int]:
        mark = f"{PREFIX}ID={self._token}".encode()
        found = [] if self._process.poll() is not None else [self._process.pid]
        for entry in Path("/proc").iterdir() if Path("/proc").is_dir() else ():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            with contextlib.suppress(OSError):
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                if state != "Z" and mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
        return sorted(set(found))
