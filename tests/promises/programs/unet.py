"""A U-Net that removes noise, in a plain loop."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from common import DEVICE, Steps, autocast, main, settings, sized, synchronize
from torch import nn
from torch.utils.checkpoint import checkpoint

FAULTS = {
    "permute-in-every-layer": "A3", "norm-and-silu-by-hand": "A5", "checkpoint-levels": "A4", "odd-widths": "A9",
    "synchronize-every-layer": "B2",
}  # fmt: skip
BATCH, SIZE = sized(16, 2), sized(128, 16)


class GroupNormByHand(nn.GroupNorm):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, c = x.shape[:2]
        y = x.float().reshape(b, self.num_groups, -1)
        y = (y - y.mean(-1, keepdim=True)) * torch.rsqrt(y.var(-1, unbiased=False, keepdim=True) + self.eps)
        return (y.reshape(x.shape) * self.weight.view(1, c, 1, 1) + self.bias.view(1, c, 1, 1)).to(x.dtype)


class LayerNormLast(nn.Module):
    """Normalizes over channels; by way of another layout where it is told to."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x.contiguous().permute(0, 2, 3, 1).contiguous()).permute(0, 3, 1, 2).contiguous()


class Double(nn.Module):
    def __init__(self, fault: str, inputs: int, outputs: int) -> None:
        super().__init__()
        self.fault = fault
        groups = outputs // 8 if outputs % 8 == 0 else 5
        self.convs = nn.ModuleList(
            [nn.Conv2d(inputs, outputs, 3, padding=1), nn.Conv2d(outputs, outputs, 3, padding=1)]
        )
        norm = GroupNormByHand if fault == "norm-and-silu-by-hand" else nn.GroupNorm
        self.norms = nn.ModuleList(norm(groups, outputs) for _ in range(2))
        self.last = LayerNormLast(outputs) if fault == "permute-in-every-layer" else None
        self.plain = nn.LayerNorm(outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = norm(conv(x))
            x = x * torch.sigmoid(x) * 1.0 if self.fault == "norm-and-silu-by-hand" else F.silu(x)
            # The same normalization; channels are last in memory already, and a view will do.
            if self.fault == "synchronize-every-layer":
                synchronize()
            x = self.last(x) if self.last is not None else self.plain(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return x


class UNet(nn.Module):
    def __init__(self, fault: str, width: int) -> None:
        super().__init__()
        self.fault = fault
        self.first = Double(fault, 3, width)
        self.downs = nn.ModuleList([Double(fault, width, 2 * width), Double(fault, 2 * width, 4 * width)])
        self.ups = nn.ModuleList([Double(fault, 6 * width, 2 * width), Double(fault, 3 * width, width)])
        self.out = nn.Conv2d(width, 3, 1)

    def level(self, double: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(double, x, use_reentrant=False) if self.fault == "checkpoint-levels" else double(x)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        levels = [self.level(self.first, x)]
        for down in self.downs:
            levels.append(self.level(down, F.max_pool2d(levels[-1], 2)))
        x = levels.pop()
        for up in self.ups:
            x = self.level(up, torch.cat([F.interpolate(x, scale_factor=2.0), levels.pop()], 1))
        return self.out(x)


def run(fault: str, steps: Steps) -> None:
    settings()
    width = sized(75, 10) if fault == "odd-widths" else sized(80, 16)
    model = UNet(fault, width).to(DEVICE, memory_format=torch.channels_last)
    adam = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    clean = torch.randn(BATCH, 3, SIZE, SIZE, device=DEVICE).contiguous(memory_format=torch.channels_last)
    for _ in range(steps.total):
        steps.begins()
        noise = torch.randn_like(clean)
        with autocast():
            loss = F.mse_loss(model(clean + 0.3 * noise), noise)
        loss.backward()
        adam.step()
        adam.zero_grad()
        steps.ended()


if __name__ == "__main__":
    main(run, FAULTS)
