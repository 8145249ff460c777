"""The trainer's setup label: `rank=N; pp=R/S dp=R/S cp=R/S ep=R/S; mbs=M seq=Q`, with any further axes and pairs."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_LABEL = re.compile(r"^\s*rank=(\d+)\s*;")
_AXIS = re.compile(r"\b(\w+)=(\d+)/(\d+)")
_PAIR = re.compile(r"\b(\w+)=([^\s;]+)")

#: For filters over many texts: what every setup label starts with.
SETUP_PATTERN = r"^\s*rank=\d+\s*;"


@dataclass(frozen=True)
class Setup:
    """A parsed setup label. `axes` maps an axis to (coordinate, size); `extra` keeps every other pair as text."""

    rank: int
    axes: dict[str, tuple[int, int]] = field(default_factory=dict)
    extra: dict[str, str] = field(default_factory=dict)


def parse_setup(text: str) -> Setup | None:
    """The setup that `text` declares, or None where it is no setup label."""
    match = _LABEL.match(text)
    if match is None:
        return None
    axes = {axis: (int(r), int(size)) for axis, r, size in _AXIS.findall(text)}
    extra = {k: v for k, v in _PAIR.findall(text) if k != "rank" and k not in axes}
    return Setup(int(match.group(1)), axes, extra)
