"""Logs of steps: a line per step, as the ranks of `capture run` write them (`steps/rank0.jsonl`), or any program.

    {"step": 12, "ns": 57123456}
    {"step": 13, "ns": 57001002, "began_ns": 120398457, "rank": 0, "profiled": false}

`step` and `ns` are needed. `began_ns` is any monotonic clock of the rank; without it, steps follow each other without
gaps. `rank` is that of the file's name (`rank3.jsonl`) where no line says it, else 0. Other lines are left out.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepscope.sources.steplog.source import StepLog


def open_steplog(path: Path | str) -> StepLog:
    """The log as a source. Raises BadInput, here, where no line of it is a step."""
    from stepscope.sources.steplog.source import StepLog

    return StepLog(Path(path))


def looks_like_steplog(head: bytes) -> bool:
    """Whether a file that begins so is a log of steps: its first line is a step, or what a rank says of itself."""
    line = head.lstrip().partition(b"\n")[0]
    if not re.match(rb'\{\s*"(?:about|step|rank|ns|ordinal|began_ns)"', line):
        return False
    try:
        first = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(first, dict) and ("about" in first or {"step", "ns"} <= set(first))
