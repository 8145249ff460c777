"""Without a network, and with nothing that can be written but the cache, the answers are the same."""

from __future__ import annotations

import ast
import os
import re
import subprocess
from pathlib import Path

import pytest
from distributions import without_checkout
from sealed import permitted, sealed

import stepscope

#: `{job}` is a folder of traces, `{cache}` the one folder that can be written.
COMMANDS = (
    ["demo"],
    ["collectives", "{job}", "--jobs", "2"],  # no worker can be started: semaphores are files
    ["report", "{job}", "-o", "{cache}/report.md"],
)
#: Modules that reach other machines. Dask's and MCP's connections are made by their packages, by the user's address.
REACHING = {"ssl", "urllib.request", "http.client", "ftplib", "smtplib", "requests", "httpx", "aiohttp"}
#: What asks for more of `socket` than this machine's name, and why.
SOCKETS = {"web/run.py": "the server listens, on loopback", "capture/doctor.py": "whether a port is free"}


@pytest.fixture
def run(core, tmp_path):
    """A command of the installed wheel, sealed or not, in a folder of its own."""

    def call(words: list[str], closed: bool, writable: Path, **environment: str) -> subprocess.CompletedProcess[str]:
        command = [core.stepscope, *words]
        clean = {k: v for k, v in without_checkout().items() if k not in ("HOME", "TMPDIR", "XDG_CACHE_HOME")}
        return subprocess.run(
            sealed([writable], command) if closed else command,
            env={**clean, "STEPSCOPE_CACHE_DIR": str(writable), **environment},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )

    return call


@pytest.mark.slow
@pytest.mark.skipif(not permitted(), reason="this machine does not let a test unmount the world")
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_the_answer_is_the_same(run, job, command, tmp_path):
    closed, opened = tmp_path / "closed", tmp_path / "opened"
    closed.mkdir()
    opened.mkdir()
    inside = run([w.format(job=job, cache=closed) for w in command], True, closed)
    outside = run([w.format(job=job, cache=opened) for w in command], False, opened)
    assert inside.returncode == outside.returncode == 0, inside.stderr
    assert inside.stdout.replace(str(closed), "") == outside.stdout.replace(str(opened), "")
    assert inside.stderr.replace(str(closed), "") == outside.stderr.replace(str(opened), "")


@pytest.mark.slow
@pytest.mark.skipif(not permitted(), reason="this machine does not let a test unmount the world")
def test_it_is_sealed(tmp_path):
    cache = tmp_path / "cache"
    cache.mkdir()
    attempts = (
        "import os, socket, tempfile\n"
        f"open({str(cache / 'kept')!r}, 'w').close()\n"
        f"for folder in ({str(tmp_path)!r}, '/', '/tmp', '/dev/shm', os.path.expanduser('~')):\n"
        "    try: tempfile.TemporaryFile(dir=folder)\n"
        "    except OSError: continue\n"
        "    raise SystemExit(f'{folder} can be written')\n"
        "try: socket.create_connection(('127.0.0.1', 9), 1)\n"
        "except OSError as error: print(error.strerror)\n"
    )
    done = subprocess.run(sealed([cache], ["python3", "-c", attempts]), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "Network is unreachable\n"), done.stderr


@pytest.mark.slow
@pytest.mark.skipif(not permitted(), reason="this machine does not let a test unmount the world")
def test_where_nothing_at_all_can_be_written_one_line_says_so(run, job, tmp_path):
    (tmp_path / "unused").mkdir()
    answered = run(["breakdown", str(job)], True, tmp_path / "unused", STEPSCOPE_CACHE_DIR="/nowhere")
    assert answered.returncode == 0
    demo = run(["demo"], True, tmp_path / "unused", STEPSCOPE_CACHE_DIR="/nowhere")
    assert demo.returncode == 2
    assert demo.stderr == "stepscope: no folder for temporary files can be written; set TMPDIR to one that can\n"


@pytest.mark.slow
def test_a_home_that_is_not_there_or_not_ours_is_no_failure(core, job, tmp_path):
    clean = {k: v for k, v in without_checkout().items() if k not in ("STEPSCOPE_CACHE_DIR", "XDG_CACHE_HOME", "HOME")}
    shut = tmp_path / "shut"
    shut.mkdir(mode=0o555)
    for home in (str(shut), ""):
        done = subprocess.run(
            [core.stepscope, "breakdown", job],
            env={**clean, "HOME": home},
            cwd=tmp_path,
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, (home, done.stderr)
    if os.getuid():
        assert not list(shut.iterdir())


def test_no_module_reaches_other_machines():
    root = Path(stepscope.__file__).parent
    reaching, sockets = set(), set()
    for path in root.rglob("*.py"):
        text = path.read_text("utf-8")
        name = path.relative_to(root).as_posix()
        if re.search(r"\bsocket\.(?!gethostname\b)", text):
            sockets.add(name)
        for node in ast.walk(ast.parse(text)) if any(module in text for module in REACHING) else ():
            modules = [a.name for a in node.names] if isinstance(node, ast.Import) else [getattr(node, "module", None)]
            reaching |= {(name, module) for module in modules if module in REACHING}
    assert reaching == set()
    assert sockets == set(SOCKETS)
