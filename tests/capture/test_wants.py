"""`--with`: what is wanted arrives, as options of either profiler; what cannot be had is refused with the reason."""

from __future__ import annotations

import gzip
import json
import shlex
import shutil
import sqlite3
import sys
from pathlib import Path

import pytest

from stepscope.cli.main import run

PROGRAMS = Path(__file__).parent / "programs"


@pytest.fixture
def dry(capsys, monkeypatch, tmp_path):
    """The command and the variables of a dry run; or, where it is refused, the line on stderr."""
    monkeypatch.chdir(tmp_path)

    def go(*options: str) -> list[str] | str:
        status = run(["capture", "run", "--dry-run", "-o", "cap", *options, "--", "python", "train.py"])
        said = capsys.readouterr()
        assert not list(tmp_path.glob("*cap*"))
        if status == 0:
            return shlex.split(said.out.splitlines()[-1])
        assert status == 2
        (line,) = said.err.splitlines()
        return line

    return go


@pytest.mark.parametrize(
    ("want", "options"),
    [
        ("stacks", ["--sample=process-tree", "--cudabacktrace=kernel", "--python-backtrace=cuda"]),
        ("memory", ["--cuda-memory-usage=true", "--sample=none"]),
        ("gpu-metrics", ["--gpu-metrics-devices=all"]),
        ("cpu", ["--sample=process-tree", "--cpuctxsw=process-tree"]),
        ("osrt", ["--trace=cuda,nvtx,osrt"]),
        ("python-sampling", ["--python-sampling=true"]),
        ("pytorch", ["STEPSCOPE_CAPTURE_EMIT=ops"]),
        ("shapes", ["STEPSCOPE_CAPTURE_EMIT=shapes"]),
    ],
)
def test_options_of_nsys(dry, nsys, want, options):
    nsys()
    assert set(options) <= set(dry("--with", want))


def test_several_together_and_what_else_there_is(dry, nsys):
    nsys()
    words = dry("--with", "cpu,osrt", "--with", "memory", "--nsys-args", "--stats=true --gpuctxsw=true")
    assert {"--cpuctxsw=process-tree", "--trace=cuda,nvtx,osrt", "--cuda-memory-usage=true"} <= set(words)
    assert words[words.index("--stats=true") + 1] == "--gpuctxsw=true"


def test_keywords_of_torch(dry):
    words = dry(
        "--backend", "torch", "--with", "stacks,shapes,memory,pytorch", "--torch-args", "with_flops,with_modules=false"
    )
    (given,) = (w.partition("=")[2] for w in words if w.startswith("STEPSCOPE_CAPTURE_TORCH="))
    assert json.loads(given) == {
        "with_stack": True, "record_shapes": True, "profile_memory": True, "with_flops": True, "with_modules": False,
    }  # fmt: skip


def test_torchs_cupti_backend(dry, nsys):
    """What torch 2.15 records by it is told to `annotate`; nsys is asked for something else."""
    words = dry("--backend", "torch", "--with", "graph,clocks,pm,shapes")
    (given,) = (w.partition("=")[2] for w in words if w.startswith("STEPSCOPE_CAPTURE_TORCH="))
    assert json.loads(given) == {"cupti_graph": True, "cupti_clocks": True, "cupti_pm": True, "record_shapes": True}
    nsys()
    assert "not nsys; give --with gpu-metrics, or give --backend torch" in dry("--with", "clocks")


def test_refusals(dry, nsys):
    nsys(version="2023.4.4", options="--gpu-metrics-device= --nic-metrics=")
    assert dry("--with", "stacks").startswith("stepscope: --with stacks: nsys 2023.4.4 has no --python-backtrace")
    assert "--gpu-metrics-device=all" in dry("--with", "gpu-metrics")  # its name there
    assert "--with everything: not known; give stacks, shapes" in dry("--with", "everything")
    assert "--with cpu: torch.profiler cannot record it; give --backend nsys" in dry(
        "--backend", "torch", "--with", "cpu"
    )
    assert "only where steps start the profiler" in dry("--trigger", "none", "--with", "shapes")
    assert "--torch-args with_everything: not known" in dry("--torch-args", "with_everything")
    nsys(paranoid=4)
    assert "--with cpu: nsys may not sample the CPU here (perf_event_paranoid 4)" in dry("--with", "cpu")
    nsys(metrics="GPU 0: Insufficient privilege, see https://developer.nvidia.com/ERR_NVGPUCTRPERM")
    assert "--with gpu-metrics: nsys says: GPU 0: Insufficient privilege" in dry("--with", "gpu-metrics")


