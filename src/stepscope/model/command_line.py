"""Command lines, as answers name them: what prints the same on a terminal."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping
from typing import Any


def command_line(*words: str) -> str:
    """`stepscope overlap 'my run.sqlite' --step`."""
    return shlex.join(["stepscope", *words])


def flags(options: Mapping[str, Any], *, on: Collection[str] = ()) -> list[str]:
    """Options by their names in Python as words; those in `on` are flags that are set unless they are taken back."""
    words: list[str] = []
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        if value is False:
            words += [f"--no-{flag[2:]}"] if name in on else []
        elif value is True:
            words.append(flag)
        else:
            for one in value if isinstance(value, list | tuple) else [value]:
                absolute = name in ("start", "end") and isinstance(one, int)  # a number is on the trace's clock
                words += [flag, f"@{one}" if absolute else str(one)]
    return words


def joined(options: Mapping[str, Any]) -> list[str]:
    """The same with `=`, as those have them that nsys has too."""
    return [f"--{k.replace('_', '-')}" if v is True else f"--{k.replace('_', '-')}={v}" for k, v in options.items()]
