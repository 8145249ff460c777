"""Every input of ../shared/hostile through every command: answers, and refusals in one line.

python tests/reliability/hostile.py [quick|full]
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from hostile_shared import commands, inputs, wrong


def main(scale: str) -> int:
    shared = Path(__file__).resolve().parents[3] / "shared"
    if not shared.is_dir():
        print("no ../shared beside the repository: nothing is asked")
        return 0
    every = 7 if scale == "quick" else 1
    count = bad = 0
    with tempfile.TemporaryDirectory() as folder:
        os.environ["STEPSCOPE_CACHE_DIR"] = str(Path(folder) / "cache")
        for number, path in enumerate(inputs(shared)):
            for line in commands(path, Path(folder))[number % every :: every]:
                count += 1
                if said := wrong(path, line):
                    bad += 1
                    print(said, flush=True)
    print(f"{count} questions, {bad} wrong")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "full"))
