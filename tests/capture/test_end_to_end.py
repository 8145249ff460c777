"""The reference workload on two CPU ranks (gloo), under a real nsys and torch.profiler: run, verified, analysed."""

from __future__ import annotations

import json
import shutil
import socket
from pathlib import Path

import pytest

import stepscope
from stepscope.capture import manifest
from stepscope.cli.main import run

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).parent / "programs"
SHAPE = ["--pp=2", "--layers=2", "--micro-batches=8", "--width=16", "--hidden=16", "--seq=16", "--steps=4"]


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return str(probe.getsockname()[1])


@pytest.mark.slow
def test_run_verify_analyse(torch_python, tmp_path, monkeypatch, capsys):
    if shutil.which("nsys") is None:
        pytest.skip("no nsys on the PATH")
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("SECRET_TOKEN", "hf_0123456789abcdef")
    monkeypatch.chdir(tmp_path)
    train = str(ROOT / "examples" / "moe_reference" / "train.py")
    options = ["--backend", "both", "--trigger", "nvtx", "--warmup", "3", "--nproc", "2", "--port", free_port()]
    status = run(["capture", "run", *options, "-o", "cap", "--", torch_python, train, *SHAPE])
    said = capsys.readouterr()
    assert status == 0, said.err + said.out
    assert not list(tmp_path.glob(".cap*"))

    for backend in ("nsys", "torch"):
        folder = tmp_path / "cap" / backend
        written = (folder / "manifest.json").read_text()
        assert "hf_0123456789abcdef" not in written
        scenario = json.loads(written)["scenario"]
        assert scenario["mesh"] == {"pp": 2, "dp": 1, "cp": 1, "ep": 1} and scenario["ranks"] == 2
        assert scenario["versions"]["torch"].startswith("2.")
        assert run(["capture", "verify", str(folder), "--format", "json"]) == 0
        checks = {r["check"]: r["status"] for r in json.loads(capsys.readouterr().out)["rows"]}
        assert checks["ranks"] == checks["setup label"] == checks["steps"] == checks["steady state"] == "ok"
        assert checks["kernels"] == "skipped"  # there is no GPU here

        profile = stepscope.open(folder)
        assert profile.setup().rows["pp_size"].to_list() == [2, 2]
        window = profile.window().rows
        assert window["label"].str.contains("forward chunk . .phase0. backward chunk").all()
        assert window["count"].to_list() == [5, 7]  # 8 + 2s − 2·2 + 1
        ranges = set(profile.names.gather(profile.ranges["name"]).to_list())
        assert {"step 3", "pipeline send/recv", "layer00.stage2_f", "layer01.stage3_w", "optimizer"} <= ranges
        assert not {"step 0", "step 2"} & ranges

    both = stepscope.open(tmp_path / "cap")  # the folder above: each rank once, by nsys
    assert both.rank_ids() == [0, 1] and list(both.others) == ["torch.profiler"]
    assert {s.format for s in both.nvtx().sources} == {"nsys-sqlite"}

    a, b = (manifest.read(tmp_path / "cap" / backend) for backend in ("nsys", "torch"))
    assert a is not None and b is not None
    assert {k for k, _, _ in manifest.differences(a, b)} <= {
        "backend", "per", "versions.nsys", "environment.STEPSCOPE_CAPTURE_TRIGGER", "trigger",
    }  # fmt: skip


@pytest.mark.slow
def test_an_unmodified_program(torch_python, tmp_path, monkeypatch, capsys):
    """DDP on two ranks (gloo) under one nsys: nothing of stepscope is in the program or in its environment."""
    if shutil.which("nsys") is None:
        pytest.skip("no nsys on the PATH")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.chdir(tmp_path)
    options = ["--trigger", "nvtx", "--steps", "3", "--nproc", "2", "--port", free_port(), "-o", "cap"]
    status = run(["capture", "run", *options, "--", torch_python, str(PROGRAMS / "ddp.py")])
    said = capsys.readouterr()
    assert status == 0, said.err + said.out
    written = json.loads((tmp_path / "cap" / "manifest.json").read_text())
    assert written["scenario"]["mesh"] == {"pp": 1, "dp": 2, "cp": 1, "ep": 1}
    assert [written["captured"]["hooks"][rank]["optimizers"] for rank in "01"] == [[["AdamW"]]] * 2
    assert [n for n, _, profiled in written["captured"]["spans"]["0"] if profiled] == [3]
    profile = stepscope.open(tmp_path / "cap")
    assert profile.setup().rows["dp_size"].to_list() == [2, 2]
    steps = profile.iterations().rows
    assert steps["label"].to_list() == [f"step {n}" for n in (5, 6, 7)] * 2
    assert {"forward", "backward", "optimizer"} <= set(profile.names.gather(profile.ranges["name"]).to_list())


@pytest.mark.slow
@pytest.mark.parametrize(("trigger", "expected"), [("none", 7), ("nvtx=part 2", 1), ("time=0+60", 7)])
def test_a_program_without_torch(torch_python, tmp_path, monkeypatch, capsys, trigger, expected):
    if shutil.which("nsys") is None:
        pytest.skip("no nsys on the PATH")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "any.py").write_text(
        "import nvtx, time\nfor n in range(7):\n    with nvtx.annotate(f'part {n}'):\n        time.sleep(0.01)\n"
    )
    options = ["--trigger", trigger, "--trace", "nvtx", "-o", "cap", "--no-verify"]
    status = run(["capture", "run", *options, "--", torch_python, "any.py"])
    assert status == 0, capsys.readouterr().err
    profile = stepscope.open(tmp_path / "cap")
    texts = profile.ranges["name"]
    assert profile.names.gather(texts).str.starts_with("part").sum() == expected
    assert json.loads((tmp_path / "cap" / "manifest.json").read_text())["scenario"]["trigger"] == trigger


@pytest.mark.slow
def test_a_program_that_is_over_before_its_time(torch_python, tmp_path, monkeypatch, capsys):
    if shutil.which("nsys") is None:
        pytest.skip("no nsys on the PATH")
    monkeypatch.chdir(tmp_path)
    options = ["--trigger", "time=30+1", "--trace", "nvtx", "-o", "cap", "--no-verify"]
    assert run(["capture", "run", *options, "--", torch_python, "-c", "pass"]) == 2
    assert "the command ended within 30 s" in capsys.readouterr().err


@pytest.mark.slow
def test_what_torch_compile_says_is_collected(torch_python, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    (tmp_path / "any.py").write_text(
        "import torch\nmodel = torch.nn.Linear(4, 4)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n\n"
        "@torch.compile(backend='eager')\ndef loss(x):\n    y = model(x)\n    torch._dynamo.graph_break()\n"
        "    return y.square().mean()\n\n"
        "for n in range(9):\n    loss(torch.ones(3, 4)).backward()\n    optimizer.step()\n"
    )
    status = run(["capture", "run", "--backend", "torch", "--quiet", "-o", "cap", "--", torch_python, "any.py"])
    assert status == 0, capsys.readouterr().err
    capsys.readouterr()
    assert [f.name for f in (tmp_path / "cap" / "compile").iterdir()] == ["rank0.log"]
    assert run(["compile", "--log", "cap", "--by", "reason", "--format", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert row["kind"] == "graph_break" and row["location"].endswith("any.py:8")
    heard = json.loads((tmp_path / "cap" / "manifest.json").read_text())["captured"]["compiled_with"]
    assert heard == [{"backend": "eager", "mode": "default", "dynamic": None, "fullgraph": False}]
    assert stepscope.open(tmp_path / "cap").compile(whole=True).summary["mode"] == "default"
