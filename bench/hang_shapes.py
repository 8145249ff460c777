"""Jobs of other frameworks than `hang_jobs`: their groups, the order of their calls, and what else a job does.

Each shape writes the calls of every rank as its framework would; sizes are drawn by the seed. No rule of `hang` was
made by them before they were first asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random

from stepscope.simulate.hang.faults import CLASSES
from stepscope.simulate.hang.job import Call, HangJob, Program, SimGroup, _jitter

Shape = Callable[["Writer", Random], None]


class Writer:
    """Groups and calls of a job while it is written."""

    def __init__(self, job: HangJob) -> None:
        self.job, self.world = job, job.world
        self.groups = [SimGroup(0, "0", "default_pg", tuple(range(job.world)))]
        self.calls: list[list[Call]] = [[] for _ in range(job.world)]
        self.step = 0

    def group(self, purpose: str, members: Sequence[int], backend: str = "") -> int:
        """The number of a new group; -1 of one of a single rank."""
        if len(members) < 2:
            return -1
        purposes = list(dict.fromkeys([*(g.purpose for g in self.groups), purpose]))
        name = str(purposes.index(purpose)) if self.job.shared_names else str(len(self.groups))
        self.groups.append(SimGroup(len(self.groups), name, purpose, tuple(members), backend))
        return len(self.groups) - 1

    def groups_of(self, purpose: str, lists: Sequence[Sequence[int]], backend: str = "") -> dict[int, int]:
        """By rank its group of those."""
        numbers = {}
        for members in lists:
            number = self.group(purpose, members, backend)
            numbers |= dict.fromkeys(members, number)
        return numbers

    def add(self, rank: int, group: int, kind: str, size: int, site: str, out: int = 0, **more: bool | str) -> None:
        if group >= 0:
            call = Call(group, kind, size, out or size, site, **more)  # type: ignore[arg-type]
            call.step = self.step
            self.calls[rank].append(call)

    def transfer(self, rank: int, group: int, size: int, site: str, pairs: Sequence[tuple[int, int]]) -> None:
        """`pairs` are (source, target), by rank."""
        if group < 0:
            return
        members = self.groups[group].members
        placed = tuple((members.index(a), members.index(b)) for a, b in pairs)
        kind = "exchange" if len(pairs) > 1 else "send" if pairs[0][0] == rank else "recv"
        call = Call(group, kind, size, size, site, chain=kind != "send", pairs=placed, step=self.step)
        self.calls[rank].append(call)

    def steps(self) -> Iterator[int]:
        for step in range(self.job.steps):
            self.step = step
            yield step

    def program(self) -> Program:
        made = Program(self.job, self.groups, self.calls)
        for group in self.groups:
            axis = "pp" if "pp" in group.purpose or group.backend else "all" if not group.number else group.purpose
            numbers = made.of.setdefault(axis, [-1] * self.world)
            for rank in group.members:
                numbers[rank] = group.number
        _jitter(made)
        return made


def _split(world: int, size: int) -> list[list[int]]:
    return [list(range(n, min(n + size, world))) for n in range(0, world, size)]


def titan(w: Writer, random: Random) -> None:
    """FSDP with tensor and context parallelism over one mesh, parameters gathered a layer ahead."""
    tp = random.choice([t for t in (1, 2, 4) if w.world % t == 0])
    cp = random.choice([c for c in (1, 2) if w.world // tp % c == 0])
    replicas = random.choice([r for r in (1, 2) if w.world // tp // cp % r == 0])
    shard = w.world // tp // replicas
    of_tp = w.groups_of("mesh_tp", _split(w.world, tp))
    of_cp = w.groups_of(
        "mesh_cp", [[b + t + tp * c for c in range(cp)] for b in range(0, w.world, tp * cp) for t in range(tp)]
    )
    block = tp * shard
    of_fsdp = w.groups_of(
        "mesh_dp_shard_cp",
        [[b + t + tp * s for s in range(shard)] for b in range(0, w.world, block) for t in range(tp)],
    )
    of_hsdp = w.groups_of("mesh_dp_replicate", [[n + block * r for r in range(replicas)] for n in range(block)])
    layers, size = random.randrange(2, 7), random.randrange(1 << 18, 1 << 22)
    ahead, ring = random.random() < 0.5, random.random() < 0.6
    for _ in w.steps():
        for rank in range(w.world):

            def tensor(n: int, way: str, rank: int = rank) -> None:
                w.add(rank, of_tp[rank], "_all_gather_base", size // tp, f"parallel.py:{30}:{way}_sequence", size)
                if cp > 1 and ring:
                    members = w.groups[of_cp[rank]].members
                    other = members[1 - members.index(rank)]
                    w.transfer(
                        rank,
                        of_cp[rank],
                        size // 8,
                        f"ring_attention.py:77:{way}_rotate",
                        [(rank, other), (other, rank)],
                    )
                elif cp > 1:
                    w.add(rank, of_cp[rank], "_all_gather_base", size // 8, f"context.py:51:{way}_keys", size // 4)
                w.add(rank, of_tp[rank], "_reduce_scatter_base", size, f"parallel.py:44:{way}_rows", size // tp)

            def unshard(rank: int = rank) -> None:
                line, per_rank = "fsdp_collectives.py:200:unshard", size // shard
                w.add(rank, of_fsdp[rank], "_all_gather_base", per_rank, line, size, chain=not ahead)

            for n in range(layers):
                unshard()
                tensor(n, "forward")
            for n in range(layers):
                unshard()
                tensor(n, "backward")
                w.add(
                    rank,
                    of_fsdp[rank],
                    "_reduce_scatter_base",
                    size,
                    "fsdp_collectives.py:380:reduce",
                    size // shard,
                    chain=False,
                )
                w.add(rank, of_hsdp[rank], "all_reduce", size // shard, "fsdp_collectives.py:410:replicas", chain=False)
            w.add(rank, of_fsdp[rank], "all_reduce", 1, "utils.py:330:norm", dtype="Float", joins=True)
            w.add(rank, of_tp[rank], "all_reduce", 1, "utils.py:331:norm", dtype="Float", joins=True)
            if w.step % 3 == 0:
                w.add(rank, of_fsdp[rank], "all_reduce", 1, "metrics.py:91:mean_loss", dtype="Float", sync=True)
                w.add(rank, of_fsdp[rank], "all_reduce", 1, "metrics.py:92:max_loss", dtype="Float", sync=True)


def buckets(w: Writer, random: Random) -> None:
    """DDP: buckets of several sizes under way at once, buffers sent by rank 0, norms over all, metrics by Gloo."""
    count, norms = random.randrange(3, 9), random.randrange(0, 5)
    sizes = [random.randrange(1 << 16, 1 << 23) for _ in range(count)]
    everybody = list(range(w.world))
    gloo = w.group("undefined", everybody, "gloo") if random.random() < 0.5 else -1
    for _ in w.steps():
        for rank in everybody:
            w.add(rank, 0, "broadcast", 4096, "ddp_forward.py:12:buffers")
            for _n in range(norms):
                w.add(rank, 0, "_all_gather_base", 257, f"batchnorm.py:{20}:forward", 257 * w.world, dtype="Float")
            for _n in range(norms):
                w.add(rank, 0, "all_reduce", 512, "batchnorm.py:66:backward", dtype="Float")
            for size in sizes:
                w.add(rank, 0, "all_reduce", size, "train.py:58:backward", chain=False)
            if w.step % 4 == 3:
                w.add(rank, 0, "all_reduce", 1, "train.py:64:log", dtype="Float", joins=True, sync=True)
            else:
                w.add(rank, 0, "all_reduce", 3, "train.py:61:clip", dtype="Float", joins=True)
            w.add(rank, gloo, "all_gather", 16, "metrics.py:9:gather", 16 * w.world, chain=False, sync=True)
            if w.step % 5 == 4:
                w.add(rank, 0, "barrier", 1, "train.py:71:epoch", dtype="Byte", sync=True)


def zero(w: Writer, random: Random) -> None:
    """ZeRO-3 in the default group: parameters gathered twice; every few steps some ranks write a checkpoint."""
    sizes = [random.randrange(1 << 14, 1 << 22) for _ in range(random.randrange(3, 9))]
    every, writers = random.randrange(2, 5), random.choice((1, 2, 4))
    saving = w.group("checkpoint", list(range(0, w.world, writers)))
    hierarchical = random.random() < 0.4
    of_node = w.groups_of("zero_pp", _split(w.world, 4)) if hierarchical else dict.fromkeys(range(w.world), 0)
    for _ in w.steps():
        for rank in range(w.world):
            for way, listed in (("forward", sizes), ("backward", sizes[::-1])):
                for size in listed:
                    group = of_node[rank] if way == "backward" else 0
                    count = len(w.groups[group].members) if group >= 0 else 1
                    w.add(
                        rank,
                        group,
                        "_all_gather_base",
                        size,
                        f"coordinator.py:{310 + (way == 'backward')}:fetch",
                        size * count,
                    )
                    if way == "backward":
                        w.add(
                            rank,
                            0,
                            "_reduce_scatter_base",
                            size * w.world,
                            "stage3.py:1190:reduce_grads",
                            size,
                            chain=False,
                        )
            w.add(rank, 0, "all_reduce", 1, "stage3.py:2050:has_overflow", dtype="Byte", joins=True, sync=True)
            w.add(rank, 0, "all_reduce", 1, "stage3.py:1811:norm", dtype="Float", sync=True)
            if w.step % every == every - 1:
                if saving >= 0 and rank in w.groups[saving].members:
                    w.add(rank, saving, "gather", 64, "engine.py:3000:save_checkpoint", sync=True)
                    w.add(rank, saving, "broadcast", 8, "engine.py:3010:save_tag", sync=True)
                w.add(rank, 0, "barrier", 1, "engine.py:3020:save_checkpoint", dtype="Byte", sync=True)


def experts(w: Writer, random: Random) -> None:
    """A mixture of experts whose groups are not of one size, with counts that differ by rank."""
    first = random.randrange(3, max(4, w.world // 2))
    of_ep = w.groups_of("expert", [list(range(first)), *_split_from(first, w.world, random.randrange(2, 5))])
    layers, size = random.randrange(2, 6), random.randrange(1 << 12, 1 << 20)
    shared = random.random() < 0.5
    for _ in w.steps():
        for rank in range(w.world):
            own = Random(f"{w.job.seed} {w.step} {rank}")
            for way in ("forward", "backward"):
                for _n in range(layers):
                    w.add(rank, of_ep[rank], "all_to_all", 8, f"router.py:18:{way}_counts")
                    w.add(
                        rank, of_ep[rank], "all_to_all", own.randrange(size, 2 * size), f"experts.py:40:{way}_dispatch"
                    )
                    if shared:
                        w.add(rank, 0, "all_reduce", 4, f"router.py:31:{way}_balance", dtype="Float", chain=False)
                    w.add(
                        rank, of_ep[rank], "all_to_all", own.randrange(size, 2 * size), f"experts.py:52:{way}_combine"
                    )
                    if way == "backward":
                        w.add(rank, 0, "all_reduce", size, "grads.py:7:dense", chain=False)
            w.add(rank, 0, "all_reduce", 1, "train.py:90:norm", dtype="Float", joins=True, sync=w.step % 2 == 0)


def _split_from(first: int, world: int, size: int) -> list[list[int]]:
    return [list(range(n, min(n + size, world))) for n in range(first, world, size)]


def interleaved(w: Writer, random: Random) -> None:
    """A pipeline of several chunks a stage: sends and receives of a moment in one batch, an embedding at both ends."""
    stages = random.choice([p for p in (2, 3, 4, 6, 8) if w.world % p == 0] or [w.world])
    width = w.world // stages
    of_pp = w.groups_of("pp", [[n + width * s for s in range(stages)] for n in range(width)])
    of_dp = w.groups_of("dp_cp", [list(range(width * s, width * s + width)) for s in range(stages)])
    ends = [w.group("embd", [n, n + width * (stages - 1)]) for n in range(width)]
    chunks, micros, size = random.choice((1, 2)), random.randrange(2, 5), random.randrange(1 << 16, 1 << 20)
    loss = random.random() < 0.5
    for _ in w.steps():
        for rank in range(w.world):
            stage = rank // width
            before, after = rank - width, rank + width
            for _chunk in range(chunks):
                for _ in range(micros):
                    if stage:
                        w.transfer(rank, of_pp[rank], size, "p2p.py:201:recv_forward", [(before, rank)])
                    w.add(rank, of_dp[rank], "all_reduce", 2, "moe_aux.py:5:aux_loss", dtype="Float", chain=False)
                    if stage < stages - 1:
                        w.transfer(rank, of_pp[rank], size, "p2p.py:210:send_forward", [(rank, after)])
                for micro in range(micros):
                    if stage < stages - 1:
                        w.transfer(rank, of_pp[rank], size, "p2p.py:230:recv_backward", [(after, rank)])
                    if micro == micros - 1:
                        w.add(
                            rank,
                            of_dp[rank],
                            "_reduce_scatter_base",
                            size * width,
                            f"buffers.py:{140}:grads",
                            size,
                            chain=False,
                        )
                    if stage:
                        w.transfer(rank, of_pp[rank], size, "p2p.py:240:send_backward", [(rank, before)])
            if stage in (0, stages - 1) and stages > 1:
                w.add(rank, ends[rank % width], "all_reduce", size, "embedding.py:22:tied", joins=True)
            w.add(rank, 0, "all_reduce", 1, "clip.py:80:norm", dtype="Float", joins=True, sync=True)
            w.add(rank, of_dp[rank], "_all_gather_base", size, "buffers.py:188:params", size * width)
            if loss and stage == stages - 1:
                w.add(rank, of_dp[rank], "all_reduce", 1, "training.py:420:loss", dtype="Float", sync=True)


def roles(w: Writer, random: Random) -> None:
    """Trainers and generators: programs of their own that meet when weights are sent."""
    trainers = random.randrange(2, w.world - 2)
    of_train = w.group("fsdp", list(range(trainers)))
    of_tp = w.groups_of("vllm_tp", _split_from(trainers, w.world, 2))
    weights = w.group("weights", [0, *range(trainers, w.world)])
    tokens, layers, size = random.randrange(4, 12), random.randrange(2, 6), random.randrange(1 << 14, 1 << 20)
    gloo = w.group("rollouts", list(range(w.world)), "gloo") if random.random() < 0.5 else 0
    for _ in w.steps():
        for rank in range(w.world):
            if rank >= trainers:
                for _ in range(tokens):
                    w.add(rank, of_tp[rank], "all_reduce", 4096, "model_runner.py:40:decode")
                    w.add(rank, of_tp[rank], "all_reduce", 4096, "model_runner.py:55:decode")
                    w.add(rank, of_tp[rank], "gather", 32000, "sampler.py:8:logits", sync=True)
            w.add(rank, gloo, "all_gather", 256, "rollout.py:31:exchange", 256 * w.world, chain=False, sync=True)
            if rank < trainers:
                for way in ("forward", "backward"):
                    for _ in range(layers):
                        w.add(rank, of_train, "_all_gather_base", size, "fsdp.py:12:unshard", size * trainers)
                        if way == "backward":
                            w.add(
                                rank,
                                of_train,
                                "_reduce_scatter_base",
                                size * trainers,
                                "fsdp.py:30:reduce",
                                size,
                                chain=False,
                            )
                w.add(rank, of_train, "all_reduce", 1, "ppo.py:77:norm", dtype="Float", joins=True, sync=True)
            if rank in (0, *range(trainers, w.world)):
                for n in range(layers):
                    w.add(rank, weights, "broadcast", size * 2 + n, "sync_weights.py:19:update")


def evaluated(w: Writer, random: Random) -> None:
    """FSDP that evaluates every few steps and writes shards on one replica only; compiled calls share a line."""
    replicas = random.choice([r for r in (1, 2, 4) if w.world % r == 0])
    shard = w.world // replicas
    of_fsdp = w.groups_of("fsdp", _split(w.world, shard))
    of_rep = w.groups_of("ddp", [[n + shard * r for r in range(replicas)] for n in range(shard)])
    layers, every = random.randrange(2, 7), random.randrange(2, 5)
    sizes = [random.randrange(1 << 14, 1 << 20) for _ in range(layers)]
    site = "compiled_autograd.py:1:call" if random.random() < 0.4 else ""
    for _ in w.steps():
        for rank in range(w.world):
            for size in sizes:
                w.add(rank, of_fsdp[rank], "_all_gather_base", size, site or "fsdp.py:12:unshard", size * shard)
            for size in sizes[::-1]:
                w.add(rank, of_fsdp[rank], "_all_gather_base", size, site or "fsdp.py:12:unshard", size * shard)
                w.add(
                    rank,
                    of_fsdp[rank],
                    "_reduce_scatter_base",
                    size * shard,
                    site or "fsdp.py:30:reduce",
                    size,
                    chain=False,
                )
                w.add(rank, of_rep[rank], "all_reduce", size, site or "fsdp.py:33:replicas", chain=False)
            w.add(rank, 0, "all_reduce", 1, "loop.py:40:norm", dtype="Float", joins=True)
            if w.step % every == every - 1:
                for _ in range(2):
                    for size in sizes:
                        w.add(rank, of_fsdp[rank], "_all_gather_base", size, site or "fsdp.py:12:unshard", size * shard)
                    w.add(rank, 0, "all_reduce", 2, "evaluate.py:21:accuracy", dtype="Float", sync=True)
                if rank < shard:
                    w.add(rank, of_fsdp[rank], "gather", 96, "checkpoint.py:60:plan", sync=True)
                    w.add(rank, of_fsdp[rank], "scatter", 96, "checkpoint.py:66:plan", sync=True)
                w.add(rank, 0, "barrier", 1, "checkpoint.py:80:done", dtype="Byte", sync=True)


def both_ways(w: Writer, random: Random) -> None:
    """A pipeline that is fed at both ends, with experts between: neighbours exchange, and data come by broadcast."""
    stages = random.choice([p for p in (2, 4, 8) if w.world % p == 0] or [w.world])
    width = w.world // stages
    of_pp = w.groups_of("pp", [[n + width * s for s in range(stages)] for n in range(width)])
    of_ep = w.groups_of("ep", [list(range(width * s, width * s + width)) for s in range(stages)])
    micros, size = random.randrange(2, 6), random.randrange(1 << 14, 1 << 20)
    for _ in w.steps():
        for rank in range(w.world):
            stage = rank // width
            before, after = rank - width, rank + width
            w.add(rank, of_ep[rank], "broadcast", 8192, "data.py:14:batch", dtype="Long", sync=True)
            for _ in range(micros):
                own = Random(f"{w.job.seed} {w.step} {rank}")
                w.add(rank, of_ep[rank], "all_to_all", own.randrange(size, 2 * size), "deep_ep.py:80:dispatch")
                w.add(
                    rank, of_ep[rank], "all_to_all", own.randrange(size, 2 * size), "deep_ep.py:95:combine", chain=False
                )
                # Even boundaries first, then odd ones: neighbours are in the same batch.
                for odd in (0, 1):
                    other = after if stage % 2 == odd else before
                    if 0 <= other < w.world:
                        w.transfer(rank, of_pp[rank], size, "dualpipe.py:210:exchange", [(rank, other), (other, rank)])
            w.add(rank, 0, "all_reduce", size // 4, "optim.py:30:grads", joins=True)
            w.add(rank, 0, "all_reduce", 1, "optim.py:44:norm", dtype="Float", sync=True)


SHAPES: dict[str, Shape] = {
    shape.__name__: shape for shape in (titan, buckets, zero, experts, interleaved, roles, evaluated, both_ways)
}
#: Calls of all ranks together that one job may have.
_MOST_CALLS = 30_000


def written(job: HangJob, name: str) -> Program:
    """The program of a shape."""
    writer = Writer(job)
    SHAPES[name](writer, Random(f"{job.seed} shape"))
    return writer.program()


def drawn(seed: int) -> tuple[HangJob, str, str, str]:
    """A job of 6 to 48 ranks, its shape, its class, and the format of its dumps."""
    random = Random(f"shapes {seed}")
    while True:
        job = HangJob(
            tp=1,
            pp=1,
            dp=random.choice((6, 8, 8, 10, 12, 12, 16, 16, 18, 24, 32, 48)),
            steps=random.randrange(4, 14),
            seed=seed,
            jitter=random.choice([0, 0.1, 0.2, 0.4]),
            buffer=random.choice([20_000, 2000, 2000, 2000, 500, 200, 100]),
            missing=random.choice([0, 0, 0, 0, 1, 2]),
            timing=random.random() < 0.5,
            batched=random.random() < 0.5,
            shared_names=random.random() < 0.3,
            version=f"2.{random.randrange(1, 11)}",
            recorders=random.random() < 0.5,
        )
        name = list(SHAPES)[seed % len(SHAPES)]
        if sum(map(len, written(job, name).calls)) <= _MOST_CALLS:
            return (
                job,
                name,
                list(CLASSES)[seed // len(SHAPES) % len(CLASSES)],
                random.choice(("pickle", "pickle", "json")),
            )
