"""`capture run` with stand-ins: what comes of a good run, and one clear line for every bad one."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import namedtuple
from pathlib import Path

import pytest

from stepscope.capture.process import Run
from stepscope.capture.spec import PREFIX
from stepscope.cli.main import run

Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def capture(tmp_path, capsys, monkeypatch):
    """Runs `capture run` with nsys of the host alone; the exit status and the lines on stderr."""
    monkeypatch.chdir(tmp_path)

    def go(command: list[str], *options: str) -> tuple[int, list[str]]:
        status = run(["capture", "run", "--trigger", "nvtx", "--no-verify", "-o", "cap", *options, "--", *command])
        return status, capsys.readouterr().err.splitlines()

    return go


def nothing_left(folder: Path) -> bool:
    return not [p for p in folder.iterdir() if "cap" in p.name]


def test_a_good_run(capture, nsys, train, tmp_path, monkeypatch):
    nsys()
    monkeypatch.setenv("SOME_TOKEN", "hf_0123456789abcdef")
    assert capture(train()) == (0, [])
    folder = tmp_path / "cap"
    assert {p.name for p in folder.iterdir()} == {
        "node0.host0.nsys-rep", "node0.host0.sqlite", "manifest.json", "log.txt", "steps",
    }  # fmt: skip
    text = (folder / "manifest.json").read_text()
    made = json.loads(text)
    assert "hf_0123456789abcdef" not in text
    assert (made["scenario"]["ranks"], made["scenario"]["mesh"]["pp"], made["scenario"]["steps"]) == (1, 1, 1)
    assert [profiled for _, profiled in made["captured"]["step_ns"]["0"]] == [False] * 5 + [True]


def test_a_command_that_dies_at_step_3(capture, nsys, train, tmp_path):
    nsys()
    status, lines = capture(train(die=3))
    assert status == 2 and len(lines) == 1
    assert "failed with status 7 in step 3: RuntimeError: out of luck" in lines[0]
    assert nothing_left(tmp_path)


def test_a_command_that_dies_after_the_capture(capture, nsys, train, tmp_path):
    nsys(after='open(out + ".nsys-rep", "w").write("report")')
    status, lines = capture(train(steps=9, die=8))
    assert status == 0 and "failed with status 7 after the capture" in lines[0]
    assert json.loads((tmp_path / "cap" / "manifest.json").read_text())["captured"]["exit_status"] == 7


def test_a_command_that_ends_too_soon(capture, nsys, train, tmp_path):
    nsys()
    status, lines = capture(train(steps=4))
    assert status == 2 and "ended after 4 steps, need 6 (5 warm-up, 1 profiled)" in lines[0]
    assert nothing_left(tmp_path)


def test_a_command_without_annotations(capture, nsys, tmp_path):
    nsys(after="sys.exit(0)")
    status, lines = capture(["true"])
    assert status == 2 and "nothing was captured" in lines[0] and nothing_left(tmp_path)


def test_no_nsys(capture, tmp_path):
    status, lines = capture(["true"], "--nsys", str(tmp_path / "nowhere" / "nsys"))
    assert status == 2 and len(lines) == 1 and "not found" in lines[0] and nothing_left(tmp_path)


def test_an_old_or_broken_nsys(capture, nsys, script, tmp_path):
    nsys(version="2020.1.1")
    assert "nsys: 2020.1.1, need nsys 2023.1 or newer" in capture(["true"])[1][0]
    script("nsys", "#!/bin/sh\nexit 3\n")
    assert "nsys --version fails" in capture(["true"])[1][0]
    assert nothing_left(tmp_path)


def test_more_gpus_than_there_are(capture, nsys, script):
    nsys()
    script("nvidia-smi", "#!/bin/sh\necho 'NVIDIA H200, 570.1, 143771 MiB'\n")
    status, lines = capture(["true"], "--trigger", "cuda", "--nproc", "4", "--port", "0")
    assert status == 2 and "GPUs: have 1, need 4" in lines[0]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_no_permission_as_a_user(capture, nsys, tmp_path):
    nsys()
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    assert "Permission denied" in capture(["true"], "-o", str(locked / "x"))[1][0]


def test_no_permission(capture, nsys, tmp_path, monkeypatch):
    nsys()

    def refuse(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("stepscope.capture.doctor.tempfile.TemporaryFile", refuse)
    status, lines = capture(["true"])
    assert status == 2 and len(lines) == 1 and "output: " in lines[0] and "Permission denied" in lines[0]
    assert nothing_left(tmp_path)


def test_no_permission_to_run_the_command(capture, nsys, tmp_path):
    (tmp_path / "plain").write_text("no program")
    status, lines = capture([str(tmp_path / "plain")], "--backend", "torch")
    assert status == 2 and "no permission to run it" in lines[0] and nothing_left(tmp_path)


@pytest.mark.parametrize(("module", "hint"), [("stepscope", "pip install --no-deps"), ("torch", "name the Py")])
def test_an_environment_without_what_it_needs(capture, nsys, tmp_path, module, hint):
    nsys()
    (tmp_path / "bare.py").write_text(f'raise ModuleNotFoundError("No module named {module!r}")')
    status, lines = capture([sys.executable, str(tmp_path / "bare.py")])
    assert status == 2 and len(lines) == 1 and hint in lines[0] and nothing_left(tmp_path)


def test_a_full_disk_before(capture, nsys, monkeypatch, tmp_path):
    nsys()
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10**9, 10**9, 5_000_000))
    status, lines = capture(["true"])
    assert status == 2 and "disk: have 5 MB free, need 600 MB" in lines[0] and nothing_left(tmp_path)


def test_a_full_disk_while_it_runs(capture, nsys, train, tmp_path):
    nsys(after='print("Error: write failed: No space left on device"); status = 1')
    status, lines = capture(train())
    assert status == 2 and len(lines) == 1 and "no space left on the device" in lines[0] and nothing_left(tmp_path)


def test_a_full_disk_of_which_the_command_says_nothing(capture, nsys, train, tmp_path, monkeypatch):
    nsys()
    free = iter([10**12])  # when doctor looks
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10**12, 10**12, next(free, 4096)))
    status, lines = capture(train(die=3))
    assert status == 2 and len(lines) == 1 and "no space left on the device in step 3" in lines[0]
    assert nothing_left(tmp_path)


def test_a_folder_that_is_there(capture, nsys, tmp_path):
    nsys()
    (tmp_path / "cap").mkdir()
    (tmp_path / "cap" / "kept").write_text("mine")
    status, lines = capture(["true"])
    assert status == 2 and "is there already" in lines[0]
    assert (tmp_path / "cap" / "kept").read_text() == "mine"


def test_a_command_that_goes_on_is_ended(capture, nsys, train, tmp_path):
    nsys(after="")
    # The report is written when nsys is done; a stand-in that is ended writes none, so torch's way is not tested here.
    status, lines = capture(train(steps=400, sleep=0.05), "--grace", "0.2")
    assert status == 2 and "nsys wrote no report" in lines[0] and nothing_left(tmp_path)


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds processes by /proc")
def test_ctrl_c_leaves_nothing(nsys, train, tmp_path):
    nsys()
    command = [sys.executable, "-m", "stepscope", "capture", "run", "--trigger", "nvtx", "-o", "cap", "--"]
    process = subprocess.Popen(
        [*command, *train(steps=1000, sleep=0.1)], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    steps = tmp_path / ".cap.part" / "steps" / "rank0.jsonl"
    until = time.monotonic() + 30
    while not steps.exists() and time.monotonic() < until:
        time.sleep(0.1)
    assert steps.exists(), "the run never began"
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130 and said.strip().splitlines()[-1] == "stepscope: interrupted"
    assert nothing_left(tmp_path)
    assert not [e for e in Path("/proc").glob("[0-9]*/cmdline") if str(tmp_path / "train.py") in _read(e)]


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""


def test_children_in_sessions_of_their_own_are_ended_too(tmp_path):
    started = Run(("sh", "-c", "setsid sleep 60 & sleep 60"), {PREFIX + "ID": "t0"}, tmp_path / "log", "t0")
    deadline = time.monotonic() + 10
    while len(started._alive()) < 3 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(started._alive()) >= 2
    started.end()
    assert started._alive() == []


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--trigger", "time=3"], "--trigger time=3: not known; give cuda|nvtx|nvtx=NAME|time=START+LENGTH|none"),
        (["--trigger", "none", "--backend", "torch"], "torch.profiler starts and stops with steps"),
        (["--ranges", "modules=0"], "--ranges modules=0: not known"),
    ],
)
def test_options_that_cannot_be(capture, nsys, tmp_path, options, says):
    nsys()
    status, lines = capture(["true"], *options)
    assert status == 2 and len(lines) == 1 and says in lines[0] and nothing_left(tmp_path)
