"""Four backward passes for each optimizer step; nothing of stepscope is imported."""

import sys

import torch
from torch.utils.data import DataLoader, TensorDataset

STEPS, MICRO = int(sys.argv[1]) if len(sys.argv) > 1 else 9, 4
torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 64)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
loader = DataLoader(TensorDataset(torch.randn(16 * MICRO * STEPS, 64)), batch_size=16)
for i, (x,) in enumerate(loader):
    x = x.to(device)
    ((model(x) - x).square().mean() / MICRO).backward()
    if i % MICRO == MICRO - 1:
        optimizer.step()
        optimizer.zero_grad()
