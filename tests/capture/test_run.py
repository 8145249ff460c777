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

import numpy as np
import pytest

from stepscope.capture.process import Run, alive
from stepscope.capture.spec import PREFIX
from stepscope.cli.main import run

Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def capture(tmp_path, capsys, monkeypatch):
    """Runs `capture run` with nsys of the host alone; the exit status and the lines on stderr."""
    monkeypatch.chdir(tmp_path)

    def go(command: list[str], *options: str) -> tuple[int, list[str]]:
        status = run(["capture", "run", "--trigger", "nvtx", "--no-verify", "-o", "cap", *options, "--", *command])
        said = capsys.readouterr().err.splitlines()
        return status, [line for line in said if "holds the whole environment" not in line]

    return go


def nothing_left(folder: Path) -> bool:
    return not [p for p in folder.iterdir() if "cap" in p.name]


def only_the_log(folder: Path) -> bool:
    """Of a command that failed, what it said is kept."""
    return [p.name for p in (folder / "cap").iterdir()] == ["log.txt"] and not (folder / ".cap.part").exists()


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


def test_tags_and_environments(capture, nsys, train, tmp_path, monkeypatch):
    nsys()
    monkeypatch.setenv("NCCL_ALGO", "Ring")
    monkeypatch.setenv("SECRET", "mine")
    (tmp_path / "lib" / "torch.py").write_text(
        "__version__ = '2.11.0'\nclass version: cuda = '13.0'\nclass cuda: is_available = lambda: False\n"
        "class compiler: is_dynamo_compiling = lambda: False\n"
    )
    command = train()
    (tmp_path / "train.py").write_text("import torch\n" + (tmp_path / "train.py").read_text())
    assert capture(command, "--tag", "change=fused", "--tag", "try=2") == (0, [])
    made = json.loads((tmp_path / "cap" / "manifest.json").read_text())
    assert made["scenario"]["tags"] == {"change": "fused", "try": "2"}
    said = made["captured"]["environments"]["0"]
    assert said["torch"] == "2.11.0" and said["variables"]["NCCL_ALGO"] == "Ring" and "SECRET" not in said["variables"]
    assert capture(["true"], "--tag", "fused")[0] == 2


def test_a_command_that_dies_at_step_3(capture, nsys, train, tmp_path):
    nsys()
    status, lines = capture(train(die=3))
    assert status == 2 and len(lines) == 1
    assert "failed with status 7 in step 3: RuntimeError: out of luck" in lines[0]
    assert only_the_log(tmp_path)


def test_a_command_that_runs_out_of_memory(capture, nsys, train, tmp_path):
    nsys()
    command = train(die=3)
    program = tmp_path / "train.py"
    program.write_text(program.read_text().replace("out of luck", "CUDA out of memory. Tried to allocate 2 GiB."))
    status, (line,) = capture(command)
    assert status == 2 and "CUDA out of memory" in line and "`stepscope memory oom.pickle`" in line


def test_a_command_that_dies_after_the_capture(capture, nsys, train, tmp_path):
    nsys(after='open(out + ".nsys-rep", "w").write("report")')
    status, lines = capture(train(steps=9, die=8))
    assert status == 0 and "failed with status 7 after the capture" in lines[0]
    assert json.loads((tmp_path / "cap" / "manifest.json").read_text())["captured"]["exit_status"] == 7


def test_a_command_that_ends_too_soon(capture, nsys, train, tmp_path):
    nsys()
    status, lines = capture(train(steps=4))
    assert status == 2 and "ended after 4 steps, need 6 (5 warm-up, 1 profiled)" in lines[0]
    assert only_the_log(tmp_path)


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
    assert status == 2 and len(lines) == 1 and hint in lines[0] and only_the_log(tmp_path)


def test_a_full_disk_before(capture, nsys, monkeypatch, tmp_path):
    nsys()
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10**9, 10**9, 5_000_000))
    status, lines = capture(["true"])
    assert status == 2 and "disk: have 5 MB free, need 600 MB" in lines[0] and nothing_left(tmp_path)


def test_a_full_disk_while_it_runs(capture, nsys, train, tmp_path):
    nsys(after='print("Error: write failed: No space left on device"); status = 1')
    status, lines = capture(train())
    assert status == 2 and len(lines) == 1 and "no space left on the device" in lines[0] and only_the_log(tmp_path)


def test_a_full_disk_of_which_the_command_says_nothing(capture, nsys, train, tmp_path, monkeypatch):
    nsys()
    free = iter([10**12])  # when doctor looks
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10**12, 10**12, next(free, 4096)))
    status, lines = capture(train(die=3))
    assert status == 2 and len(lines) == 1 and "no space left on the device in step 3" in lines[0]
    assert only_the_log(tmp_path)


