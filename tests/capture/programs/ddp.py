"""DistributedDataParallel on gloo or NCCL; a model of two layers; nothing of stepscope is imported."""

import os

import torch
import torch.distributed as dist

on_gpu = torch.cuda.is_available()
dist.init_process_group("nccl" if on_gpu else "gloo")
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count()) if on_gpu else "cpu"
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 32)).to(device)
model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(10):
    optimizer.zero_grad()
    model(torch.randn(8, 32, device=device)).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
