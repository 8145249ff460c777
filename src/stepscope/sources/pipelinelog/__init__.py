"""Logs of a two-stage pipeline's timestamps: JSON lines (semantics §8). `records` documents the form."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepscope.sources.pipelinelog.source import PipelineLog

#: Any of these in the first line, and no trace events, makes a file of JSON lines such a log.
_TELLING = ("k", "block", "unit", "queue_depth", "queue_depth_in", "queue_depth_out")


def open_pipelinelog(path: Path | str) -> PipelineLog:
    """The log as a source. Raises BadInput, here, where a line of it is not valid."""
    from stepscope.sources.pipelinelog.source import PipelineLog

    return PipelineLog(Path(path))


def looks_like_log(head: bytes) -> bool:
    """Whether a file that begins so is a log: its first line is one whole object with a field that only logs have."""
    line = head.lstrip().partition(b"\n")[0]
    try:
        first = json.loads(line)
    except (ValueError, RecursionError):  # cut off at the end of `head`, or JSON over several lines, or no log at all
        return False
    return isinstance(first, dict) and "traceEvents" not in first and any(key in first for key in _TELLING)
