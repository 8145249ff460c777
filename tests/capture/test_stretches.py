"""`capture run --every N`: short stretches of a long run, and the time of every step of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stepscope import api
from stepscope.annotate.recorder import Recorder, Settings
from stepscope.annotate.stretches import Stretches
from stepscope.cli.main import run
from stepscope.sources.open import find_profiles


def recorded(manifest: Path) -> list[int]:
    """Which steps were under the profiler, by the manifest, which has all of them."""
    steps = json.loads(manifest.read_text())["captured"]["step_ns"]["0"]
    return [k for k, (_, profiled) in enumerate(steps) if profiled]


def test_stretches_of_a_long_run(nsys, train, tmp_path, monkeypatch, capsys):
    """Two steps after five, and again every 20: each a folder, and every step of the program in the manifest."""
    nsys()
    monkeypatch.chdir(tmp_path)
    options = ["--trigger", "nvtx", "--no-verify", "--every", "20", "--steps", "2", "-o", "cap"]
    assert run(["capture", "run", *options, "--", *train(steps=60)]) == 0, capsys.readouterr().err
    folder = tmp_path / "cap"
    names = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}
    each = {
        f"stretch-{k}/{name}"
        for k in (1, 2, 3)
        for name in ("node0.host0.nsys-rep", "node0.host0.sqlite", "manifest.json")
    }
    assert names == each | {"manifest.json", "log.txt", "steps/rank0.jsonl"}
    assert (
        recorded(folder / "manifest.json") == [5, 6, 25, 26, 45, 46] == recorded(folder / "stretch-2" / "manifest.json")
    )
    content = json.loads((folder / "manifest.json").read_text())
    assert len(content["captured"]["step_ns"]["0"]) == 60 == len(content["captured"]["step_began_ns"]["0"])
    assert content["scenario"]["every"] == 20
    assert "6 steps on 1 rank" in capsys.readouterr().out


def test_every_step_is_a_line_of_the_manifest(nsys, train, tmp_path, monkeypatch):
    nsys()
    monkeypatch.chdir(tmp_path)
    assert run(["capture", "run", "--trigger", "nvtx", "--no-verify", "-o", "cap", "--", *train(steps=30)]) == 0
    text = (tmp_path / "cap" / "manifest.json").read_text()
    assert recorded(tmp_path / "cap" / "manifest.json") == [5]
    assert sum(line.strip().rstrip(",").endswith(("true]", "false]")) for line in text.splitlines()) == 30


@pytest.mark.parametrize(("every", "steps", "says"), [(3, 2, "--every 4"), (-1, 1, "--every 3")])
def test_stretches_that_run_into_each_other(nsys, train, tmp_path, monkeypatch, capsys, every, steps, says):
    nsys()
    monkeypatch.chdir(tmp_path)
    options = ["--trigger", "nvtx", "--every", str(every), "--steps", str(steps)]
    assert run(["capture", "run", *options, "--", *train()]) == 2
    assert says in capsys.readouterr().err


def test_the_budget_is_of_all_stretches(tmp_path):
    """30 bytes a stretch, and 100 in all: three fit, a fourth does not."""
    stretches = Stretches(5, 20, 100)
    for k in range(3):
        assert stretches.goes_on(stretches.next - 1, tmp_path, 0)
        stretches.begun(stretches.next)
        stretches.ended()
        (tmp_path / f"rank0.host.{k + 1}.pt.trace.json.gz").write_bytes(b"x" * 30)
    assert stretches.next == 65
    assert stretches.goes_on(63, tmp_path, 0), "it is decided the step before, not earlier"
    assert not stretches.goes_on(64, tmp_path, 0)


def test_over_the_budget_steps_are_timed_to_the_end(tmp_path, monkeypatch):
    """A recorder that may record nothing more."""
    monkeypatch.setattr(Stretches, "_fits", lambda *_: False)
    recorder = Recorder(Settings("none", 2, 1, tmp_path, every=4, budget=1))
    for n in range(20):
        recorder.begin(n, None)
        recorder.end(n)
    assert recorder._file is not None
    recorder._file.close()
    lines = [json.loads(line) for line in (tmp_path / "steps" / "rank0.jsonl").read_text().splitlines()]
    assert [line["profiled"] for line in lines if "ns" in line] == [n == 2 for n in range(20)]
    assert [line["more"] for line in lines if "stopped" in line] == [True, False]


def test_a_folder_of_stretches_is_asked_about_its_middle(tmp_path):
    for k in (1, 2, 10):
        (tmp_path / f"stretch-{k}").mkdir()
        lines = [json.dumps({"step": n, "ns": 10**6}) for n in range(k * 100, k * 100 + 5)]
        (tmp_path / f"stretch-{k}" / "rank0.jsonl").write_text("\n".join(lines))
    profile = api.open(tmp_path, cache=False)
    assert [path.parent.name for path in profile.paths] == ["stretch-2"]
    assert [note.code for note in profile.notes] == ["one-stretch-of-several"]
    assert [path.parent.name for path, _ in find_profiles([tmp_path], all_stretches=True)] == [
        "stretch-1",
        "stretch-2",
        "stretch-10",
    ]
    assert not api.open(tmp_path / "stretch-1", cache=False).notes


LOOP = """
import time, torch
torch.set_num_threads(1)
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for n in range(40):
    optimizer.zero_grad(); model(torch.randn(4, 8)).sum().backward(); optimizer.step()
    if n % 10 == 9:
        time.sleep(0.5)
"""


@pytest.mark.slow
def test_an_unmodified_program_by_torch(torch_python, tmp_path, monkeypatch, capsys):
    """torch.profiler on the CPU: every 12 steps two; a pause every ten steps that no stretch holds is timed."""
    (tmp_path / "loop.py").write_text(LOOP)
    monkeypatch.chdir(tmp_path)
    options = ["--backend", "torch", "--no-doctor", "--no-verify", "--every", "12", "--steps", "2", "-o", "cap"]
    assert run(["capture", "run", *options, "--", str(torch_python), "loop.py"]) == 0, capsys.readouterr().err
    assert len(list((tmp_path / "cap").glob("stretch-*/*.pt.trace.json.gz"))) == 3
    content = json.loads((tmp_path / "cap" / "manifest.json").read_text())
    steps = content["captured"]["step_ns"]["0"]
    assert len(steps) >= 39
    paused = [k for k, (ns, _) in enumerate(steps) if ns >= 500_000_000 and k > 5]
    assert [k - paused[0] for k in paused] == [0, 10, 20]
    first = [k for k, (_, profiled) in enumerate(steps) if profiled]
    assert [k - first[0] for k in first] == [0, 1, 12, 13, 24, 25]
    rows = api.open(tmp_path / "cap" / "stretch-2", cache=False).iterations().rows
    assert rows["label"].to_list()[0].startswith("ProfilerStep#") and rows.height == 2
