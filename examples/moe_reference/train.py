"""Train a small MoE transformer with pipeline, expert and data parallelism, annotated for stepscope.

    torchrun --nproc-per-node 4 train.py --pp 2 --ep 2                         # NCCL where there are GPUs, else gloo
    torchrun --nproc-per-node 4 train.py --pp 2 --ep 2 --fault straggler:rank=3,factor=2

The faults are the simulator's: traces with a known cause. See README.md beside this file.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

import torch
import torch.distributed as dist
from faults import Faults, ranks_per_node
from mesh import Mesh, start
from pipeline import Pipeline

from stepscope import annotate
from stepscope.errors import StepscopeError

SHAPE = {"layers": 4, "width": 64, "hidden": 128, "heads": 4, "experts": 8, "seq": 64, "vocabulary": 256}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for axis in ("pp", "dp", "ep"):
        parser.add_argument(f"--{axis}", type=int, default=1)
    for name, default in SHAPE.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--micro-batches", type=int, default=8)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--fault", action="append", default=[], metavar="NAME:KEY=VALUE,...")
    parser.add_argument("--ranks-per-node", type=int, default=0, help="what late-node takes for a node")
    parser.add_argument("--share-gpu", action="store_true", help="let ranks share GPUs (NCCL over sockets)")
    parser.add_argument("--die-at", type=int, default=-1, metavar="STEP", help="fail there, to test who notices")
    return parser.parse_args()


def batch(args: argparse.Namespace, mesh: Mesh, faults: Faults) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """The micro-batches of a step: the same on all stages of one replica."""
    with annotate.region("data"):
        faults.in_data()
        made = [torch.randint(args.vocabulary, (args.seq + 1,)) for _ in range(args.micro_batches)]
        return [(x[:-1].to(mesh.device), x[1:].to(mesh.device)) for x in made]


def reduce_gradients(pipe: Pipeline, mesh: Mesh) -> None:
    """Experts are replicated over dp, everything else over dp·ep."""
    experts = {p for layer in pipe.layers for p in layer.block.expert_parameters()}
    with annotate.region("gradient reduction"):
        for group, members in ((mesh.dense_group, False), (mesh.dp_group, True)):
            grads = [p.grad for p in pipe.parameters() if (p in experts) == members and p.grad is not None]
            if not grads or dist.get_world_size(group) == 1:
                continue
            flat = torch.cat([g.flatten() for g in grads])
            dist.all_reduce(flat, group=group)
            flat /= dist.get_world_size(group)
            at = 0
            for grad in grads:
                grad.copy_(flat[at : at + grad.numel()].view_as(grad))
                at += grad.numel()


def main() -> int:
    args = arguments()
    if args.layers % args.pp:
        raise SystemExit(f"{args.layers} layers do not divide over pp = {args.pp}")
    mesh = start(args.pp, args.dp, args.ep, args.share_gpu)
    torch.manual_seed(1 + mesh.dp_rank * mesh.ep + mesh.ep_rank)
    try:
        faults = Faults(args.fault, mesh.rank, mesh.world, mesh.ep, ranks_per_node(args.ranks_per_node, mesh.world))
    except StepscopeError as error:
        raise SystemExit(str(error)) from None
    config = {name: getattr(args, name) for name in SHAPE}
    pipe = Pipeline(mesh, faults, config)
    if mesh.device.type == "cuda":
        faults.slow_link(pipe.layers[0].members, mesh.ep_sockets)
    optimizer = torch.optim.AdamW(pipe.parameters(), lr=1e-3, foreach=True)
    annotate.setup(
        rank=mesh.rank, pp=(mesh.stage, mesh.pp), dp=(mesh.dp_rank, mesh.dp), ep=(mesh.ep_rank, mesh.ep),
        mbs=1, seq=args.seq, layers=args.layers,
    )  # fmt: skip
    for n in range(args.steps):
        began = time.perf_counter()
        with annotate.step(n):
            faults.before_step()
            if n == args.die_at:
                raise SystemExit(f"rank {mesh.rank}: --die-at {n}")
            pipe.step(batch(args, mesh, faults))
            reduce_gradients(pipe, mesh)
            with annotate.region("optimizer"):
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
        if mesh.last and mesh.dp_rank == mesh.ep_rank == 0:
            loss = torch.stack(pipe.losses).mean().item()
            print(f"step {n}: loss {loss:.4f}, {1e3 * (time.perf_counter() - began):.1f} ms", flush=True)
    annotate.finish()
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
