"""Small programs on one GPU, each with a fault and without: timed without a profiler, and captured.

    python jobs.py time JOB OUT.json              all variants in turn, in blocks
    python jobs.py torch JOB VARIANT OUT.json.gz  a few steps by torch.profiler
    python jobs.py run JOB VARIANT FOLDER         a few steps between cudaProfilerStart and Stop, for nsys
    python jobs.py list

Both captures time steps before they begin, for a manifest.
Nothing of stepscope is used: the ranges are `step N` and `data`, by torch.cuda.nvtx. measure_h200.sh calls it.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

BLOCKS, PER_BLOCK, WARM_UP, CAPTURED = 12, 10, 6, 5
_GPU = torch.device("cuda")


class Block(nn.Module):
    """One layer of a transformer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.heads = width // 64
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, w = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, w))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Model(nn.Module):
    """A language model; `between` is called with the activations after every layer."""

    def __init__(self, width: int, layers: int, vocabulary: int = 8192) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.head = nn.Linear(width, vocabulary)
        self.between: Callable[[torch.Tensor], None] = lambda x: None

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens[:, :-1])
        for block in self.blocks:
            x = block(x)
            self.between(x)
        return F.cross_entropy(self.head(x).flatten(0, 1).float(), tokens[:, 1:].flatten())


class Texts(Dataset):  # type: ignore[type-arg]
    """Random tokens; an item takes its time."""

    def __init__(self, seq: int, sleep_s: float) -> None:
        self.seq, self.sleep_s = seq, sleep_s
        self.tokens = torch.randint(8192, (64, seq + 1))

    def __len__(self) -> int:
        return 1 << 30

    def __getitem__(self, i: int) -> torch.Tensor:
        if self.sleep_s:
            time.sleep(self.sleep_s)
        return self.tokens[i % 64]


@contextlib.contextmanager
def region(name: str) -> Iterator[None]:
    torch.cuda.nvtx.range_push(name)
    try:
        yield
    finally:
        torch.cuda.nvtx.range_pop()


def trainer(
    width: int = 1024,
    layers: int = 8,
    batch: int = 8,
    seq: int = 1024,
    *,
    accumulate: int = 1,
    precision: str = "bf16",
    sleep_s: float = 0.0,
    between: Callable[[torch.Tensor], None] | None = None,
    **optimizer: bool,
) -> Callable[[], None]:
    """A training step."""
    model = Model(width, layers).to(_GPU)
    if between is not None:
        model.between = between
    adam = torch.optim.AdamW(model.parameters(), lr=1e-4, **(optimizer or {"fused": True}))
    batches = iter(DataLoader(Texts(seq, sleep_s), batch_size=batch))

    def step() -> None:
        torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
        for _ in range(accumulate):
            with region("data"):
                tokens = next(batches).to(_GPU)
            with torch.autocast("cuda", torch.bfloat16, enabled=precision == "bf16"):
                loss = model(tokens)
            loss.backward()
        adam.step()
        adam.zero_grad(set_to_none=True)

    return step


def graphed(**shape: int) -> Callable[[], None]:
    """The same step as `trainer`, its kernels launched as one CUDA graph."""
    model = Model(shape["width"], shape["layers"]).to(_GPU)
    adam = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True, capturable=True)
    batches = iter(DataLoader(Texts(shape["seq"], 0.0), batch_size=shape["batch"]))
    tokens = next(batches).to(_GPU)

    def body() -> None:
        with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
            loss = model(tokens)
        loss.backward()
        adam.step()
        adam.zero_grad(set_to_none=False)

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            body()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        body()

    def step() -> None:
        with region("data"):
            tokens.copy_(next(batches))
        graph.replay()

    return step


def forward_only(offloaded: bool) -> Callable[[], None]:
    """Inference over layers whose weights lie in the host's memory, or on the GPU."""
    width, layers = 4096, 12
    with torch.device("meta"):
        blank = Block(width)
    blank = blank.to_empty(device=_GPU).to(torch.bfloat16)
    weights = [{n: torch.randn_like(p) * 0.01 for n, p in blank.named_parameters()} for _ in range(layers)]
    if offloaded:
        weights = [{n: p.cpu().pin_memory() for n, p in layer.items()} for layer in weights]
    x = torch.randn(4, 2048, width, device=_GPU, dtype=torch.bfloat16)

    @torch.no_grad()
    def step() -> None:
        y = x
        for layer in weights:
            here = {n: p.to(_GPU, non_blocking=True) for n, p in layer.items()} if offloaded else layer
            y = torch.func.functional_call(blank, here, (y,))

    return step


