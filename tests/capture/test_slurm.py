"""SLURM by stand-ins for srun and scontrol on the PATH."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from stepscope.capture import slurm
from stepscope.cli.main import run

ROOT = Path(__file__).resolve().parents[2]
SCONTROL = """#!/bin/sh
if [ "$2" = hostnames ]; then printf 'n01\\nn02\\n'; exit 0; fi
[ "$4" = 77 ] || {{ echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1; }}
echo "JobId=77 JobName=x RunTime={run} TimeLimit={limit} NodeList=n[01-02] NumNodes={nodes} NumCPUs=64"
"""
#: Runs the command once per node, one after the other.
SRUN = """#!{python}
import os, subprocess, sys
argv = sys.argv[1:]
open({log!r}, "a").write(" ".join(argv) + "\\n")
nodes = int(next(a for a in argv if a.startswith("--nodes=")).split("=")[1])
while argv[0].startswith("-"):
    argv.pop(0)
for node in range(nodes):
    here = dict.fromkeys(("SLURM_NODEID", "SLURM_PROCID", "RANK"), str(node))
    env = {{**os.environ, **here, "SLURM_STEP_ID": "0"}}
    status = subprocess.run(argv, env=env).returncode
    if status > 1:
        sys.exit(status)
"""


@pytest.fixture
def job(script, tmp_path, monkeypatch):
    """An allocation of two nodes; a function that changes it."""
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    monkeypatch.delenv("SLURM_STEP_ID", raising=False)
    monkeypatch.chdir(tmp_path)
    script("srun", SRUN.format(python=sys.executable, log=str(tmp_path / "srun.log")))

    def change(run: str = "00:10:00", limit: str = "01:00:00", nodes: int = 2) -> None:
        script("scontrol", SCONTROL.format(run=run, limit=limit, nodes=nodes))

    change()
    return change


def test_a_plan_that_the_allocation_cannot_hold(job, capsys):
    """The same refusal as `capture run`'s, before anything is run."""
    words = [
        "--layers",
        "32",
        "--ep",
        "8",
        "--dp",
        "4",
        "--gpus-per-node",
        "8",
        "--schedule",
        "ddp",
        "--max-size",
        "9GB",
    ]
    assert run(["capture", "plan", *words]) == 2
    said = capsys.readouterr().err
    assert "SLURM job 77: have 2 nodes, need 4 (32 ranks, 8 on each)" in said and "salloc --nodes=4" in said
    job(nodes=4)
    assert run(["capture", "plan", *words]) == 0


def test_what_the_allocation_is(job, monkeypatch):
    assert slurm.allocation() == slurm.Allocation("77", 2, 3000.0, "n01")
    job(limit="UNLIMITED")
    assert slurm.allocation().left_s is None
    job(limit="2-00:00:00", run="1-23:30:00")
    assert slurm.allocation().left_s == 1800.0
    monkeypatch.setenv("SLURM_STEP_ID", "0")  # srun has started us: there is nothing left to start
    assert slurm.allocation() is None


def test_dry_run_prints_what_to_paste(job, capsys, tmp_path, monkeypatch):
    monkeypatch.delenv("PYTHONPATH", raising=False)
    asked = ["capture", "run", "--dry-run", "--nproc", "8", "-o", "cap", "--", "python", "train.py", "--lr", "1 2"]
    assert run(asked) == 0
    text = capsys.readouterr().out
    folder = tmp_path / "cap"
    assert text.splitlines()[0] == f"mkdir -p {folder}"
    assert text.splitlines()[1] == (
        f"env PYTHONPATH={ROOT / 'src' / 'stepscope' / 'hooks' / 'site'} STEPSCOPE_CAPTURE_BACKEND=nsys "
        f"STEPSCOPE_CAPTURE_HOOKS=1 STEPSCOPE_CAPTURE_ID=dry-run STEPSCOPE_CAPTURE_OUT={folder} "
        "STEPSCOPE_CAPTURE_RANGES=phases STEPSCOPE_CAPTURE_STEPS=1 "
        "STEPSCOPE_CAPTURE_TRIGGER=cuda STEPSCOPE_CAPTURE_WARMUP=5 "
        "srun --nodes=2 --ntasks-per-node=1 --kill-on-bad-exit=1 --export=ALL "
        "nsys profile --trace=cuda,nvtx --sample=none --cpuctxsw=none --cuda-graph-trace=node "
        "--capture-range=cudaProfilerApi --capture-range-end=stop --kill=none --force-overwrite=false "
        f"'--output={folder}/node%q{{SLURM_NODEID}}.%h' "
        f"python -m torch.distributed.run --nnodes=2 --nproc-per-node=8 --log-dir={folder}/torchrun "
        "--rdzv-backend=c10d --rdzv-endpoint=n01:29500 --rdzv-id=77 train.py --lr '1 2'"
    )
    assert not folder.exists()


def test_a_command_that_is_a_rank_itself(job, capsys):
    assert run(["capture", "run", "--dry-run", "-o", "cap", "--", "python", "train.py"]) == 0
    text = capsys.readouterr().out
    assert "srun --nodes=2 --kill-on-bad-exit=1" in text and "rank%q{SLURM_PROCID}.%h" in text