@pytest.mark.parametrize(
    ("stand_in", "want", "says"),
    [
        (
            {"version": "2023.4.4", "options": ""},
            "gpu-metrics",
            "nsys 2023.4.4 has no --gpu-metrics-devices; take a newer",
        ),
        (
            {"metrics": "GPU 0: Insufficient privilege"},
            "gpu-metrics",
            "Insufficient privilege; run as root, or allow all users",
        ),
        ({"metrics": "NVIDIA GPUs not found"}, "gpu-metrics", "NVIDIA GPUs not found; run it where there is a GPU"),
    ],
)
def test_a_run_that_is_refused_leaves_nothing(nsys, tmp_path, monkeypatch, capsys, stand_in, want, says):
    """Not a dry one: one line, and the command was never started."""
    nsys(**stand_in)
    monkeypatch.chdir(tmp_path)
    before = sorted(p.name for p in tmp_path.iterdir())
    command = [sys.executable, "-c", "open('started', 'w')"]
    assert run(["capture", "run", "--yes", "--no-doctor", "--with", want, "-o", "cap", "--", *command]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"--with {want}: " in line and says in line
    assert sorted(p.name for p in tmp_path.iterdir()) == before


def test_of_two_profilers_each_records_what_it_can(dry, nsys):
    nsys()
    assert isinstance(dry("--backend", "both", "--with", "cpu,stacks"), list)


@pytest.mark.slow
def test_torch_records_it(torch_python, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    wanted = ["--backend", "torch", "--with", "stacks,shapes,memory", "--torch-args", "with_flops"]
    status = run(["capture", "run", *wanted, "-o", "cap", "--", torch_python, str(PROGRAMS / "accumulation.py")])
    assert status == 0, capsys.readouterr()
    (file,) = (tmp_path / "cap").glob("*.gz")
    trace = json.loads(gzip.decompress(file.read_bytes()))
    assert all(trace[key] for key in ("with_stack", "record_shapes", "profile_memory", "with_flops"))
    events = trace["traceEvents"]
    assert any("accumulation.py" in e["name"] for e in events if e.get("cat") == "python_function")
    assert any(e["args"].get("Input Dims") for e in events if e.get("cat") == "cpu_op")
    assert any(e["name"] == "[memory]" for e in events)
    assert json.loads((tmp_path / "cap" / "manifest.json").read_text())["scenario"]["with"] == [
        "stacks",
        "shapes",
        "memory",
    ]


@pytest.mark.slow
def test_nsys_records_it(tmp_path, monkeypatch, capsys):
    if shutil.which("nsys") is None:
        pytest.skip("no nsys on the PATH")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "any.py").write_text("import time\nfor n in range(20):\n    time.sleep(0.01); sum(range(10**5))\n")
    wanted = ["--trigger", "none", "--trace", "nvtx", "--with", "osrt,cpu"]
    status = run(["capture", "run", *wanted, "-o", "cap", "--no-verify", "--", sys.executable, "any.py"])
    said = capsys.readouterr()
    if status == 2 and "may not sample" in said.err:
        pytest.skip("nsys may not sample here")
    assert status == 0, said.err
    with sqlite3.connect(next((tmp_path / "cap").glob("*.sqlite"))) as db:
        count = {t: db.execute(f"SELECT count(*) FROM {t}").fetchone()[0] for t in ("OSRT_API", "SCHED_EVENTS")}
    assert count["OSRT_API"] >= 20 and count["SCHED_EVENTS"] > 0
    assert run(["stats", "cap", "--report", "osrt_sum"]) == 0
