"""A policy that learns from its own samples, by Lightning: every fourth step begins with a rollout."""

from __future__ import annotations

import logging
import warnings
from typing import Any

import torch
import torch.nn.functional as F

try:
    import lightning.pytorch as pl
except ImportError:
    import pytorch_lightning as pl
from common import ON_CPU, Steps, main, settings, sized
from torch import nn

FAULTS = {"rollout-every-4": "C8"}
WIDTH, LAYERS, BATCH, SEQ, VOCABULARY = sized(1024, 32), sized(2, 1), sized(32, 2), sized(256, 16), sized(4096, 64)


class Policy(pl.LightningModule):
    def __init__(self, fault: str, steps: Steps) -> None:
        super().__init__()
        self.fault, self.clock = fault, steps
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, sized(16, 2), 4 * WIDTH, 0.0, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, VOCABULARY)
        self.samples = torch.randint(VOCABULARY, (BATCH, SEQ))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1], tokens.device)
        return self.head(self.body(self.embed(tokens), mask, is_causal=True))

    @torch.no_grad()
    def rollout(self) -> None:
        """Some tokens, one after the other, each from all before it."""
        tokens = self.samples[:, : SEQ // 2]
        for _ in range(sized(12, 2)):
            best = self(tokens)[:, -1].float().softmax(-1).multinomial(1)
            tokens = torch.cat([tokens, best], 1)
        self.samples = torch.cat([tokens, self.samples], 1)[:, :SEQ]

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        self.samples = self.samples.to(self.device)
        if self.fault == "rollout-every-4" and index % 4 == 3:
            self.rollout()
        return F.cross_entropy(self(self.samples[:, :-1]).flatten(0, 1), self.samples[:, 1:].flatten())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-4, fused=True)

    def on_train_batch_start(self, *_: Any) -> None:
        self.clock.begins()

    def on_train_batch_end(self, *_: Any) -> None:
        self.clock.ended()


def run(fault: str, steps: Steps) -> None:
    settings()
    warnings.filterwarnings("ignore")
    for name in ("lightning.pytorch", "pytorch_lightning", "lightning.fabric", "lightning_fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    loader = torch.utils.data.DataLoader(torch.zeros(steps.total, 1))
    trainer = pl.Trainer(
        max_steps=steps.total, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False,
        accelerator="cpu" if ON_CPU else "gpu", devices=1, precision="bf16-mixed",
    )  # fmt: skip
    trainer.fit(Policy(fault, steps), loader)


if __name__ == "__main__":
    main(run, FAULTS)
