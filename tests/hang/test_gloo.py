"""Real dumps: four Gloo ranks on this machine's CPU, of which one does not come to the last call."""

from __future__ import annotations

import json
import pickle
import socket
import subprocess
from pathlib import Path

import pytest

from stepscope import api

PYTHON = Path(__file__).parents[2] / ".venv-torch" / "bin" / "python"
PROGRAM = """
import os, sys, time
import torch, torch.distributed as dist
import torch.multiprocessing as mp
from torch._C import _distributed_c10d as c10d

def main(rank, folder, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, RANK=str(rank), WORLD_SIZE="4")
    dist.init_process_group("gloo")
    pair = dist.new_group([0, 1], group_desc="tp")
    data = torch.ones(8)
    for _ in range(3):
        dist.all_reduce(data)
        if rank < 2:
            dist.all_reduce(data, group=pair)
    if rank != 2:
        dist.all_reduce(torch.ones(5), async_op=True)
    time.sleep(2)
    with open(f"{folder}/rank_{rank}", "wb") as file:
        file.write(c10d._dump_fr_trace())
    os._exit(0)

if __name__ == "__main__":
    mp.spawn(main, (sys.argv[1], sys.argv[2]), nprocs=4)
"""


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON.exists(), reason="torch is not installed")
def test_gloo_ranks_that_wait_for_one(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    program, dumps = tmp_path / "job.py", tmp_path / "dumps"
    program.write_text(PROGRAM)
    dumps.mkdir()
    env = {"TORCH_FR_BUFFER_SIZE": "100", "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    subprocess.run([PYTHON, program, dumps, port], env=env, timeout=180, check=True, capture_output=True)
    # An hour later: how long a hang lasts is what the file or a manifest says.
    times = {str(rank): (dumps / f"rank_{rank}").stat().st_mtime_ns + 3600 * 10**9 for rank in range(4)}
    (dumps / "hang.json").write_text(json.dumps({"dumped_ns": times}))
    said = api.hang(dumps).summary
    assert (said["verdict"], said["culprits"], said["hung"]) == ("host-stopped", [2], True)
    assert said["call"]["call"] == "all_reduce of 5 Float" and said["call"]["in_it"] == [0, 1, 3]
    # Two seconds after the last call; the files are later by what a busy machine takes to write them.
    entries = [entry for rank in range(4) for entry in pickle.loads((dumps / f"rank_{rank}").read_bytes())["entries"]]
    soon = max(entry["time_created_ns"] for entry in entries) + 2 * 10**9
    (dumps / "hang.json").write_text(json.dumps({"dumped_ns": dict.fromkeys(times, soon)}))
    assert not api.hang(dumps).summary["hung"]  # two seconds are not a hang
