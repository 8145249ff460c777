"""Small models, profiled on the CPU, and their FLOPs by torch.utils.flop_counter. The tests run it in an environment
that has torch: `python flop_counter.py FOLDER` writes traces and `flops.json` there."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop
from torch.utils.flop_counter import FlopCounterMode


class Attend(nn.Module):
    """Four heads of 8, of which two share keys and values."""

    def __init__(self, causal=True):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(32, n) for n in (32, 16, 16, 32))
        self.causal = causal

    def forward(self, x):
        q, k, v = (m(x).view(2, 16, -1, 8).transpose(1, 2) for m in (self.q, self.k, self.v))
        k, v = (t.repeat_interleave(2, 1) for t in (k, v))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return x + self.o(y.transpose(1, 2).reshape(2, 16, 32))


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(32, 128), nn.Linear(128, 32)

    def forward(self, x):
        return x + self.down(functional.gelu(self.up(x)))


class Products(nn.Module):
    def __init__(self):
        super().__init__()
        self.w, self.m, self.n = (nn.Parameter(torch.randn(s)) for s in ((6, 8, 10), (10, 5), (5, 3)))

    def forward(self, x):
        y = torch.einsum("bik,bkj->bij", x, self.w)
        return ((torch.baddbmm(torch.zeros(6, 7, 10), x, self.w) + y) @ self.m) @ self.n


class Convolutions(nn.Module):
    # flop_counter counts the backward pass of grouped convolutions too high: those are counted by hand in test_ops.
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(8, 8, 3, dilation=2, bias=False),
            nn.ReLU(),
            nn.ConvTranspose2d(8, 4, 4, stride=2),
            nn.Flatten(2),
            nn.Conv1d(4, 2, 5, padding=2),
        )

    def forward(self, x):
        return self.layers(x)


class Blocks(nn.Module):
    """Two transformer layers, run as `how` says."""

    def __init__(self, how=None):
        super().__init__()
        self.blocks = nn.ModuleList([m for _ in range(2) for m in (Attend(), Mlp())])
        self.how = how

    def forward(self, x):
        for block in self.blocks:
            if self.how is None:
                x = block(x)
            else:
                with set_checkpoint_early_stop(False):  # so that a block runs again whole
                    x = checkpoint(block, x, use_reentrant=self.how == "reentrant")
        return x


def tokens():
    return torch.randn(2, 16, 32, requires_grad=True)


MODELS = {
    "mlp": (Mlp, tokens),
    "attention": (Blocks, tokens),
    "attention_in_full": (lambda: Attend(causal=False), tokens),
    "products": (Products, lambda: torch.randn(6, 7, 8, requires_grad=True)),
    "convolutions": (Convolutions, lambda: torch.randn(2, 3, 17, 19)),
    "checkpoint": (lambda: Blocks("hooks"), tokens),
    "checkpoint_reentrant": (lambda: Blocks("reentrant"), tokens),
    "autocast": (Mlp, tokens),
    "twice_differentiated": (Mlp, tokens),
    "muon": (Mlp, tokens),
}


def loss_of(name, model, x):
    x = x * 1  # no leaf: flop_counter cannot follow the gradient of one
    with torch.autocast("cpu", torch.bfloat16, enabled=name == "autocast"):
        loss = model(x).float().square().sum()
    if name == "twice_differentiated":
        (slope,) = torch.autograd.grad(loss, x, create_graph=True)
        loss = loss + slope.square().sum()
    return loss


def main(folder):
    found = {}
    for name, (make, data) in MODELS.items():
        torch.manual_seed(0)
        model, x = make(), data()
        # The fused attention of CPUs is unknown to flop_counter: the same products one by one are not.
        with sdpa_kernel(SDPBackend.MATH):
            with FlopCounterMode(display=False) as forward:
                loss = loss_of(name, model, x)
            with FlopCounterMode(display=False) as backward:
                loss.backward()
        found[name] = [forward.get_total_flops(), backward.get_total_flops()]
        # Muon's products make a gradient orthogonal.
        optimizer = torch.optim.Muon([p for p in model.parameters() if p.dim() == 2]) if name == "muon" else None
        if optimizer is not None:
            with FlopCounterMode(display=False) as optimizing:
                optimizer.step()
            found[name].append(optimizing.get_total_flops())
        with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as prof:
            loss_of(name, model, x).backward()
            if optimizer is not None:
                optimizer.step()
        prof.export_chrome_trace(str(folder / f"{name}.pt.trace.json"))
    (folder / "flops.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
