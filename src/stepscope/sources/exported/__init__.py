"""What `stepscope export` wrote, read back: a folder of Parquet files, Chrome JSON, or a Perfetto trace of ours."""

from __future__ import annotations

import json
from pathlib import Path

from stepscope.model.exported import FOLDER_HEADER, MARK

#: How Chrome JSON of ours begins.
CHROME_START = f'{{"displayTimeUnit":"ns",{json.dumps(MARK)}:'.encode()


def looks_like_chrome_export(head: bytes) -> bool:
    return head.startswith(CHROME_START)


def is_export_folder(path: Path) -> bool:
    try:
        return (path / FOLDER_HEADER).is_file()
    except OSError:  # a directory that may not be entered
        return False
