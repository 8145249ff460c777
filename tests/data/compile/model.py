"""Made the torch2.13 files beside it, on a CPU. `broken` breaks graphs, and recompiles in step 3 (another batch size).

The torch2.11 files are of the same model on an H200, width 512, three steps; `.sqlite` by nsys 2025.3 within emit_nvtx.
"""

import sys

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width, broken):
        super().__init__()
        self.up, self.down, self.broken = nn.Linear(width, 2 * width), nn.Linear(2 * width, width), broken

    def forward(self, x):
        y = torch.relu(self.up(x))
        if self.broken:
            torch._dynamo.graph_break()
        return x + self.down(y)


class Model(nn.Module):
    def __init__(self, broken):
        super().__init__()
        self.first, self.second, self.broken = Block(16, broken), Block(16, broken), broken

    def forward(self, x):
        x = self.second(self.first(x))
        if self.broken and x.sum().item() > 1e9:
            x = x * 2
        return x


def main(broken, file, backend):
    torch.manual_seed(0)
    model = Model(broken)
    compiled = torch.compile(model, backend=backend)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    schedule = torch.profiler.schedule(wait=0, warmup=1, active=4, repeat=1)
    with torch.profiler.profile(
        schedule=schedule,
        activities=[torch.profiler.ProfilerActivity.CPU],
        on_trace_ready=lambda p: p.export_chrome_trace(file),
    ) as profiler:
        for n in [4, 4, 4, 8 if broken else 4, 4]:
            optimizer.zero_grad()
            loss = compiled(torch.randn(n, 16)).mean()
            loss.backward()
            optimizer.step()
            profiler.step()


if __name__ == "__main__":
    main(sys.argv[1] == "broken", sys.argv[2], sys.argv[3])
