"""A convolutional classifier by Lightning."""

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
from common import ON_CPU, SCRATCH, Steps, main, settings, sized
from torch import nn

FAULTS = {
    "float": "A2", "nchw": "A3", "optimizer-loop": "A7", "frozen-first": "twin", "frozen-with-gradients": "A12",
    "deterministic": "A11", "features-to-host": "B3", "transforms": "twin", "transforms-no-workers": "B6",
    "save-every-3": "C1", "validate-every-3": "C2", "epochs": "twin", "epochs-restart-workers": "C3",
}  # fmt: skip
BATCH, SIZE, WIDTH, EPOCH = sized(96, 2), sized(160, 16), sized(96, 8), 4
#: what the loader gives; the GPU makes it larger
GIVEN = sized(48, 8)


class Mix(nn.Module):
    """A 3x3 convolution, a norm, and two products."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.around = nn.Conv2d(width, width, 3, padding=1)
        self.norm = nn.BatchNorm2d(width)
        self.up, self.down = nn.Conv2d(width, 4 * width, 1), nn.Conv2d(4 * width, width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(F.gelu(self.up(self.norm(self.around(x)))))


class Images(torch.utils.data.Dataset):  # type: ignore[type-arg]
    def __init__(self, count: int, turned: bool = False) -> None:
        self.turned = turned
        self.count, self.image = count, torch.randn(3, 2 * GIVEN, 2 * GIVEN)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        at = (7 * i) % GIVEN
        image = self.image[:, at : at + GIVEN, at : at + GIVEN].contiguous()
        if self.turned:
            for _ in range(3):
                image = F.interpolate(image[None].flip(3), scale_factor=1.1, mode="bicubic")[0][:, :GIVEN, :GIVEN]
            image = ((image - image.mean((1, 2), keepdim=True)) / image.std()).contiguous()
        return image, i % 100


class Classifier(pl.LightningModule):
    def __init__(self, fault: str, steps: Steps) -> None:
        super().__init__()
        self.fault, self.clock = fault, steps
        self.stem = nn.Conv2d(3, WIDTH, 2, 2)
        self.first = nn.Sequential(Mix(WIDTH), nn.Conv2d(WIDTH, 2 * WIDTH, 2, 2), Mix(2 * WIDTH))
        self.second = nn.Sequential(nn.Conv2d(2 * WIDTH, 4 * WIDTH, 2, 2), Mix(4 * WIDTH))
        self.head = nn.Linear(4 * WIDTH, 100)
        if fault == "frozen-first":
            self.stem.requires_grad_(False)
            self.first.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.interpolate(x, size=(SIZE, SIZE))
        if self.fault != "nchw":
            x = x.contiguous(memory_format=torch.channels_last)
        features = self.second(self.first(self.stem(x)))
        if self.fault == "features-to-host":
            self.seen = features.detach().float().cpu()
        return self.head(features.mean((2, 3)))

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        return F.cross_entropy(self(batch[0]), batch[1])

    def validation_step(self, batch: Any, index: int) -> None:
        F.cross_entropy(self(batch[0]), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        trained = (
            [*self.second.parameters(), *self.head.parameters()]
            if self.fault.startswith("frozen")
            else self.parameters()
        )
        loop = self.fault == "optimizer-loop"
        return torch.optim.AdamW(trained, lr=1e-4, fused=not loop, foreach=False if loop else None)

    def on_train_batch_start(self, *_: Any) -> None:
        self.clock.begins()

    def on_train_batch_end(self, *_: Any) -> None:
        self.clock.ended()


def run(fault: str, steps: Steps) -> None:
    settings(tf32=False, deterministic=fault == "deterministic")
    warnings.filterwarnings("ignore")
    for name in ("lightning.pytorch", "pytorch_lightning", "lightning.fabric", "lightning_fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    epochs = fault.startswith("epochs")
    workers = {"transforms": 8, "transforms-no-workers": 0}.get(fault, 4)
    loader = torch.utils.data.DataLoader(
        Images((EPOCH if epochs else steps.total) * BATCH, fault.startswith("transforms")), BATCH,
        num_workers=workers, pin_memory=not ON_CPU,
        persistent_workers=bool(workers) and fault != "epochs-restart-workers", prefetch_factor=4 if workers else None,
    )  # fmt: skip
    valid = torch.utils.data.DataLoader(Images(4 * BATCH), BATCH, num_workers=2, persistent_workers=True)
    saves = pl.callbacks.ModelCheckpoint(dirpath=SCRATCH / "lightning", every_n_train_steps=3, save_top_k=-1)
    validates = fault == "validate-every-3"
    trainer = pl.Trainer(
        max_steps=steps.total, logger=False, enable_checkpointing=fault == "save-every-3",
        callbacks=[saves] if fault == "save-every-3" else [],
        enable_progress_bar=False, enable_model_summary=False, accelerator="cpu" if ON_CPU else "gpu", devices=1,
        num_sanity_val_steps=0,
        precision="32-true" if fault == "float" else "bf16-mixed", benchmark=False,
        deterministic=fault == "deterministic" or None,
        limit_val_batches=4 if validates else 0, val_check_interval=3 if validates else 1.0, max_epochs=-1,
    )  # fmt: skip
    model = Classifier(fault, steps)
    if fault != "nchw":
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    trainer.fit(model, loader, valid if validates else None)


if __name__ == "__main__":
    main(run, FAULTS)
