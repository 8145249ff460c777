"""A language model in a plain loop by FSDP2: a block is a unit, parameters and reductions in bf16."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from common import DEVICE, Steps, settings, sized
from ranks import main
from ranks_gpt import BATCH, SEQ, VOCABULARY, Model
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

FAULTS = {"reshard": "D3", "float-reductions": "D3", "unit-for-every-linear": "D3"}
ROWS = 2 * BATCH


def run(fault: str, steps: Steps) -> None:
    settings()
    with DEVICE:
        model = Model("none")
    wide = torch.float32 if fault == "float-reductions" else torch.bfloat16
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=wide)
    how = {"mp_policy": policy, "reshard_after_forward": fault == "reshard"}
    for block in model.blocks:
        if fault == "unit-for-every-linear":
            for part in block.modules():
                if isinstance(part, nn.Linear):
                    fully_shard(part, **how)
        fully_shard(block, **how)
    fully_shard(model, **how)
    adam = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    tokens = torch.randint(VOCABULARY, (4, ROWS, sized(SEQ, 32) + 1), device=DEVICE)
    for i in range(steps.total):
        steps.begins()
        logits = model(tokens[i % 4, :, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[i % 4, :, 1:].flatten())
        loss.backward()
        del logits
        adam.step()
        adam.zero_grad()
        steps.ended()


if __name__ == "__main__":
    main(run, FAULTS)
