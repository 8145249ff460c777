"""What `stepscope export` wrote, read back: a folder of Parquet files, Chrome JSON, or a Perfetto trace of ours."""

from __future__ import annotations

import json
from pathlib import Path

from stepscope.model.exported import FOLDER_HEADER, MARK

#: How Chrome JSON of ours begins.
CHROME_START = f'{{"displayTimeUnit":"ns",{json.dumps(MARK)}:'.encode()

#: The name of the first track of a Perfetto trace of ours lies within so many bytes.
_NAMED_BY = 64


def looks_like_chrome_export(head: bytes) -> bool:
    return head.startswith(CHROME_START)


def looks_like_perfetto_export(head: bytes) -> bool:
    """Whether the first packet of a Perfetto trace is the header of an export."""
    return MARK.encode() in head[:_NAMED_BY]


def is_export_folder(path: Path) -> bool:
    try:
        return (path / FOLDER_HEADER).is_file()
    except OSError:  # a directory that may not be entered
        return False
