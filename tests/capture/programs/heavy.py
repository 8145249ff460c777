"""Products that keep tensor cores busy for milliseconds: long enough for sampled counters to see each kernel."""

import torch

torch.manual_seed(0)
layers = [m for _ in range(4) for m in (torch.nn.Linear(8192, 8192), torch.nn.GELU())]
model = torch.nn.Sequential(*layers).to("cuda", torch.bfloat16)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
for _ in range(9):
    x = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    (model(x) - x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
torch.cuda.synchronize()
