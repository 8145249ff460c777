"""Stand-ins: an nsys that only runs the command, a training script that needs no torch, SLURM's commands."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "examples" / "moe_reference" / "train.py"

NSYS = """#!{python}
import os, re, sys
argv = sys.argv[1:]
if argv[0] == "--version":
    print("NVIDIA Nsight Systems version {version}"); sys.exit(0)
if argv[0] == "status":
    print("Linux Kernel Paranoid Level = {paranoid}")
    print("CPU Profiling Environment (process-tree): " + ("OK" if {paranoid} < 3 else "Fail"))
    sys.exit(0)
if argv[:2] == ["profile", "--help"]:
    print("--cudabacktrace= --cuda-memory-usage= --python-sampling= {options}"); sys.exit(0)
if argv[0] == "profile" and argv[1].endswith("=help"):
    print("Possible values are:\\n\\t{metrics}"); sys.exit(0)
if argv[0] == "export":
    if "--help" not in argv:
        out = next(a.split("=", 1)[1] for a in argv if a.startswith("--output="))
        open(out, "w").write("exported")
    sys.exit(0)
out = next(a.split("=", 1)[1] for a in argv if a.startswith("--output="))
out = re.sub(r"%q{{(\\w+)}}", lambda m: os.environ[m[1]], out).replace("%h", "host0")
command = argv[1:]
while command[0].startswith("-"):
    command.pop(0)
import subprocess
status = subprocess.run(command).returncode
{after}
if status == 0 and "--capture-range-end=repeat" in argv:
    log = open(os.path.join(os.path.dirname(out), "steps", "rank0.jsonl")).read()
    for k in range(log.count('"more": true')):
        open("%s.%d.nsys-rep" % (out, k + 1), "w").write("report" * {size})
elif status == 0:
    open(out + ".nsys-rep", "w").write("report")
sys.exit(status)
"""

#: A job of one rank; the `nvtx` that it finds is a stand-in too.
TRAIN = """
import sys, time
from stepscope import annotate
annotate.setup(rank=0, pp=(0, 1), mbs=1, seq=64)
for n in range({steps}):
    with annotate.step(n):
        if n == {die}:
            print("RuntimeError: out of luck", file=sys.stderr); sys.exit(7)
        with annotate.chunk(forward=(n, 0)):
            time.sleep({sleep})
print("done")
"""
NVTX = "push_range = pop_range = start_range = end_range = lambda *a, **k: None\n"


@pytest.fixture
def tools(tmp_path, monkeypatch) -> Path:
    """An empty folder in front of the PATH."""
    folder = tmp_path / "tools"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder


@pytest.fixture
def script(tools) -> Callable[[str, str], Path]:
    """Puts a program on the PATH."""

    def write(name: str, text: str) -> Path:
        file = tools / name
        file.write_text(text)
        file.chmod(0o755)
        return file

    return write


@pytest.fixture
def nsys(script) -> Callable[..., Path]:
    """Puts a stand-in for nsys on the PATH."""

    def write(
        version: str = "2025.3.2", after: str = "", paranoid: int = 2, metrics: str = "0: NVIDIA H200 PCI[0000:00]",
        options: str = "--gpu-metrics-devices= --python-backtrace= --nic-metrics=", size: int = 1,
    ) -> Path:  # fmt: skip
        said = {"paranoid": paranoid, "metrics": metrics, "options": options, "size": size}
        return script("nsys", NSYS.format(python=sys.executable, version=version, after=after, **said))

    return write


@pytest.fixture
def train(tmp_path, monkeypatch) -> Callable[..., list[str]]:
    """The command of a training run of one rank."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "nvtx.py").write_text(NVTX)
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'src'}{os.pathsep}{tmp_path / 'lib'}")

    def command(steps: int = 6, die: int = -1, sleep: float = 0.0) -> list[str]:
        file = tmp_path / "train.py"
        file.write_text(TRAIN.format(steps=steps, die=die, sleep=sleep))
        return [sys.executable, str(file)]

    return command