def _item(x: torch.Tensor) -> None:
    kept.append(x.detach().abs().max().item())
    kept.clear()


def _no_item(x: torch.Tensor) -> None:
    kept.append(x.detach().abs().max())
    kept.clear()


kept: list[Any] = []
_SMALL = {"width": 512, "layers": 12, "batch": 4, "seq": 256}
#: job -> its variants; the first has the fault, the others are what could be done about it
JOBS: dict[str, dict[str, Callable[[], Callable[[], None]]]] = {
    "fp32": {
        "fault": lambda: trainer(precision="fp32"),
        "tf32": lambda: trainer(precision="tf32"),
        "bf16": lambda: trainer(precision="bf16"),
    },
    "input": {
        "fault": lambda: trainer(accumulate=4, sleep_s=0.002),
        "healthy": lambda: trainer(accumulate=4),
    },
    "launches": {
        "fault": lambda: trainer(**_SMALL),
        "graph": lambda: graphed(**_SMALL),
    },
    "item": {
        "fault": lambda: trainer(layers=16, batch=4, seq=512, between=_item),
        "healthy": lambda: trainer(layers=16, batch=4, seq=512, between=_no_item),
    },
    "item-large": {  # the host is ahead of the GPU, unless it waits
        "fault": lambda: trainer(width=2048, layers=12, between=_item),
        "healthy": lambda: trainer(width=2048, layers=12, between=_no_item),
    },
    "offload": {
        "fault": lambda: forward_only(True),
        "healthy": lambda: forward_only(False),
    },
    "alloc": {
        "fault": lambda: trainer(between=lambda x: torch.cuda.empty_cache()),
        "healthy": lambda: trainer(),
    },
    "optimizer": {
        "fault": lambda: trainer(layers=16, batch=4, seq=512, foreach=False, fused=False),
        "healthy": lambda: trainer(layers=16, batch=4, seq=512),
    },
}


def block(step: Callable[[], object]) -> float:
    """The mean of some steps in a row, milliseconds."""
    step()
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(PER_BLOCK):
        step()
    torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - began) / PER_BLOCK


def timed(job: str, out: Path) -> None:
    """Steps of all variants, milliseconds: a mean for each block, blocks in turn."""
    steps = {name: make() for name, make in JOBS[job].items()}
    for step in steps.values():
        for _ in range(WARM_UP):
            step()
    found: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(BLOCKS):
        for name, step in steps.items():
            found[name].append(block(step))
    out.write_text(json.dumps({job: found}))
    print(job, {name: f"{sum(x) / len(x):.2f}" for name, x in found.items()}, flush=True)


def unprofiled(step: Callable[[], object], backend: str, out: Path) -> None:
    """Times steps before a profiler is at work, and writes them down as the manifest of a capture has them."""
    for _ in range(WARM_UP):
        step()
    lengths = [round(1e6 * block(step)) for _ in range(BLOCKS)]
    manifest = {
        "schema": "stepscope-capture/1",
        "scenario": {"backend": backend, "ranks": 1, "steps": CAPTURED},
        "captured": {"unprofiled_step_ns": lengths},
    }
    out.write_text(json.dumps(manifest, indent=1) + "\n")


def captured_by_torch(job: str, variant: str, out: Path) -> None:
    step = JOBS[job][variant]()
    unprofiled(step, "torch", out.with_name(f"{job}-{variant}.torch.manifest.json"))
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    schedule = torch.profiler.schedule(wait=WARM_UP, warmup=2, active=CAPTURED, repeat=1)
    with torch.profiler.profile(activities=activities, schedule=schedule) as profiler:
        for _ in range(WARM_UP + 2 + CAPTURED):
            step()
            profiler.step()
        torch.cuda.synchronize()
    profiler.export_chrome_trace(str(out))


def captured_by_nsys(job: str, variant: str, folder: Path) -> None:
    step = JOBS[job][variant]()
    unprofiled(step, "nsys", folder / f"{job}-{variant}.nsys.manifest.json")
    torch.cuda.cudart().cudaProfilerStart()
    for n in range(CAPTURED):
        with region(f"step {n}"):
            step()
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStop()


def main(given: list[str]) -> int:
    match given:
        case ["list"]:
            print(*(f"{job}:{variant}" for job, variants in JOBS.items() for variant in variants))
        case ["time", job, out]:
            timed(job, Path(out))
        case ["torch", job, variant, out]:
            captured_by_torch(job, variant, Path(out))
        case ["run", job, variant, folder]:
            captured_by_nsys(job, variant, Path(folder))
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
