"""Five small models, a training step of each: what tests/data/ncu/models was measured of.

Their FLOPs by the shapes that torch.profiler recorded are held against what Nsight Compute counted (test_mfu.py). With
`--trace FOLDER` a trace of each is written there; without it, the steps lie between cudaProfilerStart and -Stop, and in
a range of the model's name, for ncu. `--small` fits a CPU.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda" if GPU else "cpu")


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, s, w = x.shape
        q, k, v = (t.view(b, s, self.heads, -1).transpose(1, 2) for t in self.qkv(self.norms[0](x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, s, w))
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


class Experts(nn.Module):
    """Eight experts as one batched product: every one has as many tokens."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.router = nn.Linear(width, 8)
        self.up = nn.Parameter(torch.randn(8, width, 2 * width) / width**0.5)
        self.down = nn.Parameter(torch.randn(8, 2 * width, width) / width**0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = self.router(x).softmax(-1).mean(-1, keepdim=True)
        y = torch.bmm(F.silu(torch.bmm((x * weight).view(8, -1, x.shape[-1]), self.up)), self.down)
        return y.reshape(x.shape)


def convolutions(width: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs, stride in ((width, width, 1), (width, 2 * width, 2), (2 * width, 2 * width, 1)):
        conv = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        layers += [conv, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())


def models(small: bool) -> dict[str, tuple[Callable[[], nn.Module], Callable[[], torch.Tensor], str]]:
    """By name: the model, a batch for it, and the numbers that it computes with."""
    w, tokens, size, batch = (64, 32, 8, 2) if small else (1024, 1024, 64, 32)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, device=DEVICE)

    def mlp() -> nn.Module:
        return nn.Sequential(nn.Linear(w, 2 * w), nn.ReLU(), nn.Linear(2 * w, 2 * w), nn.ReLU(), nn.Linear(2 * w, w))

    return {
        "gpt": (lambda: nn.Sequential(Block(w, w // 64), Block(w, w // 64)), lambda: random(8, tokens, w), "bf16"),
        "cnn": (lambda: convolutions(w // 8), lambda: random(batch, w // 8, size, size), "bf16"),
        "mlp-tf32": (mlp, lambda: random(4 * tokens, w), "tf32"),
        "mlp-fp32": (mlp, lambda: random(2 * tokens, w), "fp32"),
        "experts": (lambda: Experts(w), lambda: random(8 * tokens, w), "bf16"),
    }


def step_of(make: Callable[[], nn.Module], batch: Callable[[], torch.Tensor], numbers: str) -> Callable[[], None]:
    torch.manual_seed(0)
    model, x = make().to(DEVICE), batch()
    if x.dim() == 4:
        model, x = model.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    x.requires_grad_()  # so that every product has both of its gradients

    def step() -> None:
        tf32 = numbers == "tf32"
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
        with torch.autocast(DEVICE.type, torch.bfloat16, enabled=numbers == "bf16"):
            y = model(x)
        y.float().square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trace", type=Path)
    parser.add_argument("--only")
    parser.add_argument("--small", action="store_true")
    args = parser.parse_args()
    for name, parts in models(args.small).items():
        if args.only and name != args.only:
            continue
        step = step_of(*parts)
        for _ in range(2):
            step()
        if GPU:
            torch.cuda.synchronize()
        if args.trace:
            activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if GPU else [])]
            with profile(activities=activities, record_shapes=True) as recorded, record_function("step 0"):
                step()
                if GPU:
                    torch.cuda.synchronize()
            recorded.export_chrome_trace(str(args.trace / f"{name}.pt.trace.json.gz"))
        else:
            started = torch.cuda.nvtx.range_start(name)
            torch.cuda.cudart().cudaProfilerStart()
            step()
            torch.cuda.synchronize()
            torch.cuda.cudart().cudaProfilerStop()
            torch.cuda.nvtx.range_end(started)
        print(name, flush=True)


if __name__ == "__main__":
    main()
