"""One check and its outcome."""

from __future__ import annotations

from dataclasses import dataclass

OK, WARNING, FAILED, SKIPPED = "ok", "warning", "failed", "skipped"


@dataclass(frozen=True)
class Check:
    """A row of the answer."""

    check: str
    status: str
    ranks: str = ""
    found: str = ""
    expected: str = ""
    fix: str = ""
