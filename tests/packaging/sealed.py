"""Runs a command without a network, and with every file system read-only but for the folders that are named.

    python sealed.py FOLDER[:FOLDER…] COMMAND…

Called by itself under `unshare`, which gives it a network without interfaces and mounts of its own: what is remounted
here is remounted for the command alone. Where the system does not permit that, `permitted` says so.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

#: Flags of a mount that a namespace may not take away: they are repeated.
_KEPT = {"nosuid", "nodev", "noexec", "noatime", "nodiratime", "relatime"}
#: The kernel's own, which hold no files of anybody.
_KERNEL = {"proc", "sysfs", "cgroup", "cgroup2", "devpts", "mqueue", "securityfs", "debugfs", "tracefs", "bpf"}


def sealed(writable: Sequence[Path], command: Sequence[str | Path]) -> list[str]:
    """The command line that runs `command` so."""
    folders = ":".join(map(str, writable))
    return ["unshare", "-rnm", sys.executable, "-I", __file__, folders, *map(str, command)]


@cache
def permitted() -> bool:
    """Whether this machine lets a test do it."""
    if not shutil.which("unshare") or not shutil.which("mount"):
        return False
    done = subprocess.run(sealed([], [sys.executable, "-c", "pass"]), capture_output=True, check=False)
    return done.returncode == 0


def _seal(writable: list[str]) -> None:
    _mount("--make-rprivate", "/")
    for folder in writable:
        _mount("--bind", folder, folder)  # a mount of its own stays as it is
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        target, options = before.split()[4:6]
        target = target.encode().decode("unicode_escape")  # a space is \040
        if after.split()[0] in _KERNEL or target in writable or not Path(target).exists():
            continue
        kept = [option for option in options.split(",") if option in _KEPT]
        _mount("-o", ",".join(["remount", "bind", "ro", *kept]), target)


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True, capture_output=True)


if __name__ == "__main__":
    _seal([folder for folder in sys.argv[1].split(":") if folder])
    os.execvp(sys.argv[2], sys.argv[2:])
