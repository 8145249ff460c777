"""A GAN in a plain loop: a step is one of the critic's and one of the generator's."""

from __future__ import annotations

import threading
import time

import torch
import torch.nn.functional as F
from common import DEVICE, Steps, autocast, main, settings, sized
from torch import nn

FAULTS = {"penalty-every-4": "C8", "monitoring-thread": "B7"}
BATCH, SIZE, WIDTH, NOISE = sized(64, 4), sized(64, 16), sized(128, 8), 128


def generator() -> nn.Module:
    up: list[nn.Module] = []
    for a, b in ((8, 4), (4, 2), (2, 1)):
        up += [nn.Upsample(scale_factor=2), nn.Conv2d(a * WIDTH, b * WIDTH, 3, padding=1), nn.LeakyReLU(0.2)]
    start = SIZE // 8
    head = [nn.Linear(NOISE, 8 * WIDTH * start * start), nn.Unflatten(1, (8 * WIDTH, start, start))]
    return nn.Sequential(*head, *up, nn.Conv2d(WIDTH, 3, 3, padding=1), nn.Tanh())


def critic() -> nn.Module:
    down: list[nn.Module] = [nn.Conv2d(3, WIDTH, 3, padding=1), nn.LeakyReLU(0.2)]
    for a, b in ((1, 2), (2, 4), (4, 8)):
        down += [nn.Conv2d(a * WIDTH, b * WIDTH, 4, 2, 1), nn.LeakyReLU(0.2)]
    return nn.Sequential(*down, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8 * WIDTH, 1))


def monitored(over: threading.Event) -> None:
    """A thread beside the training, which parses and sums up what it reads: it has Python's lock most of the time."""
    while not over.is_set():
        sum(hash(str(n)) % 7 for n in range(2000))
        time.sleep(0.001)


def run(fault: str, steps: Steps) -> None:
    settings()
    g, d = (m.to(DEVICE, memory_format=torch.channels_last) for m in (generator(), critic()))
    of_g, of_d = (torch.optim.Adam(m.parameters(), lr=1e-4, betas=(0.0, 0.99), fused=True) for m in (g, d))
    real = torch.randn(BATCH, 3, SIZE, SIZE, device=DEVICE).contiguous(memory_format=torch.channels_last)
    watched = threading.Event()
    if fault == "monitoring-thread":
        threading.Thread(target=monitored, args=(watched,), daemon=True).start()
    for i in range(steps.total):
        steps.begins()
        with autocast():
            with torch.no_grad():
                fake = g(torch.randn(BATCH, NOISE, device=DEVICE))
            loss = F.softplus(d(fake)).mean() + F.softplus(-d(real)).mean()
        if fault == "penalty-every-4" and i % 4 == 3:
            # The gradient penalty of real images, in float, every fourth step.
            seen = real.clone().requires_grad_()
            (slope,) = torch.autograd.grad(d(seen).sum(), seen, create_graph=True)
            loss = loss + 5.0 * slope.square().sum((1, 2, 3)).mean()
        of_d.zero_grad()
        loss.backward()
        of_d.step()
        with autocast():
            loss = F.softplus(-d(g(torch.randn(BATCH, NOISE, device=DEVICE)))).mean()
        of_g.zero_grad()
        loss.backward()
        of_g.step()
        steps.ended()
    watched.set()


if __name__ == "__main__":
    main(run, FAULTS)
