"""`capture hang`: the environment of a job, and what is collected of one that listens to its pipes."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from stepscope import api
from stepscope.capture import hang
from stepscope.cli.main import run
from stepscope.errors import BadInput
from stepscope.simulate.hang.faults import parse
from stepscope.simulate.hang.job import HangJob
from stepscope.simulate.hang.run import simulate_hang

#: A rank as torch makes it: a pipe that it reads, and a dump that it writes when there is something in it.
RANK = """
import os, sys, time
rank, stem, dump, source = sys.argv[1:]
os.mkfifo(f"{stem}{rank}.pipe")
handle = os.open(f"{stem}{rank}.pipe", os.O_RDONLY | os.O_NONBLOCK)
print("ready", flush=True)
for _ in range(600):
    if os.read(handle, 16):
        open(f"{dump}{rank}", "wb").write(open(source, "rb").read())
        break
    time.sleep(0.05)
"""


def test_the_environment_names_the_folder(tmp_path):
    env = hang.environment(tmp_path, buffer=500, timing=False)
    assert env["TORCH_NCCL_DEBUG_INFO_PIPE_FILE"] == str(tmp_path / "pipe_rank_")
    assert env["TORCH_FR_BUFFER_SIZE"] == env["TORCH_NCCL_TRACE_BUFFER_SIZE"] == "500"
    assert env["TORCH_NCCL_ENABLE_TIMING"] == "0" and env["TORCH_NCCL_DUMP_ON_TIMEOUT"] == "1"


def test_env_is_shell(tmp_path, capsys):
    assert run(["capture", "hang", "--env", "-o", str(tmp_path / "a b")]) == 0
    script = capsys.readouterr().out
    shown = subprocess.run(["sh", "-c", script + "env"], capture_output=True, text=True, check=True).stdout
    assert f"TORCH_FR_DUMP_TEMP_FILE={tmp_path}/a b/nccl_trace_rank_" in shown
    assert (tmp_path / "a b").is_dir()


def test_dumps_are_asked_for_and_collected(tmp_path):
    job, folder = tmp_path / "job", tmp_path / "dumps"
    simulate_hang(HangJob(tp=2, pp=1, dp=2, seed=2), parse("host:rank=2")).write(job)
    folder.mkdir()
    (folder / "nccl_trace_rank_3").write_bytes((job / "nccl_trace_rank_3").read_bytes())  # by the watchdog, before
    ranks = [
        subprocess.Popen(
            [
                sys.executable,
                "-c",
                RANK,
                str(r),
                str(folder / hang.PIPE),
                str(folder / hang.DUMP),
                str(job / f"{hang.DUMP}{r}"),
            ],
            stdout=subprocess.PIPE,
        )
        for r in range(3)
    ]
    try:
        for rank in ranks:
            assert rank.stdout is not None and rank.stdout.readline() == b"ready\n"
        began = time.time_ns()
        done = hang.collect(folder, wait_s=30, stacks=False)
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()
    assert sorted(done.dumped_ns) == [0, 1, 2, 3]
    assert all(done.dumped_ns[r] >= began - 10**9 for r in range(3))
    result = api.hang(folder)
    assert (result.summary["verdict"], result.summary["culprits"]) == ("host-stopped", [2])


def test_a_pipe_that_nobody_reads_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / f"{hang.PIPE}0.pipe")
    began = time.monotonic()
    done = hang.collect(tmp_path, wait_s=20, stacks=False)
    assert done.silent == [0] and not done.dumped_ns
    assert time.monotonic() - began < 10
    assert run(["capture", "hang", "--here", "--no-stacks", "-o", str(tmp_path)]) == 3


def test_processes_are_known_by_their_environment(tmp_path):
    for pid, env in (
        (7, b"RANK=1\0WORLD_SIZE=2\0TORCH_NCCL_DEBUG_INFO_PIPE_FILE=x\0"),
        (9, b"HOME=/\0"),
        (11, b"RANK=1"),
    ):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "environ").write_bytes(env)
    assert hang.ranks_here(tmp_path) == {1: 7}


def test_no_folder(tmp_path):
    with pytest.raises(BadInput, match="no such folder"):
        hang.collect(tmp_path / "none")
