"""Models of transformers (Llama, Mixtral) in a loop by accelerate, random weights."""

from __future__ import annotations

import logging
import os
import time
import warnings
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import accelerate
import torch
import torch.nn.functional as F
import transformers
from accelerate.state import AcceleratorState, GradientState, PartialState
from common import ON_CPU, Steps, main, settings, sized, synchronize
from torch import nn
from transformers.models.llama import modeling_llama

FAULTS = {
    "norms-and-swiglu-by-hand": "A5", "casts-around-norms": "A6", "mask-in-loss": "A10",
    "mixtral-grouped": "twin", "mixtral-one-by-one": "A15", "perplexity-of-all": "C7", "timers": "B2",
}  # fmt: skip
WIDTH, HEADS, LAYERS = sized(1024, 16), sized(16, 2), sized(3, 1)
BATCH, SEQ, VOCABULARY = sized(16, 2), sized(1024, 16), sized(16384, 64)


class NormByHand(nn.Module):
    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.float()
        return (self.weight * (y * torch.rsqrt((y * y).mean(-1, keepdim=True) + self.eps))).to(x.dtype)


class CastAround(nn.RMSNorm):
    """In float on purpose, from copies of what it is given."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.detach().clone().double().float() + (x - x.detach()).float()
        return super().forward(wide.clone()).bfloat16().clone().to(x.dtype)


class SwiGluByHand(nn.Module):
    def __init__(self, plain: Any) -> None:
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj = plain.gate_proj, plain.up_proj, plain.down_proj

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate = self.gate_proj(x)
        return self.down_proj(gate * (1.0 / (1.0 + torch.exp(-gate.float()))).to(gate.dtype) * self.up_proj(x))


def norms(model: nn.Module, kind: Any) -> None:
    """Every norm of the model is replaced by another of the same figures."""
    for parent in model.modules():
        for name, child in parent.named_children():
            if isinstance(child, modeling_llama.LlamaRMSNorm):
                setattr(parent, name, kind(WIDTH, eps=child.variance_epsilon))


def model_of(fault: str) -> Any:
    common = {
        "vocab_size": VOCABULARY, "hidden_size": WIDTH, "num_attention_heads": HEADS, "num_key_value_heads": HEADS,
        "max_position_embeddings": 2 * SEQ, "use_cache": False,
    }  # fmt: skip
    if fault.startswith("mixtral"):
        config = transformers.MixtralConfig(
            **common, intermediate_size=WIDTH, num_local_experts=sized(16, 4), num_hidden_layers=sized(2, 1),
            sliding_window=None,
            experts_implementation="eager" if fault == "mixtral-one-by-one" else "grouped_mm",
        )  # fmt: skip
        return transformers.MixtralForCausalLM(config)
    config = transformers.LlamaConfig(
        **common, intermediate_size=3 * WIDTH, num_hidden_layers=LAYERS, attn_implementation="sdpa"
    )
    model = transformers.LlamaForCausalLM(config)
    norms(model, {"norms-and-swiglu-by-hand": NormByHand, "casts-around-norms": CastAround}.get(fault, nn.RMSNorm))
    if fault == "norms-and-swiglu-by-hand":
        for layer in model.model.layers:
            layer.mlp = SwiGluByHand(layer.mlp)
    return model


class Texts(torch.utils.data.Dataset):  # type: ignore[type-arg]
    def __init__(self) -> None:
        self.tokens = torch.randint(VOCABULARY, (64, SEQ))
        self.mask = torch.rand(64, SEQ) < 0.7

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, i: int) -> dict[str, torch.Tensor]:
        return {"tokens": self.tokens[i % 64], "mask": self.mask[i % 64]}


def loss_of(fault: str, logits: torch.Tensor, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Only of some tokens: chosen by a mask of booleans, or by labels that are ignored."""
    logits, labels, mask = logits[:, :-1], tokens[:, 1:], mask[:, 1:]
    if fault == "mask-in-loss":
        return F.cross_entropy(logits[mask], labels[mask])
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), labels.masked_fill(~mask, -100).reshape(-1))


def timed(model: nn.Module) -> dict[str, list[float]]:
    """What every part of a layer takes, by a clock on the host: the GPU is waited for before and after."""
    took: dict[str, list[float]] = {}

    def tick(name: str) -> None:
        synchronize()
        took.setdefault(name, []).append(time.perf_counter())

    for name, part in model.named_modules():
        if name.count(".") == 3:  # model.layers.N.part
            part.register_forward_pre_hook(lambda *_, name=name: tick(name))
            part.register_forward_hook(lambda *_, name=name: tick(name))
    return took


def run(fault: str, steps: Steps) -> None:
    settings(tf32=False)
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    for state in (AcceleratorState, GradientState, PartialState):
        state._reset_state()
    helper = accelerate.Accelerator(mixed_precision="bf16", cpu=ON_CPU)
    model = model_of(fault)
    adam = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    loader = torch.utils.data.DataLoader(Texts(), BATCH, num_workers=2, pin_memory=not ON_CPU)
    model, adam, loader = helper.prepare(model, adam, loader)
    if fault == "timers":
        timed(model)
    kept: list[torch.Tensor] = []
    for i, batch in enumerate(loader):
        if i == steps.total:
            break
        steps.begins()
        logits = model(input_ids=batch["tokens"]).logits
        loss = loss_of(fault, logits, batch["tokens"], batch["mask"])
        helper.backward(loss)
        adam.step()
        adam.zero_grad()
        if fault == "perplexity-of-all":
            # What every position gave is kept, and the figure of the run is worked out anew in every step.
            kept.append(logits.detach())
            torch.stack([k.float().logsumexp(-1).mean() for k in kept]).mean().exp()
        steps.ended()


if __name__ == "__main__":
    main(run, FAULTS)
