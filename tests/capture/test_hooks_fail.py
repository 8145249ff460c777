"""Nothing that fails in our hooks reaches the program: they switch themselves off, say one line, and it trains on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from forked import Forks, forks
from test_hooks import SITE, TORCH, python
from test_hooks import environment as clean

from stepscope.capture import environment, watch
from stepscope.capture.spec import Spec

#: What hooks call in the course of a capture, from the first optimizer step to the end: each is made to fail in turn.
THROWN = (
    "annotate.recorder:Recorder.begin", "annotate.recorder:Recorder.end", "annotate.recorder:Recorder.log",
    "annotate.recorder:Recorder.end_span", "annotate.recorder:Recorder._start", "annotate.recorder:Recorder._stop",
    "annotate.recorder:Recorder._export", "annotate.recorder:torch_profiler", "annotate.recorder:TorchEmitter",
    "annotate.stretches:Stretches.begun", "annotate.stretches:Stretches.ended", "annotate.stretches:Stretches.goes_on",
    "annotate.profilers:TorchEmitter.push", "annotate.profilers:TorchEmitter.pop",
    "hooks.cycle:Cycle.backward", "hooks.cycle:Cycle.stepped", "hooks.compiling:settings", "hooks.driver:facts",
    "hooks.driver:label_of", "hooks.driver:hooked_optimizers", "hooks.driver:common_store",
    "hooks.driver:Driver._stepped", "hooks.driver:Driver._next_step", "hooks.driver:Driver._report",
    "hooks.ranges:upper_modules", "hooks.ranges:Ranges.watch", "hooks.ranges:Ranges.watch_backward",
    "hooks.ranges:Ranges._watch_data", "hooks.ranges:Ranges._watch_optimizers", "hooks.ranges:Ranges._on_module",
    "hooks.ranges:Ranges.settle", "hooks.ranges:Ranges.unwatch",
)  # fmt: skip

#: Each case trains in a fork.
PROGRAM = """
import importlib, sys
import torch

case = {case!r}

def throw(*args, **options):
    raise RuntimeError("thrown")

def train():
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
    if "compiling" in case:  # it imports much
        torch.compile(model, backend="eager", mode="default")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    data = torch.utils.data.DataLoader(torch.ones(14, 4))
    for batch in data:
        loss = model(batch).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return len(losses)

file, _, name = case.partition(":")
owner = importlib.import_module("stepscope." + file)
*path, last = name.split(".")
for part in path:
    owner = getattr(owner, part)
if not hasattr(owner, last):
    sys.exit(3)
setattr(owner, last, throw)
print(train())
"""


@pytest.fixture(scope="module")
def hooked(torch_python: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    """torch is imported once, with the hooks in it."""
    settings = {"STEPSCOPE_CAPTURE_WARMUP": "2", "STEPSCOPE_CAPTURE_STEPS": "2"}
    with forks(torch_python, tmp_path_factory.mktemp("forks"), clean(**TORCH, **settings)) as running:
        yield running


#: The first part is quick enough for every run.
PARTS = [pytest.param(THROWN[i::7], marks=[] if i == 0 else pytest.mark.slow, id=str(i)) for i in range(7)]


@pytest.mark.parametrize("thrown", PARTS)
def test_a_failure_in_any_hook_leaves_training_alone(hooked: Forks, tmp_path: Path, thrown: tuple[str, ...]) -> None:
    for case in thrown:
        folder = tmp_path / case
        folder.mkdir()
        done = hooked.run("-c", PROGRAM.format(case=case), cwd=folder)
        assert (done.returncode, done.stdout) == (0, "14\n"), (case, done.stderr)
        said = [line for line in done.stderr.splitlines() if line.startswith("stepscope:")]
        expected = "stepscope: the capture failed and is switched off (RuntimeError: thrown); the program goes on"
        assert len(said) == 1 and said[0].startswith(expected), (case, said)


NVTX = """
import torch
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for n in range(14):
    model(torch.ones(3, 4)).mean().backward()
    optimizer.step()
print("trained")
"""


def test_without_the_package_that_a_trigger_needs(torch_python: str, tmp_path: Path) -> None:
    (tmp_path / "nvtx.py").write_text("raise ModuleNotFoundError(\"No module named 'nvtx'\", name='nvtx')\n")
    env = {**TORCH, "STEPSCOPE_CAPTURE_BACKEND": "nsys", "STEPSCOPE_CAPTURE_TRIGGER": "nvtx"}
    done = python(torch_python, "-c", NVTX, cwd=tmp_path, path=f"{SITE}:{tmp_path}", **env)
    assert (done.returncode, done.stdout) == (0, "trained\n"), done.stderr
    assert "No module named 'nvtx'); the program goes on without it" in done.stderr
    assert watch.read(tmp_path).failed == "ModuleNotFoundError: No module named 'nvtx' (rank 0)"


@pytest.mark.parametrize(
    ("trigger", "cuda", "needed"),
    [("nvtx", True, "to start the capture"), ("cuda", False, "to write ranges without a GPU"), ("cuda", True, None)],
)
def test_the_doctor_asks_for_what_a_trigger_needs(monkeypatch, tmp_path, trigger, cuda, needed):
    answer = {"python": "3.12", "nvtx": False, "torch": "2.8", "cuda": cuda, "hooks": True}
    done = type("Done", (), {"stdout": json.dumps(answer)})
    monkeypatch.setattr(environment.subprocess, "run", lambda *_, **__: done)
    spec = Spec(("python", "train.py"), tmp_path, ("nsys",), trigger=trigger)
    checks = {check.check: check for check in environment.python("python3", spec)}
    if needed is None:
        assert "nvtx package" not in checks
    else:
        assert checks["nvtx package"].status == "missing" and needed in checks["nvtx package"].needed
