"""Takes the pictures of the README and of these pages anew, after the page has changed: `make pictures`.

It needs Node, `npm ci` in page/, and Chromium (STEPSCOPE_CHROMIUM names another).
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
EAGER = ROOT / "tests/data/pairs/hf_trainer-eager-attention.nsys.tar.xz"
#: The job of the tutorial, and one with transfers between two stages.
DEMO = """--schedule 1f1b --pp 2 --ep 4 --micro-batches 8 --steps 4 --seed 11
    --fault straggler:rank=3,factor=1.5
    --fault alloc:rank=5,per_layer=2"""
JOB = """--schedule 1f1b --pp 2 --ep 1 --dp 2 --layers 4 --micro-batches 4 --steps 3 --seed 5
    --fault straggler:rank=1,factor=1.3"""


def main() -> None:
    browser = (
        os.environ.get("STEPSCOPE_CHROMIUM") or shutil.which("chromium-headless-shell") or shutil.which("chromium")
    )
    if browser is None:
        sys.exit("no Chromium here (Debian: apt-get install chromium-headless-shell)")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with tarfile.open(EAGER) as archive:
            archive.extractall(folder / "eager", filter="data")
        _stepscope(folder, f"simulate {DEMO} -o demo")
        _stepscope(folder, f"simulate {JOB} -o job")
        _stepscope(folder, "report eager -o eager.html")
        _stepscope(folder, "report demo -o demo.html")
        serve = [sys.executable, "-m", "stepscope", "serve", "job", "--idle", "10"]
        with subprocess.Popen(serve, cwd=folder, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            known = {"serve": server.stdout.readline().strip(), "images": str(ROOT / "docs/images")}
            (folder / "pictures.expected.json").write_text(json.dumps(known), "utf-8")
            env = {**os.environ, "REPORTS": name, "CHROMIUM": browser}
            try:
                subprocess.run(["node", "tests/pictures.mjs"], cwd=ROOT / "page", env=env, check=True)
            finally:
                server.terminate()


def _stepscope(folder: Path, words: str) -> None:
    subprocess.run([sys.executable, "-m", "stepscope", *shlex.split(words)], cwd=folder, check=True)


if __name__ == "__main__":
    main()