def test_a_folder_that_is_there(capture, nsys, tmp_path):
    nsys()
    (tmp_path / "cap").mkdir()
    (tmp_path / "cap" / "kept").write_text("mine")
    status, lines = capture(["true"])
    assert status == 2 and "already exists" in lines[0]
    assert (tmp_path / "cap" / "kept").read_text() == "mine"


def test_a_command_that_goes_on_is_ended(capture, nsys, train, tmp_path):
    nsys(after="")
    # The report is written when nsys is done; a stand-in that is ended writes none, so torch's way is not tested here.
    status, lines = capture(train(steps=400, sleep=0.05), "--grace", "0.2")
    assert status == 2 and "nsys wrote no report" in lines[0] and nothing_left(tmp_path)


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds processes by /proc")
@pytest.mark.parametrize(
    ("number", "last"),
    [
        (signal.SIGINT, "interrupted"),
        (signal.SIGTERM, "ended by SIGTERM"),
        (signal.SIGHUP, "ended by SIGHUP"),
    ],
)
def test_a_run_that_is_ended_leaves_nothing(nsys, train, tmp_path, number, last):
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
    if number == signal.SIGTERM:
        second = subprocess.run([*command, "true"], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert second.returncode == 2 and "-o cap: another capture run writes there" in second.stderr
    process.send_signal(number)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 128 + number and said.strip().splitlines()[-1] == f"stepscope: {last}"
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
    while len(alive("t0")) < 3 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(alive("t0")) >= 2
    started.end()
    assert alive("t0") == []


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


def test_what_the_command_says_is_shown_or_kept(nsys, train, tmp_path, monkeypatch, capsys):
    nsys()
    monkeypatch.chdir(tmp_path)
    asked = ["capture", "run", "--trigger", "nvtx", "--no-verify", "-o", "cap"]
    assert run([*asked, "--", *train(die=3)]) == 2  # its log is in the way of nothing
    said = capsys.readouterr()
    assert "RuntimeError: out of luck" in said.out and "(its output: cap/log.txt)" in said.err
    assert run([*asked, "--quiet", "--", *train(die=3)]) == 2
    said = capsys.readouterr()
    assert "out of luck" not in said.out and said.err.count("out of luck") == 2  # the last lines, and the error's
    assert run([*asked, "--quiet", "--", *train()]) == 0
    said = capsys.readouterr()
    assert "done" not in said.out and "done" in (tmp_path / "cap" / "log.txt").read_text()
    plan, end = said.out.splitlines()[:7], said.out.splitlines()[-2:]
    assert plan[0] == "world     as many ranks as the command starts" and plan[2] == "steps     5 warm-up, 1 profiled"
    assert end[0].startswith("nsys · 1 step on 1 rank · ") and end[0].endswith(" times an unprofiled step · 8 B")
    assert end[1] == "next: stepscope nvtx cap"  # there is no GPU here


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--nproc", "4", "--pp", "2", "--ep", "8"], "have 4 ranks (--nproc 4), need 16 (pp·ep = 2·8)"),
        (["--nproc", "8", "--pp", "2"], "have 8 ranks (--nproc 8), need 2 (pp = 2)"),
        (["--nproc", "4", "--world", "8"], "have 4 ranks (--nproc 4), need 8 (--world 8)"),
        (["--nproc", "6", "--pp", "4", "--world", "6"], "a world of 6 does not divide by pp = 4"),
        (["--layers", "16", "--pp", "2", "--ep", "8"], "have 1 node (this is not a SLURM allocation), need 2"),
    ],
)
def test_a_world_that_does_not_fit(capture, nsys, tmp_path, options, says):
    nsys()
    status, lines = capture(["python", "train.py"], *options)
    assert status == 2 and len(lines) == 1 and says in lines[0] and nothing_left(tmp_path)


