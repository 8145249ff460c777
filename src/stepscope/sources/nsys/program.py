"""The nsys that a user names."""

from __future__ import annotations

import shutil

from stepscope.errors import BadInput


def need_nsys(program: str) -> None:
    """One line where there is no such program."""
    if shutil.which(program) is None:
        raise BadInput(f"--nsys {program}: no such program", "give the path of nsys, or leave --nsys out")
