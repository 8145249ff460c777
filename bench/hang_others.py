"""Other tools that read dumps of the flight recorder, each run by a Python that has it."""

from __future__ import annotations

import json
import subprocess
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
_TORCH = HERE.parent / ".venv-torch" / "bin" / "python"
#: By tool, the Python that has it and the script that asks it.
_KNOWN = {"torchfrtrace": (_TORCH, HERE / "hang_torch.py"), "NVRx": (_TORCH, HERE / "hang_nvrx.py")}
#: What each needs beside a Python.
_NEEDS = {"NVRx": HERE.parent / ".venv-nvrx" / "nvidia_resiliency_ext"}
OTHERS = tuple(t for t, (python, _) in _KNOWN.items() if python.exists() and (t not in _NEEDS or _NEEDS[t].exists()))


def named_by(tool: str, folder: str) -> list[int]:
    """The ranks that it blames for what is in the folder."""
    process = _started(tool)
    assert process.stdin is not None and process.stdout is not None
    print(folder, file=process.stdin, flush=True)
    ranks: list[int] = json.loads(process.stdout.readline())["ranks"]
    return ranks


@cache
def _started(tool: str) -> subprocess.Popen[str]:
    """One process for all questions: torch takes seconds to import."""
    argv = [str(word) for word in _KNOWN[tool]]
    return subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
