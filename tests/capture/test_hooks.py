"""Programs that nobody annotated: the right steps, their ranges, nothing left behind, nothing broken."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from forked import Forks, forks, has_module

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "src" / "stepscope" / "hooks" / "site"
PROGRAMS = Path(__file__).parent / "programs"
TORCH = {"STEPSCOPE_CAPTURE_HOOKS": "1", "STEPSCOPE_CAPTURE_BACKEND": "torch", "OMP_NUM_THREADS": "1"}


def python(
    program: str, *arguments: str, cwd: Path, path: str = str(SITE), **env: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program, *arguments], capture_output=True, text=True, cwd=cwd, check=False, timeout=300,
        env=environment(PYTHONPATH=path, STEPSCOPE_CAPTURE_OUT=str(cwd), **env),
    )  # fmt: skip


def environment(**env: str) -> dict[str, str]:
    """Of a program that is captured: nothing of a capture that this process is part of."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("STEPSCOPE_CAPTURE") and k != "PYTHONPATH"}
    return {**clean, "PYTHONPATH": str(SITE), **env}


@pytest.fixture(scope="module")
def hooked(torch_python: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    """Programs in forks of a process whose torch has the hooks."""
    with forks(torch_python, tmp_path_factory.mktemp("forks"), environment(**TORCH)) as running:
        yield running


def ranges(folder: Path) -> list[str]:
    """Our ranges of a torch trace by start, indented by how many of them they lie in."""
    (file,) = folder.glob("*.gz")
    events = [
        e for e in json.loads(gzip.decompress(file.read_bytes()))["traceEvents"] if e.get("cat") == "user_annotation"
    ]
    ours = [e for e in events if "#" not in e["name"] and not e["name"].startswith("rank=")]
    ours.sort(key=lambda e: (e["ts"], -e["dur"]))
    found, ends = [], []
    for e in ours:
        while ends and ends[-1] < e["ts"] + e["dur"]:
            ends.pop()
        found.append(". " * len(ends) + e["name"])
        ends.append(e["ts"] + e["dur"])
    return found


def log(folder: Path) -> dict[str, Any]:
    """What the hooks wrote for the manifest."""
    lines = [json.loads(line) for line in (folder / "steps" / "rank0.jsonl").read_text().splitlines()]
    return {k: v for line in lines for k, v in line.items()}


PARTS = ["forward", "backward", "optimizer"]
MICRO = ["data", "forward", "backward"]
EXPECTED = {
    "accumulation.py": [*MICRO * 4, "optimizer"],
    "gan.py": ["forward", "forward", *PARTS, "forward", *PARTS],
    "gan.py 5": [*["forward", "forward", *PARTS] * 5, "forward", *PARTS],
    "several.py beside": [*PARTS, "optimizer"],
    "several.py groups": [*PARTS, "optimizer", "optimizer"],
    "several.py within": ["forward", "backward", *[". optimizer"] * 4],
    "several.py closure": PARTS,
    "several.py compiled": PARTS,
}


@pytest.mark.slow
@pytest.mark.parametrize("command", EXPECTED)
def test_a_step_and_its_parts(hooked, tmp_path, command):
    program, *arguments = command.split()
    done = hooked.run(str(PROGRAMS / program), *arguments, cwd=tmp_path)
    assert done.returncode == 0 and "no hooks" not in done.stderr, done.stderr
    found = ranges(tmp_path)
    assert found[0].startswith("step ") and found[1:] == [". " + text for text in EXPECTED[command]]
    assert ("compiles 1" in done.stdout) == ("compiled" in command)
    said = log(tmp_path)
    assert said["stopped"] and said["hooks"]["plain_ns"] > 0 and said["hooks"]["profiled_ns"] > 0
    assert said["hooks"]["settings"]["deterministic"] is False and "memory" not in said["hooks"]  # on a CPU
    assert said["label"] == "rank=0; pp=0/1 dp=0/1 cp=0/1 ep=0/1; world=1"


SLEEPS = """
import time, torch
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for n in range(9):
    time.sleep(0.02)
    model(torch.ones(3, 4)).mean().backward()
    optimizer.step()
"""


@pytest.mark.slow
def test_no_step_is_shorter_than_what_it_does(hooked, tmp_path):
    """Also where the hooks learn that a step has ended only after the next."""
    done = hooked.run("-c", SLEEPS, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in (tmp_path / "steps" / "rank0.jsonl").read_text().splitlines()]
    steps = [line["ns"] for line in lines if "step" in line]
    assert len(steps) >= 4 and min(steps) >= 20_000_000


def test_ranks_that_share_a_gpu(tmp_path):
    """Two GPUs for four ranks: each has one that there is, and NCCL takes them for ranks of different hosts."""
    show = "import os; print(os.environ['LOCAL_RANK'], os.environ.get('NCCL_HOSTID'))"
    shared = {**TORCH, "STEPSCOPE_CAPTURE_SHARE_GPU": "2"}
    for rank, expected in enumerate(("0 rank0", "1 rank1", "0 rank2", "1 rank3")):
        at = {"RANK": str(rank), "LOCAL_RANK": str(rank)}
        assert python(sys.executable, "-c", show, cwd=tmp_path, **shared, **at).stdout.strip() == expected
    alone = python(sys.executable, "-c", show, cwd=tmp_path, **TORCH, RANK="3", LOCAL_RANK="3")
    assert alone.stdout.strip() == "3 None"


@pytest.mark.slow
def test_modules(torch_python, tmp_path):
    done = python(
        torch_python, str(PROGRAMS / "several.py"), "plain", cwd=tmp_path, STEPSCOPE_CAPTURE_RANGES="modules", **TORCH
    )
    assert done.returncode == 0, done.stderr
    assert ranges(tmp_path)[1:] == [". forward", ". . 0", ". . 1", ". . 2", ". backward", ". optimizer"]


DEEP = """
import torch
inner = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(8, 8)))
model = torch.nn.Sequential(torch.nn.Linear(8, 8), inner)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for n in range(9):
    model(torch.ones(2, 8)).mean().backward()
    optimizer.step()
"""


@pytest.mark.slow
def test_modules_as_deep_as_asked_for(torch_python, tmp_path):
    done = python(torch_python, "-c", DEEP, cwd=tmp_path, STEPSCOPE_CAPTURE_RANGES="modules=2", **TORCH)
    assert done.returncode == 0, done.stderr
    inside = [". . 0", ". . 1", ". . . 1.0", ". . . 1.1"]  # and not 1.1.0
    assert ranges(tmp_path)[1:] == [". forward", *inside, ". backward", ". optimizer"]


ASKED = """
import torch
model = torch.nn.Linear(4, 4)
torch.compile(model, mode="reduce-overhead", fullgraph=True, dynamic=False)
torch.compile(model, mode="reduce-overhead", fullgraph=True, dynamic=False)
torch.compile(model, backend="eager", disable=True)
@torch.compile(backend="eager")
def doubled(x):
    return 2 * x
model.compile(options={"max_autotune": True})
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for n in range(9):
    doubled(model(torch.ones(3, 4))).mean().backward()
    optimizer.step()
"""


@pytest.mark.slow
def test_what_is_asked_of_torch_compile(hooked, tmp_path):
    """By function, decorator and method, each once; what is disabled is not compiled."""
    done = hooked.run("-c", ASKED, cwd=tmp_path)
    assert done.returncode == 0 and "no hooks" not in done.stderr, done.stderr
    plain = {"dynamic": None, "fullgraph": False, "mode": "default"}
    assert log(tmp_path)["compiled_with"] == [
        {"backend": "inductor", "mode": "reduce-overhead", "dynamic": False, "fullgraph": True},
        {"backend": "eager", **plain},
        {"backend": "inductor", **plain, "options": {"max_autotune": True}},
    ]


@pytest.mark.slow
def test_no_ranges(torch_python, tmp_path):
    done = python(
        torch_python, str(PROGRAMS / "several.py"), "plain", cwd=tmp_path, STEPSCOPE_CAPTURE_RANGES="none", **TORCH
    )
    assert done.returncode == 0, done.stderr
    assert ranges(tmp_path) == [] and log(tmp_path)["stopped"]


@pytest.mark.slow
def test_a_program_that_marks_its_steps_is_left_alone(hooked, tmp_path):
    done = hooked.run(str(PROGRAMS / "several.py"), "marked", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert ranges(tmp_path) == ["step 105"] and "hooks" not in log(tmp_path)


AFTER = """
import runpy, torch
runpy.run_path({program!r})
engine = torch.autograd.Variable._execution_engine
import torch.utils.data.dataloader as d
print(type(engine).__module__, d._BaseDataLoaderIter.__next__.__module__, d.DataLoader.__iter__.__module__)
import sys
optim = sys.modules["torch.optim.optimizer"]
print(len(optim._global_optimizer_pre_hooks), len(optim._global_optimizer_post_hooks))
print(torch.compile.__code__.co_filename.endswith("torch/__init__.py"))
"""


@pytest.mark.slow
def test_what_tells_steps_apart_is_all_that_stays_after_the_capture(hooked, tmp_path):
    """Autograd's engine stays watched, so that steps are timed to the end; all else is as it was."""
    program = AFTER.format(program=str(PROGRAMS / "accumulation.py"))
    done = hooked.run("-c", program, cwd=tmp_path)
    loader = "torch.utils.data.dataloader"
    put_back = [f"stepscope.hooks.ranges {loader} {loader}", "0 0", "True"]
    assert done.stdout.splitlines()[-3:] == put_back, done.stderr


def test_no_torch_is_imported(tmp_path):
    code = "import sys; print(sorted({m.split('.')[0] for m in sys.modules} & {'torch', 'numpy', 'polars', 'click'}))"
    assert python(sys.executable, "-c", code, cwd=tmp_path, **TORCH).stdout == "[]\n"


def test_a_sitecustomize_that_is_there_is_loaded_too(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.theirs = True")
    path = os.pathsep.join((str(SITE), str(tmp_path)))
    code = (
        "import sys, sitecustomize; print(sys.theirs, sitecustomize.__file__, any('site' == p[-4:] for p in sys.path))"
    )
    done = python(sys.executable, "-c", code, cwd=tmp_path, path=path, **TORCH)
    assert done.stdout == f"True {tmp_path / 'sitecustomize.py'} False\n", done.stderr


def test_its_own_folder_is_all_that_becomes_importable(tmp_path):
    """Beside stepscope there may lie packages of another Python."""
    code = "import sys, stepscope.annotate; print([p for p in sys.path if p.endswith('src')], stepscope.__path__)"
    code = f"import runpy; runpy.run_path({str(SITE / 'sitecustomize.py')!r}); {code}"
    done = python(sys.executable, "-S", "-c", code, cwd=tmp_path, **TORCH)
    assert done.stdout == f"[] ['{ROOT / 'src' / 'stepscope'}']\n", done.stderr


@pytest.mark.slow
def test_without_a_pythonpath(torch_python, tmp_path):
    done = python(
        torch_python, "-m", "stepscope.hooks", str(PROGRAMS / "gan.py"), cwd=tmp_path, path=str(ROOT / "src"), **TORCH
    )
    assert done.returncode == 0, done.stderr
    assert ranges(tmp_path)[1:] == [". " + text for text in EXPECTED["gan.py"]]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "module"), [("trainer_hf.py", "transformers"), ("trainer_lightning.py", "lightning")]
)
def test_trainers(torch_python, tmp_path, program, module):
    if not has_module(torch_python, module):
        pytest.skip(f"no {module} in the environment with torch")
    done = python(torch_python, str(PROGRAMS / program), cwd=tmp_path, **TORCH)
    assert done.returncode == 0, done.stderr
    found = ranges(tmp_path)
    assert found[0] == "step 5"
    assert [found.count(". " + part) for part in ("data", *PARTS)] == [2, 2, 2, 1]


OWN = """
import torch
calls = []
class Runtime:
    cudaProfilerStart = staticmethod(lambda: calls.append("start"))
    cudaProfilerStop = staticmethod(lambda: calls.append("stop"))
torch.cuda.cudart = lambda: Runtime
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for n in range(12):
    if n == 3:
        torch.cuda.cudart().cudaProfilerStart()
    model(torch.ones(2, 4)).mean().backward()
    optimizer.step()
    if n == 6:
        torch.cuda.cudart().cudaProfilerStop()
print(calls)
"""


@pytest.mark.slow
def test_a_trainer_that_starts_the_profiler_itself_is_left_to_it(torch_python, tmp_path):
    """As Megatron-LM does with --profile: no second start, and the capture is known to be over."""
    done = python(torch_python, "-c", OWN, cwd=tmp_path, **{**TORCH, "STEPSCOPE_CAPTURE_BACKEND": "nsys"})
    assert done.stdout == "['start', 'stop']\n", done.stderr
    lines = [json.loads(line) for line in (tmp_path / "steps" / "rank0.jsonl").read_text().splitlines()]
    assert lines[-1]["stopped"] and not any(line.get("profiled") for line in lines)
