"""Ways to step: `beside` (two optimizers after one backward pass), `groups` (one optimizer, once for each group, as
ZeRO does), `within` (an optimizer for each parameter, which steps within the backward pass), `closure` (L-BFGS's way),
`compiled` (torch.compile around the model), `marked` (the program marks its steps itself)."""

import sys
from contextlib import nullcontext

import torch

HOW, STEPS = sys.argv[1], 9
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 8))
parameters = list(model.parameters())
if HOW == "within":
    own = {p: torch.optim.SGD([p], lr=1e-3) for p in parameters}

    def at_once(parameter):
        own[parameter].step()
        own[parameter].zero_grad()

    for p in parameters:
        p.register_post_accumulate_grad_hook(at_once)
else:
    optimizers = [torch.optim.SGD(parameters[:2], lr=1e-3)]
    if HOW == "beside":
        optimizers.append(torch.optim.AdamW(parameters[2:]))
compiles = []


def backend(graph, inputs):
    compiles.append(graph)
    return graph.forward


called = torch.compile(model, backend=backend) if HOW == "compiled" else model
if HOW == "marked":
    from stepscope import annotate

for n in range(STEPS):
    with annotate.step(100 + n) if HOW == "marked" else nullcontext():

        def closure():
            for p in parameters:
                p.grad = None
            loss = called(torch.randn(4, 8)).square().mean()
            loss.backward()
            return loss

        if HOW == "closure":
            optimizers[0].step(closure)
            continue
        closure()
        if HOW != "within":
            for optimizer in optimizers * (3 if HOW == "groups" else 1):
                optimizer.step()
print("compiles", len(compiles))
