"""The inputs of ../shared/hostile: what is asked of each, and what must not come of it."""

from __future__ import annotations

import contextlib
import io
import time
from pathlib import Path

from stepscope import questions
from stepscope.cli.main import run

#: Nothing may take longer, on a machine that does other things meanwhile.
_LONGEST_S = 60


def inputs(shared: Path) -> list[Path]:
    return sorted(path for path in (shared / "hostile").iterdir() if path.name != "README.md")


def commands(path: Path, folder: Path) -> list[list[str]]:
    """Every command line about an input; what they write goes into the folder."""
    given = str(path)
    if path.name.startswith("b_"):
        return [["gate", str(path.parent / "c01_call_name_missing.sqlite"), "--baseline", given]]
    return [
        *([name, given] for name in questions.names()),
        ["stats", given],
        ["rules", given],
        ["report", given, "-o", str(folder / "report.html")],
        ["compare", given, given],
        ["gate", given, "--baseline", given],
        ["sql", given, "SELECT count(*) FROM ops"],
        ["capture", "verify", given],
    ]


def wrong(path: Path, line: list[str]) -> str | None:
    """What is wrong with how a command ended; None where it answered, or refused in a line."""
    out, err = io.StringIO(), io.StringIO()
    began = time.monotonic()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = run(line)
    took, said = time.monotonic() - began, err.getvalue()
    who = f"{line[0]} {path.name}"
    if "this is a bug" in said or "Traceback" in said or status not in (0, 1, 2, 3):
        return f"{who}: status {status}: {said[:200]}"
    if status in (2, 3) and (said.count("\n") != 1 or not said.startswith("stepscope: ")) and line[0] != "stats":
        return f"{who}: not one line: {said[:200]}"
    return f"{who}: {took:.0f} s" if took > _LONGEST_S else None
