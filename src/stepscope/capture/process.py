"""Run a command with all it starts, and end all of it: no orphans, whatever happens."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from stepscope.capture.spec import PREFIX
from stepscope.errors import BadInput
from stepscope.files.signals import undisturbed

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
        while (status := self._process.poll()) is None:
            if tick():
                return None
            time.sleep(_POLL_S)
        return status

    def end(self) -> None:
        """End everything that carries our token: the profiler's helpers leave the process group, but not that."""
        with undisturbed():
            end_all(self._token, self._process)
            self._log.close()


@contextlib.contextmanager
def carrying(token: str) -> Iterator[None]:
    """What is started meanwhile carries the token, too."""
    os.environ[f"{PREFIX}ID"] = token
    try:
        yield
    finally:
        del os.environ[f"{PREFIX}ID"]


def end_all(token: str, process: subprocess.Popen[bytes] | None = None) -> None:
    """End everything that carries the token, and `process`, the one that all of it came from."""
    unfinished: set[Path] = set()
    for sent, patience in ((signal.SIGTERM, 5.0), (signal.SIGKILL, 5.0)):
        for pid in alive(token, process):
            unfinished |= _unfinished(pid)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, sent)
        until = time.monotonic() + patience
        while (left := alive(token, process)) and time.monotonic() < until:
            unfinished |= set().union(*map(_unfinished, left))
            time.sleep(_POLL_S / 2)
        if not left:
            break
    for path in unfinished:
        path.unlink(missing_ok=True)


def _unfinished(pid: int) -> set[Path]:
    """What nsys writes its report to in the temporary folder, which it leaves there if it is ended."""
    opened: set[Path] = set()
    with contextlib.suppress(OSError):
        opened |= {Path(os.fsdecode(word)) for word in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")}
        opened |= {entry.readlink() for entry in Path(f"/proc/{pid}/fd").iterdir()}
    return {path for path in opened if path.name.startswith("nsys-report-") and path.is_absolute()}


def alive(token: str, process: subprocess.Popen[bytes] | None = None) -> list[int]:
    """What carries the token, and `process`, as long as they live."""
    mark = f"{PREFIX}ID={token}".encode()
    pids = [] if process is None or process.poll() is not None else [process.pid]
    for entry in Path("/proc").iterdir() if Path("/proc").is_dir() else ():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            if state != "Z" and mark in (entry / "environ").read_bytes().split(b"\0"):
                pids.append(int(entry.name))
    return sorted(set(pids))
