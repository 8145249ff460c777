"""Regular expressions that users give: refused in one line where Polars cannot read them."""

from __future__ import annotations

import polars as pl

from stepscope.errors import BadInput


def check_pattern(option: str, pattern: str | None) -> None:
    """BadInput where `--option pattern` is not a regular expression of Polars (Rust's: no look-around)."""
    if pattern is None:
        return
    try:
        pl.Series(["x"]).str.contains(pattern)
    except pl.exceptions.ComputeError as error:
        why = next((line for line in str(error).splitlines() if line.startswith("error: ")), "error: unreadable")
        raise BadInput(
            f"--{option} {pattern!r} is not a regular expression ({why.removeprefix('error: ')})",
            "write it in Rust's syntax",
        ) from None
