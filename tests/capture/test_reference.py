"""The reference workload computes what it says: its staged backward gives the gradients of plain autograd."""

from __future__ import annotations

import os
import subprocess
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "examples" / "moe_reference"

CODE = """
import os, torch
os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="{port}")
from mesh import start
from faults import Faults
from pipeline import Pipeline
from torch.nn import functional as F

mesh = start(1, 1, 1, False)
torch.manual_seed(0)
config = dict(layers=3, width=16, hidden=24, heads=2, experts=2, seq=8, vocabulary=32)
pipe = Pipeline(mesh, Faults([], 0, 1, 1, 1), config)
batches = [(torch.randint(32, (8,)), torch.randint(32, (8,))) for _ in range(4)]
pipe.step(batches)
staged = [p.grad.clone() for p in pipe.parameters()]
for p in pipe.parameters():
    p.grad = None
for tokens, target in batches:
    x = pipe.embedding(tokens)
    for block in pipe.blocks:
        residual = block.attend(x)
        normed = block.norm2(residual)
        scores = block.router(normed)
        order = torch.argsort(scores.argmax(-1), stable=True)
        parts = torch.tensor_split(normed[order], block.up.shape[0])
        out = torch.cat([F.gelu(p @ block.up[e]) @ block.down[e] for e, p in enumerate(parts)])
        x = residual.index_add(0, order, out * torch.sigmoid(scores[order, 0])[:, None])
    F.cross_entropy(pipe.head(x).float(), target).backward()
for a, p in zip(staged, pipe.parameters(), strict=True):
    torch.testing.assert_close(a, p.grad, rtol=1e-4, atol=1e-6)
print("equal", len(staged))
"""


def python(torch_python: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{REFERENCE}", "OMP_NUM_THREADS": "1"}
    return subprocess.run([torch_python, *arguments], capture_output=True, text=True, env=env, check=False, timeout=300)


def free_port() -> str:
    import socket

    with socket.socket() as probe:
        probe.bind(("", 0))
        return str(probe.getsockname()[1])


@pytest.mark.slow
def test_gradients(torch_python):
    done = python(torch_python, "-c", textwrap.dedent(CODE.replace("{port}", free_port())))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("equal ")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("clock:node=0,offset_us=5", "has the clock of its machine"),
        ("nothing", "no fault 'nothing'"),
        ("imbalance:rank=0", "no experts to balance with ep = 1"),
    ],
)
def test_faults_that_it_cannot_have(torch_python, tmp_path, fault, says):
    command = ["-m", "torch.distributed.run", "--nproc-per-node", "1", "--master-port", free_port()]
    command += ["--log-dir", str(tmp_path)]
    done = python(torch_python, *command, str(REFERENCE / "train.py"), "--steps", "1", "--fault", fault)
    assert done.returncode == 1 and says in done.stderr
