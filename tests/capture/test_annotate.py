"""`stepscope.annotate`: exact texts, the right steps, nothing outside a capture, no graph breaks."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import timeit
from collections.abc import Callable
from pathlib import Path

import pytest

from stepscope.model.labels import parse_setup

ROOT = Path(__file__).resolve().parents[2]

RECORD = """
import sys, types
said = []
nvtx = types.ModuleType("nvtx")
nvtx.push_range = lambda text: said.append(text)
nvtx.pop_range = lambda: said.append("pop")
nvtx.start_range = lambda text: said.append("START " + text)
nvtx.end_range = lambda opened: said.append("END")
sys.modules["nvtx"] = nvtx
from stepscope import annotate
"""
NSYS = {
    "STEPSCOPE_CAPTURE_BACKEND": "nsys",
    "STEPSCOPE_CAPTURE_TRIGGER": "nvtx",
    "STEPSCOPE_CAPTURE_WARMUP": "2",
    "STEPSCOPE_CAPTURE_STEPS": "1",
}


def python(code: str, tmp_path: Path, program: str = sys.executable, **env: str) -> str:
    """What a fresh interpreter prints."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("STEPSCOPE_CAPTURE")}
    done = subprocess.run(
        [program, "-c", textwrap.dedent(code)], capture_output=True, text=True, cwd=tmp_path,
        env={**clean, "PYTHONPATH": str(ROOT / "src"), "STEPSCOPE_CAPTURE_OUT": str(tmp_path), **env},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_exact_texts_in_the_profiled_step_alone(tmp_path):
    code = (
        RECORD
        + """
annotate.setup(rank=3, pp=(1, 2), ep=(1, 2), mbs=1, seq=4096, tp=(0, 2), layers=27)
for n in range(100, 104):
    with annotate.step(n):
        with annotate.chunk(forward=(4, 0), backward=(2, 1)): pass
        with annotate.chunk(forward=(4, 0)): pass
        with annotate.chunk(backward=(2, 1)): pass
        with annotate.chunk(): pass
        with annotate.stage(3, 2, "f"): pass
        with annotate.fused(3, 4, "f"): pass
        with annotate.pipeline(): pass
        with annotate.region("prolog_f"): pass
print(*[s for s in said if s != "pop"], sep="\\n")
print(said.count("pop"), said[-2], said[-1])
"""
    )
    lines = python(code, tmp_path, **NSYS).splitlines()
    label = "rank=3; pp=1/2 dp=0/1 cp=0/1 ep=1/2 tp=0/2; mbs=1 seq=4096 layers=27"
    assert lines == [
        "START stepscope.capture",
        label,
        "step 102",
        "forward chunk 4 (phase0) backward chunk 2 (phase1)",
        "forward chunk 4 (phase0)",
        "backward chunk 2 (phase1)",
        "weight chunk",
        "layer03.stage2_f",
        "layer03_stage5_f_layer04_stage1_f",
        "pipeline send/recv",
        "prolog_f",
        "END",
        "10 pop END",
    ]
    setup = parse_setup(label)
    assert setup is not None and setup.rank == 3 and setup.axes["tp"] == (0, 2) and setup.extra["layers"] == "27"


def test_the_plain_label_is_the_trainer_s(tmp_path):
    code = RECORD + "annotate.setup(rank=0, pp=(0, 2), ep=(0, 2), mbs=1, seq=8192)\nprint(annotate._label)"
    assert python(code, tmp_path) == "rank=0; pp=0/2 dp=0/1 cp=0/1 ep=0/2; mbs=1 seq=8192\n"


def test_outside_a_capture_nothing_is_imported_or_written(tmp_path):
    code = """
    import sys
    from stepscope import annotate
    annotate.setup(rank=0, mbs=1, seq=1)
    with annotate.step(0), annotate.stage(1, 1, "f"), annotate.region("x"): pass
    print(*sorted({m.split(".")[0] for m in sys.modules} & {"torch", "polars", "numpy", "nvtx", "click"}))
    """
    assert python(code, tmp_path).strip() == ""
    assert not list(tmp_path.iterdir())


def test_under_an_nsys_started_by_hand_ranges_are_written(tmp_path):
    code = RECORD + "annotate.setup(rank=0, mbs=1, seq=1)\nwith annotate.step(7): pass\nprint(said)"
    assert "step 7" in python(code, tmp_path, NSYS_PROFILING_SESSION_ID="1")
    assert "step 7" not in python(code, tmp_path, NSYS_PROFILING_SESSION_ID="1", STEPSCOPE_ANNOTATE="0")


def test_a_step_that_fails_leaves_no_capture(tmp_path):
    code = (
        RECORD
        + """
try:
    for n in range(4):
        with annotate.step(n):
            if n == 2: raise ValueError
except ValueError:
    pass
print("END" in said)
"""
    )
    assert python(code, tmp_path, **NSYS) == "False\n"
    assert "stopped" not in (tmp_path / "steps" / "rank0.jsonl").read_text()


def test_it_costs_next_to_nothing():
    """Compared with a `with` on an object that does nothing, so that a busy machine slows both."""
    from stepscope import annotate

    nothing = annotate._Nothing()

    def ours() -> None:
        with annotate.stage(3, 2, "f"):
            pass

    def plain() -> None:
        with nothing:
            pass

    def best(function: Callable[[], None]) -> float:
        return min(timeit.repeat(function, number=500, repeat=60))

    assert best(ours) < 4 * best(plain)  # docs/capture.md measured 1.3


@pytest.mark.slow
@pytest.mark.parametrize("capturing", [False, True])
def test_no_graph_breaks_and_no_recompiles(torch_python, tmp_path, capturing):
    code = """
    import torch
    from stepscope import annotate
    annotate.setup(rank=0, mbs=1, seq=1)
    compiles = []

    def backend(graph, inputs):
        compiles.append(graph)
        return graph.forward

    @torch.compile(backend=backend, fullgraph=True)
    def f(x):
        with annotate.stage(3, 2, "f"):
            y = x.sin()
        with annotate.chunk(forward=(1, 0)), annotate.region("x"), annotate.pipeline(), annotate.fused(1, 2, "b"):
            return y.cos() + 1

    x = torch.ones(4)
    for n in range(4):
        with annotate.step(n):
            f(x)
    print(len(compiles))
    """
    env = {**NSYS, "STEPSCOPE_CAPTURE_BACKEND": "torch"} if capturing else {}
    assert python(code, tmp_path, torch_python, **env).splitlines()[-1] == "1"
    assert bool(list(tmp_path.glob("*.gz"))) == capturing
