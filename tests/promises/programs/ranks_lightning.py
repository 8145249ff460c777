"""A language model by Lightning, on several ranks: DistributedDataParallel, or FSDP2."""

from __future__ import annotations

import gc
import logging
import warnings
from typing import Any

import torch
import torch.nn.functional as F

try:
    import lightning.pytorch as pl
    from lightning.pytorch.strategies import DDPStrategy, ModelParallelStrategy
except ImportError:
    import pytorch_lightning as pl
    from pytorch_lightning.strategies import DDPStrategy, ModelParallelStrategy
import torch.distributed as dist
from common import DEVICE, ON_CPU, Steps, settings, sized
from ranks import main, mine
from torch import nn
from torch.distributed.fsdp import fully_shard

FAULTS = {
    "smaller-share-on-rank-1": "D5", "collect-on-rank-3": "D6", "log-sync-dist": "D7", "fsdp": "twin",
    "fsdp-reshard": "D3",
}  # fmt: skip
WIDTH, LAYERS, BATCH, SEQ, VOCABULARY = sized(768, 32), sized(3, 1), sized(8, 2), sized(1024, 16), sized(4096, 64)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, sized(12, 2), 4 * WIDTH, 0.0, batch_first=True, norm_first=True)
            for _ in range(LAYERS)
        )
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class Encoder(pl.LightningModule):
    def __init__(self, fault: str, steps: Steps) -> None:
        super().__init__()
        self.fault, self.clock = fault, steps
        self.net = Net()
        self.heap = [{"at": i, "text": [i]} for i in range(sized(150_000, 10))] if mine(fault, "collect") else []

    def configure_model(self) -> None:
        if self.fault.startswith("fsdp") and not self.sharded:
            how = {"mesh": self.device_mesh["data_parallel"], "reshard_after_forward": self.fault == "fsdp-reshard"}
            for layer in self.net.layers:
                fully_shard(layer, **how)
            fully_shard(self.net, **how)
            self.sharded = True

    sharded = False

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        tokens = batch[0]
        logits = self.net(tokens[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        if self.fault == "log-sync-dist":
            with torch.no_grad():
                figures = {
                    "loss": loss,
                    "perplexity": loss.exp(),
                    "right": (logits.argmax(-1) == tokens[:, 1:]).float().mean(),
                }
                figures |= {f"norm_{n}": layer.linear1.weight.norm() for n, layer in enumerate(self.net.layers)}
                self.log_dict(figures, on_step=True, sync_dist=True, prog_bar=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-4, fused=not ON_CPU)

    def on_train_batch_start(self, *_: Any) -> None:
        self.clock.begins()

    def on_train_batch_end(self, *_: Any) -> None:
        if self.heap:
            gc.collect()
        self.clock.ended()


def run(fault: str, steps: Steps) -> None:
    settings()
    warnings.filterwarnings("ignore")
    for name in ("lightning.pytorch", "pytorch_lightning", "lightning.fabric", "lightning_fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    tokens = torch.randint(VOCABULARY, (steps.total * BATCH * dist.get_world_size(), SEQ + 1))
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(tokens), BATCH, num_workers=1, pin_memory=not ON_CPU, persistent_workers=True
    )
    size = dist.get_world_size()
    sharded = fault.startswith("fsdp")
    strategy = ModelParallelStrategy(data_parallel_size=size, tensor_parallel_size=1) if sharded else DDPStrategy()
    trainer = pl.Trainer(
        max_steps=steps.total, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, accelerator="cpu" if ON_CPU else "gpu", devices=1, num_nodes=size,
        strategy=strategy, precision="bf16-true" if sharded else "bf16-mixed",
    )  # fmt: skip
    with DEVICE:
        model = Encoder(fault, steps)
    trainer.fit(model, loader)


if __name__ == "__main__":
    main(run, FAULTS)
