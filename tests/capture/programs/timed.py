"""Times its own steps, and prints them in nanoseconds as JSON; nothing of stepscope is imported."""

import json
import sys
import time

import torch

STEPS, BATCH = (int(a) for a in (sys.argv[1:] + ["60", "4"][len(sys.argv) - 1 :]))
SETTLING = 10
torch.manual_seed(0)
on_gpu = torch.cuda.is_available()
device, width = ("cuda", 1024) if on_gpu else ("cpu", 128)
layer = torch.nn.TransformerEncoderLayer(width, 8, 4 * width, batch_first=True)
model = torch.nn.TransformerEncoder(layer, 6, enable_nested_tensor=False).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
x = torch.randn(BATCH, 128, width, device=device)
times = []
for _ in range(SETTLING + STEPS):
    began = time.perf_counter_ns()
    model(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    if on_gpu:
        torch.cuda.synchronize()
    times.append(time.perf_counter_ns() - began)
print(json.dumps(times[SETTLING:]))
