"""Programs that train, one after the other, in forks of a process that has imported torch: most of what they take.

Where a capture begins with the start of a process is tried in processes of their own, by `test_hooks.python`.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

#: A fork does what a program does at its end, but does not take the interpreter apart: with torch in it, a second.
_SERVER = """
import atexit, gc, json, os, runpy, sys, traceback
import torch
import torch._dynamo  # the first optimizer imports it

torch.set_num_threads(1)
gc.freeze()
for line in sys.stdin:
    folder, arguments = json.loads(line)
    child = os.fork()
    if not child:
        break
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status), flush=True)
else:
    sys.exit()
os.chdir(folder)
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
for fd, name in ((1, "out.txt"), (2, "err.txt")):
    os.dup2(os.open(name, os.O_CREAT | os.O_TRUNC | os.O_WRONLY), fd)
status = 0
try:
    if arguments[0] == "-c":
        exec(compile(arguments[1], "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.argv = arguments
        runpy.run_path(arguments[0], run_name="__main__")
except BaseException:
    traceback.print_exc()
    status = 1
atexit._run_exitfuncs()
sys.stdout.flush()
sys.stderr.flush()
os._exit(status)
"""


@dataclass(frozen=True)
class Forks:
    """What runs programs, each in a folder of its own."""

    process: subprocess.Popen[str]

    def run(self, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        """A program's path and arguments, or `-c` and its text."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps([str(cwd), arguments]) + "\n")
        self.process.stdin.flush()
        status = self.process.stdout.readline()
        assert status, "the process that forks has ended"
        out, err = ((cwd / name).read_text("utf-8") for name in ("out.txt", "err.txt"))
        return subprocess.CompletedProcess(arguments, int(status), out, err)


@contextmanager
def forks(torch_python: str, folder: Path, env: dict[str, str]) -> Iterator[Forks]:
    """Captures write into the folder of the program that they record: the one that it runs in."""
    everything = {**env, "STEPSCOPE_CAPTURE_OUT": "."}
    process = subprocess.Popen(
        [torch_python, "-c", _SERVER], cwd=folder, env=everything, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        yield Forks(process)
    finally:
        process.communicate(timeout=60)


def has_module(python: str, name: str) -> bool:
    """Is a package there? It is not imported: that takes seconds of trainers."""
    code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({name!r}) is None)"
    return subprocess.run([python, "-c", code], check=False).returncode == 0
