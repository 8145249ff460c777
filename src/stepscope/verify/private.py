"""Does a file hold what nobody may see? nsys writes the whole environment into every report."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from stepscope.capture.private import secrets_in
from stepscope.verify.check import OK, WARNING, Check

_MOST_NAMED = 5


def secrets(files: list[Path]) -> Check:
    """Values that look like tokens or keys, by the names of their variables."""
    names: set[str] = set()
    for file in files:
        if file.suffix == ".sqlite":
            try:
                names |= set(secrets_in(file))
            except sqlite3.Error:  # what is wrong with it another check says
                continue
    if not names:
        return Check("secrets", OK, found="none")
    shown = ", ".join(sorted(names)[:_MOST_NAMED]) + (f" and {len(names) - _MOST_NAMED} more" * (len(names) > 5))
    fix = "share an export (stepscope export --anonymize); `capture run` leaves such variables out; change the keys"
    return Check("secrets", WARNING, found=f"values that look like keys: {shown}", expected="none", fix=fix)
