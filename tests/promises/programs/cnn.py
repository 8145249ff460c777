"""A ResNet-like classifier in a plain loop."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from common import DEVICE, Steps, autocast, main, settings, sized
from torch import nn
from torch.utils.data import DataLoader, Dataset

FAULTS = {
    "float-no-tf32": "A2", "nchw": "A3", "deterministic": "A11",
    "epochs": "twin", "epochs-restart-workers": "C3", "larger-warmed": "twin", "larger-from-step-8": "C5",
    "crops": "twin", "crops-one-worker": "B6",
}  # fmt: skip
BATCH, SIZE, WIDTH = sized(128, 4), sized(128, 16), sized(64, 8)
#: steps of an epoch
EPOCH = 4
#: The size of images from some step on: cudnn.benchmark tries its algorithms once more, unless it has seen that size.
LARGER = SIZE + 8


class Residual(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        middle = outputs // 2
        self.a = nn.Conv2d(inputs, middle, 1, bias=False)
        self.b = nn.Conv2d(middle, middle, 3, stride, 1, bias=False)
        self.c = nn.Conv2d(middle, outputs, 1, bias=False)
        self.skip = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(n) for n in (middle, middle, outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.norms[0](self.a(x)), inplace=True)
        y = F.relu(self.norms[1](self.b(y)), inplace=True)
        return F.relu(self.norms[2](self.c(y)) + self.skip(x), inplace=True)


def network() -> nn.Module:
    widths = [WIDTH, 4 * WIDTH, 8 * WIDTH, 16 * WIDTH]
    blocks = [Residual(a, b, 1 if a == WIDTH else 2) for a, b in itertools.pairwise(widths)]
    stem = [nn.Conv2d(3, WIDTH, 7, 2, 3, bias=False), nn.BatchNorm2d(WIDTH), nn.ReLU(inplace=True)]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], 1000))


class Images(Dataset):  # type: ignore[type-arg]
    """As many as an epoch has; each is cut from one larger image."""

    def __init__(self, turned: bool) -> None:
        self.turned = turned
        self.image = torch.randn(3, 2 * SIZE, 2 * SIZE)

    def __len__(self) -> int:
        return (1000 if self.turned else EPOCH) * BATCH

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        at = (7 * i) % SIZE
        image = self.image[:, at : at + SIZE, at : at + SIZE]
        if self.turned:  # a crop that is made as large as the image
            image = F.interpolate(image[None, :, SIZE // 16 :, SIZE // 16 :], size=(SIZE, SIZE), mode="bilinear")[
                0
            ].clamp(-2, 2)
        return image.contiguous(), i % 1000


def batches(fault: str, layout: torch.memory_format) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    if fault.startswith(("epochs", "crops")):
        loader = DataLoader(
            Images(fault.startswith("crops")), BATCH, shuffle=True,
            num_workers={"crops": 10, "crops-one-worker": 1}.get(fault, 4), pin_memory=DEVICE.type == "cuda",
            drop_last=True, persistent_workers=fault != "epochs-restart-workers",
        )  # fmt: skip
        while True:
            for images, labels in loader:
                yield images.to(DEVICE, memory_format=layout, non_blocking=True), labels.to(DEVICE, non_blocking=True)
    labels = torch.randint(1000, (BATCH,), device=DEVICE)
    i = 0
    while True:
        size = LARGER if fault.startswith("larger") and i >= 8 else SIZE
        i += 1
        yield torch.randn(BATCH, 3, size, size, device=DEVICE).contiguous(memory_format=layout), labels


def run(fault: str, steps: Steps) -> None:
    plain = fault == "float-no-tf32"
    settings(tf32=not plain, benchmark=fault.startswith("larger"), deterministic=fault == "deterministic")
    layout = torch.contiguous_format if fault == "nchw" else torch.channels_last
    model = network().to(DEVICE, memory_format=layout)
    sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, fused=True)
    images = batches(fault, layout)
    if fault == "larger-warmed":
        x = torch.randn(BATCH, 3, LARGER, LARGER, device=DEVICE).contiguous(memory_format=layout)
        with autocast():
            warm = model(x).sum()
        warm.backward()
        sgd.zero_grad()
    for _ in range(steps.total):
        steps.begins()
        x, y = next(images)
        with autocast(not plain):
            loss = F.cross_entropy(model(x), y)
        loss.backward()
        sgd.step()
        sgd.zero_grad()
        steps.ended()


if __name__ == "__main__":
    main(run, FAULTS)
