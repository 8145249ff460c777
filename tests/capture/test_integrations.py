"""Frameworks: where a rank stands on its mesh, by those who know; callbacks; none imported unless used."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import types
from pathlib import Path

import pytest
from forked import has_module

from stepscope.integrations import mesh

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "src" / "stepscope" / "hooks" / "site"
TORCH = {"STEPSCOPE_CAPTURE_HOOKS": "1", "STEPSCOPE_CAPTURE_BACKEND": "none", "OMP_NUM_THREADS": "1"}


def python(program: str, code: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("STEPSCOPE_CAPTURE") and k != "PYTHONPATH"}
    return subprocess.run(
        [program, "-c", textwrap.dedent(code)], capture_output=True, text=True, cwd=cwd, check=False, timeout=300,
        env={**clean, "PYTHONPATH": str(SITE), "STEPSCOPE_CAPTURE_OUT": str(cwd), **env},
    )  # fmt: skip


def test_none_is_imported_unless_used():
    code = (
        "import sys, stepscope.hooks.driver; print([m for m in sys.modules if m.startswith('stepscope.integrations.')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )  # fmt: skip
    assert done.stdout == "['stepscope.integrations.mesh']\n"


def test_megatron_knows(monkeypatch):
    state = types.ModuleType("megatron.core.parallel_state")
    ranks = {"pipeline_model_parallel": (1, 2), "data_parallel": (0, 2), "tensor_model_parallel": (3, 4)}
    for name, (rank, size) in ranks.items():
        setattr(state, f"get_{name}_rank", lambda rank=rank: rank)
        setattr(state, f"get_{name}_world_size", lambda size=size: size)
    state.model_parallel_is_initialized = lambda: True
    monkeypatch.setitem(sys.modules, "megatron.core.parallel_state", state)
    assert mesh.places(None, 16) == {"pp": (1, 2), "dp": (0, 2), "tp": (3, 4)}


def test_deepspeed_knows_what_it_knows(monkeypatch):
    groups = types.ModuleType("deepspeed.utils.groups")
    groups._get_data_parallel_rank, groups._get_data_parallel_world_size = lambda: 5, lambda: 8
    groups._get_sequence_parallel_rank = lambda: 1 / 0
    monkeypatch.setitem(sys.modules, "deepspeed.utils.groups", groups)
    assert mesh.places(None, 8) == {"dp": (5, 8)}


#: A stand-in for the framework, which says something else than we expect, and the program's trainer that calls us.
_STRANGE = """
import inspect, sys, types
for name in {modules!r}:
    sys.modules[name] = types.ModuleType(name)
sys.modules[{modules!r}[-1]].{base} = object
sys.modules["torch"] = types.SimpleNamespace()
from stepscope.integrations.{file} import StepscopeCallback
strange, callback = types.SimpleNamespace(world_size="all of them"), StepscopeCallback()
for hook in [getattr(callback, name) for name in vars(StepscopeCallback) if name.startswith("on_")]:
    given = [p for p in inspect.signature(hook).parameters.values() if p.kind is not p.VAR_KEYWORD]
    hook(*[strange] * len(given))
print("trained")
"""


@pytest.mark.parametrize(
    ("file", "modules", "base"),
    [
        ("transformers", ["transformers"], "TrainerCallback"),
        ("lightning", ["lightning", "lightning.pytorch"], "Callback"),
    ],
)
def test_what_fails_in_a_callback_leaves_training_alone(tmp_path, file, modules, base):
    code = _STRANGE.format(file=file, modules=modules, base=base)
    done = python(sys.executable, code, tmp_path, PYTHONPATH=str(ROOT / "src"))
    assert (done.returncode, done.stdout) == (0, "trained\n"), done.stderr
    assert done.stderr.count("switched off (ValueError: ") == 1


@pytest.mark.slow
def test_a_device_mesh_of_the_whole_world(torch_python, tmp_path):
    """As torchtitan and accelerate make it: replicas and shards are one axis of the label."""
    code = """
    import torch, torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore
    dist.init_process_group("fake", store=FakeStore(), rank=5, world_size=16)
    from torch.distributed.device_mesh import init_device_mesh
    mesh = init_device_mesh("cpu", (2, 2, 2, 2), mesh_dim_names=("pp", "dp_replicate", "dp_shard", "tp"))
    from stepscope.integrations.mesh import places
    print(places(torch, 16))
    """
    done = python(torch_python, code, tmp_path, **TORCH)
    assert done.stdout.strip() == "{'pp': (0, 2), 'tp': (1, 2), 'dp': (2, 4)}", done.stderr


CALLBACKS = {
    "transformers": """
    import sys, runpy
    import transformers
    from stepscope.integrations.transformers import StepscopeCallback
    plain = transformers.Trainer.__init__
    transformers.Trainer.__init__ = lambda self, *a, **k: plain(self, *a, **{**k, "callbacks": [StepscopeCallback()]})
    sys.argv = ["train"]
    runpy.run_path({program!r})
    """,
    "lightning": """
    import sys, runpy
    import lightning.pytorch as pl
    from stepscope.integrations.lightning import StepscopeCallback
    plain = pl.Trainer.__init__
    pl.Trainer.__init__ = lambda self, *a, **k: plain(self, *a, **{**k, "callbacks": [StepscopeCallback()]})
    sys.argv = ["train"]
    runpy.run_path({program!r})
    """,
}


@pytest.mark.slow
@pytest.mark.parametrize(("module", "label"), [("transformers", "mbs=2 seq=32"), ("lightning", "mbs=0 seq=0")])
def test_callbacks(torch_python, tmp_path, module, label):
    if not has_module(torch_python, module):
        pytest.skip(f"no {module} in the environment with torch")
    name = {"transformers": "trainer_hf.py", "lightning": "trainer_lightning.py"}[module]
    code = CALLBACKS[module].replace("{program!r}", repr(str(Path(__file__).parent / "programs" / name)))
    done = python(torch_python, code, tmp_path, **TORCH)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in (tmp_path / "steps" / "rank0.jsonl").read_text().splitlines()]
    assert lines[0]["about"]["label"].endswith(label)
    assert [line["step"] for line in lines if "step" in line] == list(range(9))  # its own count, and no other
    assert not any("hooks" in line for line in lines)


@pytest.mark.slow
def test_a_program_that_runs_torch_profiler_itself(torch_python, tmp_path, monkeypatch, capsys):
    from stepscope.cli.main import run

    monkeypatch.chdir(tmp_path)
    (tmp_path / "any.py").write_text(
        "import torch\nmodel = torch.nn.Linear(4, 4)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "with torch.profiler.profile():\n    for n in range(9):\n        model(torch.ones(3, 4)).mean().backward()\n"
        "        optimizer.step()\n"
    )
    assert run(["capture", "run", "--backend", "torch", "--quiet", "-o", "cap", "--", torch_python, "any.py"]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert "the program runs torch.profiler itself, and two cannot record at once" in said and "--backend nsys" in said