@pytest.mark.parametrize("answer", ["y", "n"])
def test_a_terminal_is_asked(nsys, train, tmp_path, answer):
    """A terminal by `pty`: the plan, a question, and nothing where the answer is no."""
    import pty

    nsys()
    command = [
        sys.executable,
        "-m",
        "stepscope",
        "capture",
        "run",
        "--trigger",
        "nvtx",
        "--no-verify",
        "-o",
        "cap",
        "--",
    ]
    ours, theirs = pty.openpty()
    process = subprocess.Popen([*command, *train()], cwd=tmp_path, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    os.write(ours, f"{answer}\n".encode())
    said = b""
    while True:
        try:
            read = os.read(ours, 65536)
        except OSError:
            break
        if not read:
            break
        said += read
    os.close(ours)
    assert process.wait(timeout=60) == 0
    assert b"go on? [Y/n]" in said and b"world     as many" in said
    assert (tmp_path / "cap").exists() == (answer == "y")


def test_doctor_asks_the_python_that_trains(nsys, script, tmp_path, monkeypatch, capsys):
    nsys()
    monkeypatch.chdir(tmp_path)
    bare = script("python-bare", "#!/bin/sh\nexec " + sys.executable + ' -S "$@"\n')
    answer = '{"python": "3.12.3", "nvtx": false, "torch": "2.11.0", "cuda": true, "hooks": true}'
    good = script("python-good", f"#!/bin/sh\necho '{answer}'\n")
    script("nvidia-smi", '#!/bin/sh\ncase "$1" in *slowdown*) echo "Not Active, Active, Not Active, Not Active";; '
           "*) echo 'NVIDIA H200, 570.1, 143771 MiB';; esac\n")  # fmt: skip
    monkeypatch.setattr(os, "geteuid", lambda: 0)

    def checks(*asked: str) -> tuple[int, dict[str, tuple[str, str]]]:
        status = run(["capture", "doctor", "--format", "json", *asked])
        return status, {r["check"]: (r["status"], r["found"]) for r in json.loads(capsys.readouterr().out)["rows"]}

    status, found = checks("--", str(bare), "train.py")
    assert status == 1 and found["training Python"] == ("missing", "ModuleNotFoundError: No module named 'torch'")
    status, found = checks("--", str(good), "train.py")
    assert status == 0 and found["training Python"] == ("ok", "Python 3.12.3, torch 2.11.0")
    assert found["clocks"] == ("warning", "GPU 0: hw_thermal_slowdown") and found["GPU counters"][0] == "ok"
    nsys(metrics="GPU 0: Insufficient privilege")
    assert checks("--", str(good))[1]["GPU counters"] == ("warning", "nsys says: GPU 0: Insufficient privilege")
    status, found = checks("--with", "gpu-metrics", "--", str(good))
    assert status == 1 and found["GPU counters"][0] == "missing"


def test_a_gate_says_how_many_steps(capture, nsys, train, tmp_path):
    from stepscope.compare import baseline
    from stepscope.compare.resolution import steps_needed
    from stepscope.compare.run import PARTS, Run, Table
    from stepscope.compare.side import Side
    from stepscope.compare.steps import StepSpec

    nsys()
    lengths = 1e8 * (1 + 0.02 * np.random.default_rng(3).standard_normal(40))
    ns = np.zeros((40, 1, len(PARTS)))
    ns[:, 0, 0] = lengths
    table = Table(["step"], ns, np.ones((40, 1)))
    side = Side([Run([str(k) for k in range(40)], "step", [0], dict.fromkeys(("part", "stage", "family"), table))], {})
    baseline.save(baseline.path_of("main"), side, StepSpec())

    needed = steps_needed(side, 3.0)
    assert 5 < needed < 40
    assert capture(train(steps=needed + 6), "--for-gate", "3", "--baseline", "main") == (0, [])
    made = json.loads((tmp_path / "cap" / "manifest.json").read_text())
    assert made["scenario"]["steps"] == needed
    assert sum(profiled for _, profiled in made["captured"]["step_ns"]["0"]) == needed

    for options, says in (
        (["--for-gate", "0.1", "--baseline", "main"], "too few to tell such a change from noise"),
        (["--for-gate", "3", "--baseline", "mian"], "did you mean main?"),
        (["--for-gate", "3", "--steps", "4"], "give one of them"),
        (["--for-gate", "much"], "not a percentage"),
        (["--baseline", "main"], "also give the limit: --for-gate PERCENT"),
    ):
        status, said = capture(train(), *options)
        assert status == 2 and says in said[0]


def test_without_a_baseline_a_gate_gets_twenty_steps(nsys, train, tmp_path, monkeypatch, capsys):
    nsys()
    monkeypatch.chdir(tmp_path)
    assert (
        run(["capture", "run", "--trigger", "nvtx", "--no-verify", "--for-gate", "2", "-o", "cap", "--", *train(26)])
        == 0
    )
    assert "20 steps: their noise is not known yet" in capsys.readouterr().out
    assert json.loads((tmp_path / "cap" / "manifest.json").read_text())["scenario"]["steps"] == 20
