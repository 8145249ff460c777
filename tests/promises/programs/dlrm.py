"""A recommendation model (embeddings, interactions, two MLPs) in a plain loop."""

from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F
from common import DEVICE, Steps, autocast, main, settings, sized
from torch import nn

FAULTS = {"dense-embeddings": "A10", "auroc-of-all": "C7", "pageable-batches": "B3"}
TABLES, ROWS, WIDTH, BATCH, BAG = sized(8, 2), sized(1_000_000, 50), sized(64, 8), sized(16384, 16), 8


def mlp(*widths: int) -> nn.Sequential:
    layers = [m for a, b in itertools.pairwise(widths) for m in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


class Model(nn.Module):
    def __init__(self, fault: str) -> None:
        super().__init__()
        sparse = fault != "dense-embeddings"
        self.tables = nn.ModuleList(nn.EmbeddingBag(ROWS, WIDTH, mode="sum", sparse=sparse) for _ in range(TABLES))
        self.below = mlp(16, sized(1024, 16), sized(512, 16), WIDTH)
        pairs = (TABLES + 1) * TABLES // 2
        self.above = mlp(WIDTH + pairs, sized(2048, 16), sized(2048, 16), sized(1024, 16), 1)

    def forward(self, numbers: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        x = self.below(numbers)
        all_of = torch.stack([x, *(table(ids[n]) for n, table in enumerate(self.tables))], 1)
        products = all_of @ all_of.transpose(1, 2)
        i, j = torch.triu_indices(TABLES + 1, TABLES + 1, 1, device=x.device)
        return self.above(torch.cat([x, products[:, i, j]], 1)).squeeze(1)


def auroc(scores: torch.Tensor, clicks: torch.Tensor) -> torch.Tensor:
    """The area under the curve, over all that was seen so far."""
    order = torch.sort(scores, descending=True).indices
    hit = clicks[order].double()
    true, false = hit.cumsum(0), (1 - hit).cumsum(0)
    return torch.trapezoid(true / true[-1], false / false[-1])


def run(fault: str, steps: Steps) -> None:
    settings()
    with DEVICE:
        model = Model(fault)
    dense = [p for n, p in model.named_parameters() if not n.startswith("tables")]
    optimizer = torch.optim.SGD([{"params": dense}, {"params": model.tables.parameters()}], lr=0.01, foreach=False)
    numbers = torch.randn(BATCH, 16, device=DEVICE)
    ids = torch.randint(ROWS, (4, TABLES, BATCH, BAG), device=DEVICE)
    clicks = torch.randint(2, (BATCH,), device=DEVICE)
    given = ids.cpu() if fault == "pageable-batches" else ids
    seen: list[torch.Tensor] = []
    for i in range(steps.total):
        steps.begins()
        with autocast():
            scores = model(numbers, given[i % 4].to(DEVICE))
        loss = F.binary_cross_entropy_with_logits(scores.float(), clicks.float())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if fault == "auroc-of-all":
            # Scores of many thresholds are kept: the curve of every step is that of all steps.
            seen.append(scores.detach().float().repeat(sized(64, 2)))
            auroc(torch.cat(seen), clicks.repeat(sized(64, 2) * len(seen)))
        steps.ended()


if __name__ == "__main__":
    main(run, FAULTS)
