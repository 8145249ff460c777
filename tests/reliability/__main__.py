"""`make reliability`: every script of this folder in turn, a line for each; exit status 1 where one failed.

python tests/reliability [quick|full] [SCRIPT…]

A script takes `quick` or `full` as its first argument, says what was wrong, and exits with 1 where anything was.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
SCALES = ("quick", "full")


def main(arguments: list[str]) -> int:
    scale = arguments.pop(0) if arguments and arguments[0] in SCALES else "full"
    scripts = {path.stem: path for path in sorted(HERE.glob("[!_]*.py"))}
    if unknown := [name for name in arguments if name not in scripts]:
        print(f"no such script: {', '.join(unknown)}; there are {', '.join(scripts)}", file=sys.stderr)
        return 2
    failed = [name for name in arguments or scripts if not _passes(scripts[name], scale)]
    print(f"failed: {', '.join(failed)}" if failed else "all passed", flush=True)
    return 1 if failed else 0


def _passes(script: Path, scale: str) -> bool:
    began = time.monotonic()
    status = subprocess.run([sys.executable, str(script), scale], check=False).returncode
    verdict = "passed" if status == 0 else f"FAILED (exit status {status})"
    print(f"{script.stem}: {verdict}, {time.monotonic() - began:.0f} s", flush=True)
    return status == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
