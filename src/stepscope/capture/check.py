"""One check of `capture doctor` and its outcome."""

from __future__ import annotations

import socket
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Check:
    """`status` is ok, warning or missing; `fix` says what to do where it is not ok."""

    node: str
    check: str
    status: str
    found: str
    needed: str
    fix: str = ""

    def row(self) -> dict[str, Any]:
        return asdict(self)


def check(name: str, ok: bool, found: str, needed: str, fix: str = "", soft: bool = False) -> Check:
    status = "ok" if ok else "warning" if soft else "missing"
    return Check(socket.gethostname().split(".")[0], name, status, found, needed, "" if ok else fix)
