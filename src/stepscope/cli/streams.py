"""Standard streams that may be closed, full, or in an encoding that lacks a character."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap

from stepscope.errors import BadInput

_NAMES = ("stdin", "stdout", "stderr")
_closed: set[str] = set()


def prepare() -> None:
    """Put something harmless where a stream is closed, before a file that is opened takes its number."""
    for number, name in enumerate(_NAMES):
        if getattr(sys, name) is None:
            _closed.add(name)
            null = os.open(os.devnull, os.O_RDWR)
            if null != number:
                os.dup2(null, number)
                os.close(null)
            setattr(sys, name, open(number, "r" if number == 0 else "w", encoding="utf-8"))  # noqa: PTH123, SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def need_stdout() -> None:
    """An answer that nobody could read is an error, not an answer."""
    if "stdout" in _closed:
        raise BadInput("standard output is closed", "give -o FILE")


def complain(text: str) -> None:
    """One line on stderr; a terminal gets it in lines that end with a word."""
    line = f"stepscope: {text}"
    if sys.stderr.isatty():
        width = max(20, shutil.get_terminal_size().columns)
        line = textwrap.fill(line, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    print(line, file=sys.stderr)


def silence_stdout() -> None:
    """What is left to write goes nowhere: the interpreter must not try to flush once more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
