"""A language model in a plain loop."""

from __future__ import annotations

import collections
import gc

import torch
import torch.nn.functional as F
from common import DEVICE, SCRATCH, Steps, autocast, main, settings, sized
from torch import nn
from torch.utils.checkpoint import checkpoint

FAULTS = {
    "attention-by-hand": "A1", "float-head": "A2", "checkpoint-blocks": "A4",
    "norm-and-gelu-by-hand": "A5", "casts-and-clones": "A6", "optimizer-loop": "A7",
    "smoothing-by-hand": "A8", "vocabulary-50257": "A9", "second-forward": "A12",
    "save-every-3": "C1", "evaluate-every-3": "C2", "collect-every-4": "C4", "load-weights": "C6",
    "clip-by-item": "B1", "metrics-in-python": "B7",
}  # fmt: skip
WIDTH, LAYERS, HEADS = sized(1024, 32), sized(3, 1), sized(16, 2)
BATCH, SEQ, VOCABULARY = sized(4, 2), sized(2048, 32), sized(50304, 96)


class NormByHand(nn.LayerNorm):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.float()
        mean = x.mean(-1, keepdim=True)
        variance = ((x - mean) ** 2).mean(-1, keepdim=True)
        return (x - mean) / torch.sqrt(variance + self.eps) * self.weight + self.bias


def gelu_by_hand(x: torch.Tensor) -> torch.Tensor:
    return 0.5 * x * (1.0 + torch.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


class Block(nn.Module):
    def __init__(self, fault: str) -> None:
        super().__init__()
        norm = NormByHand if fault == "norm-and-gelu-by-hand" else nn.LayerNorm
        self.fault = fault
        self.norm1, self.norm2 = norm(WIDTH), norm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def attention(self, x: torch.Tensor) -> torch.Tensor:
        b, t, w = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, HEADS, w // HEADS).permute(2, 0, 3, 1, 4)
        if self.fault != "attention-by-hand":
            return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, w)
        scores = (q @ k.transpose(-2, -1)) * (w // HEADS) ** -0.5
        later = torch.ones(t, t, dtype=torch.bool, device=x.device).triu(1)
        weights = scores.masked_fill(later, float("-inf")).float().softmax(-1).to(v.dtype)
        return (weights @ v).transpose(1, 2).reshape(b, t, w)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gelu = gelu_by_hand if self.fault == "norm-and-gelu-by-hand" else F.gelu
        if self.fault == "casts-and-clones":
            x = x.clone().float()
            x = x + self.out(self.attention(self.norm1(x.bfloat16().clone()))).float().clone()
            return (x.clone() + self.down(gelu(self.up(self.norm2(x.bfloat16().clone())))).float()).bfloat16().float()
        x = x + self.out(self.attention(self.norm1(x)))
        return x + self.down(gelu(self.up(self.norm2(x))))


class Model(nn.Module):
    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fault = fault
        vocabulary = 50257 if fault == "vocabulary-50257" else VOCABULARY
        self.embed = nn.Embedding(vocabulary, WIDTH)
        self.blocks = nn.ModuleList(Block(fault) for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, vocabulary, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.fault == "checkpoint-blocks" else block(x)
        x = self.norm(x)
        if self.fault == "float-head":
            with autocast(False):
                return self.head(x.float())
        return self.head(x)


def loss_of(fault: str, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    if fault != "smoothing-by-hand":
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), label_smoothing=0.1)
    logs = torch.log(torch.softmax(logits.float(), -1) + 1e-9)
    true = torch.full_like(logs, 0.1 / logs.shape[-1]).scatter_add_(
        -1, targets[..., None], torch.full_like(logs[..., :1], 0.9)
    )
    return -(true * logs).sum(-1).mean()


def clip(weights: list[nn.Parameter]) -> None:
    """Gradients are clipped by hand: the norm of each is read back."""
    norms = [w.grad.norm().item() for w in weights if w.grad is not None]
    scale = 1.0 / max(1.0, sum(n * n for n in norms) ** 0.5)
    if scale < 1.0:
        torch._foreach_mul_([w.grad for w in weights if w.grad is not None], scale)


def built(fault: str) -> Model:
    """On the GPU from the start; or on the host, with weights from a file."""
    path = SCRATCH / "gpt.pt"
    if fault != "load-weights":
        with DEVICE:
            return Model(fault)
    model = Model(fault)
    if not path.exists():
        SCRATCH.mkdir(parents=True, exist_ok=True)
        torch.save(model.state_dict(), path)
    model.load_state_dict(torch.load(path, map_location="cpu"))
    return model.to(DEVICE)


def run(fault: str, steps: Steps) -> None:
    # Products in float use no TF32 here, as is torch's default.
    settings(tf32=False)
    model = built(fault)
    looped = fault == "optimizer-loop"
    adam = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=not looped, foreach=False if looped else None)
    tokens = torch.randint(sized(50257, 96), (8, BATCH, SEQ + 1), device=DEVICE)
    heap = [{"at": i, "text": [i]} for i in range(sized(500_000, 1000))] if fault == "collect-every-4" else []
    given = tokens.flatten(1).tolist() if fault == "metrics-in-python" else []
    gc.collect()
    for i in range(steps.total):
        steps.begins()
        inputs, targets = tokens[i % 8, :, :-1], tokens[i % 8, :, 1:]
        with autocast():
            logits = model(inputs)
            loss = loss_of(fault, logits, targets)
        loss.backward()
        del logits
        if fault == "clip-by-item":
            clip(list(model.parameters()))
        adam.step()
        adam.zero_grad(set_to_none=fault != "casts-and-clones")
        if fault == "second-forward":
            with autocast():
                (model(inputs).argmax(-1) == targets).float().mean()
        if fault == "save-every-3" and i % 3 == 2:
            SCRATCH.mkdir(parents=True, exist_ok=True)
            torch.save({"model": model.state_dict(), "optimizer": adam.state_dict()}, SCRATCH / "gpt-checkpoint.pt")
        if fault == "evaluate-every-3" and i % 3 == 2:
            with torch.no_grad(), autocast():
                losses = [loss_of(fault, model(tokens[n, :, :-1]), tokens[n, :, 1:]) for n in range(4)]
            torch.stack(losses).mean().item()
        if fault == "collect-every-4" and i % 4 == 3:
            gc.collect()
        if fault == "metrics-in-python":
            words = collections.Counter(given[i % 8])
            sorted(words.items(), key=lambda item: (-item[1], item[0]))
        steps.ended()
    heap.clear()


if __name__ == "__main__":
    main(run, FAULTS)