def test_short_and_small_allocations_are_refused(job, capsys):
    job(run="00:56:00")
    assert run(["capture", "run", "--dry-run", "--", "python", "train.py"]) == 2
    assert "SLURM job 77: have 4 min left, need 10 min" in capsys.readouterr().err
    job()
    options = ["--pp", "2", "--ep", "16", "--layers", "16", "--max-size", "1GB"]
    assert run(["capture", "run", "--dry-run", *options, "--", "python", "train.py"]) == 2
    assert "SLURM job 77: have 2 nodes, need 4" in capsys.readouterr().err
    job(limit="00:15:00", run="00:00:00")  # enough for one backend, not for two
    assert run(["capture", "run", "--dry-run", "--backend", "both", "--", "python", "train.py"]) == 2
    assert "need 20 min" in capsys.readouterr().err


def test_a_job_that_is_gone(job, monkeypatch, capsys):
    monkeypatch.setenv("SLURM_JOB_ID", "78")
    assert run(["capture", "run", "--dry-run", "--", "true"]) == 2
    assert "Invalid job id" in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_on_two_nodes(job, nsys, train, tmp_path, capsys):
    nsys()
    asked = ["capture", "run", "--trigger", "nvtx", "--no-verify", "-o", "cap", "--", "torchrun-stand-in"]
    command = train()
    stand_in = tmp_path / "tools" / "torchrun"
    stand_in.write_text(f'#!/bin/sh\nexec {command[0]} {command[1]} "$@"\n')
    stand_in.chmod(0o755)
    asked[-1] = "torchrun"
    assert run(asked) == 0, capsys.readouterr().err
    looked, ran = (tmp_path / "srun.log").read_text().splitlines()
    assert "capture doctor --here" in looked and "--trigger=nvtx" in looked and "nsys profile" in ran
    names = {p.name for p in (tmp_path / "cap").glob("*.sqlite")}
    assert names == {"node0.host0.sqlite", "node1.host0.sqlite"}
    assert "--nodes=2 --ntasks-per-node=1" in (tmp_path / "srun.log").read_text()


@pytest.mark.slow
def test_a_run_is_refused_where_one_node_lacks_something(job, nsys, script, tmp_path, capsys):
    """Here the second node has an nsys that does not run."""
    nsys()
    script("nsys", (tmp_path / "tools" / "nsys").read_text().replace(
        "import ", "import os\nif os.environ.get('SLURM_NODEID') == '1': raise SystemExit(3)\nimport ", 1))  # fmt: skip
    asked = ["capture", "run", "--trigger", "nvtx", "-o", "cap", "--", "torchrun", "train.py"]
    assert run(asked) == 2
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1 and "nsys --version fails, need nsys 2023.1 or newer" in said
    assert (tmp_path / "srun.log").read_text().count("\n") == 1  # nothing but the look was started
    assert not [p for p in tmp_path.iterdir() if "cap" in p.name]


def test_a_node_that_does_not_answer(job, script, tmp_path, capsys):
    script("srun", "#!/bin/sh\necho 'srun: error: n02: task 1: Exited with exit code 127' >&2\nexit 1\n")
    assert run(["capture", "run", "--trigger", "nvtx", "-o", "cap", "--", "torchrun", "train.py"]) == 2
    said = capsys.readouterr().err
    assert "have answers of 0 nodes, need 2" in said and "--no-doctor" in said and len(said.splitlines()) == 1


@pytest.mark.slow
def test_doctor_looks_at_every_node(job, nsys, capsys):
    nsys()
    asked = ["capture", "doctor", "--trigger", "nvtx", "--input", "corpus"]
    assert run([*asked, "--format", "json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert [r["check"] for r in answer["rows"]].count("nsys") == 2
    assert {r["status"] for r in answer["rows"] if r["check"] == "input corpus"} == {"missing"}
    assert answer["notes"] == ["SLURM job 77: 2 nodes, 50 min left"]


def test_a_larger_allocation_is_not_taken_whole(job, nsys, tmp_path, monkeypatch, capsys):
    nsys()
    job(nodes=3)
    plan = ["--layers", "16", "--pp", "2", "--ep", "8", "--max-size", "1GB"]
    asked = ["capture", "run", "--dry-run", *plan]
    assert run([*asked, "--", "python", "train.py"]) == 2
    said = capsys.readouterr().err
    assert "SLURM job 77: have 3 nodes, need 2 (16 ranks, 8 on each); give --nodes 2 to take 2 of them" in said
    monkeypatch.chdir(tmp_path)
    before = sorted(p.name for p in tmp_path.iterdir())
    command = [sys.executable, "-c", "open('started', 'w')"]
    assert run(["capture", "run", "--yes", *plan, "-o", "cap", "--", *command]) == 2
    assert capsys.readouterr().err == said  # one line, and nothing was started or left
    assert said.count("\n") == 1 and sorted(p.name for p in tmp_path.iterdir()) == before
    assert run([*asked, "--nodes", "2", "--", "python", "train.py"]) == 0
    assert "srun --nodes=2 " in capsys.readouterr().out
    assert run([*asked, "--nodes", "4", "--", "python", "train.py"]) == 2
    assert "have 3 nodes, need 4 (--nodes)" in capsys.readouterr().err
