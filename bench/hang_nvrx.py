"""What NVRx's analyzer of flight-recorder dumps names (nvidia-resiliency-ext, unpacked into .venv-nvrx): folders on
standard input, a line of JSON each.

No release of it installs on every machine: its wheels are of Linux with a new C library. What is asked here is plain
Python, and is taken from the unpacked wheel.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / ".venv-nvrx"))

from nvidia_resiliency_ext.attribution.trace_analyzer.fr_attribution import CollectiveAnalyzer

_RANKS = re.compile(r"hanging ranks: \[([\d, ]*)\]")


def named(folder: str) -> dict[str, object]:
    """The ranks that it calls hanging, without a language model; what it says where it fails."""
    asked = {"fr_path": folder, "pattern": "nccl_trace_rank_*", "llm_analyze": False}
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            said = CollectiveAnalyzer(asked).run_sync(asked)
    except BaseException as error:
        return {"folder": folder, "failed": f"{type(error).__name__}: {error}"[:120], "ranks": []}
    match = _RANKS.search(str(said))
    return {
        "folder": folder,
        "ranks": sorted({int(rank) for rank in match[1].split(",") if rank.strip()}) if match else [],
    }


logging.disable(logging.DEBUG)
for line in sys.stdin:
    print(json.dumps(named(line.strip())), flush=True)
