"""A Lightning loop: the optimizer steps with a closure, and the program calls a part of the LightningModule."""

import sys

import torch

try:
    import lightning.pytorch as pl
except ImportError:
    import pytorch_lightning as pl

SIZE, STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 32, int(sys.argv[2]) if len(sys.argv) > 2 else 9


class Module(pl.LightningModule):
    def __init__(self):
        super().__init__()
        layers = [m for _ in range(4) for m in (torch.nn.Linear(SIZE, SIZE), torch.nn.GELU())]
        self.net = torch.nn.Sequential(*layers)

    def training_step(self, batch, index):
        return (self.net(batch[0]) - batch[0]).square().mean()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


data = torch.utils.data.TensorDataset(torch.randn(64 * STEPS * 2, SIZE))
loader = torch.utils.data.DataLoader(data, batch_size=64)
pl.seed_everything(0)
trainer = pl.Trainer(
    max_steps=STEPS, accumulate_grad_batches=2, logger=False, enable_checkpointing=False, enable_progress_bar=False,
    enable_model_summary=False, accelerator="gpu" if torch.cuda.is_available() else "cpu", devices=1,
)  # fmt: skip
trainer.fit(Module(), loader)
