"""What a declared model needs on one rank: the ledger of a step that nobody ran, from stated terms (semantics §17)."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace

from stepscope.derive.memory.shapes import FULL, HALF, Builder, Shape
from stepscope.derive.memory.tape import ACTIVATION, TEMPORARY, Op, Peak, Tape, Tensor, backward, forward
from stepscope.errors import BadInput
from stepscope.model.declared import Model, matrices, parameters, vectors

#: PyTorch's workspace for cuBLAS on Hopper and later: one of the thread that runs forwards, one of autograd's.
WORKSPACE = 32 << 20
#: States of an optimizer for each parameter, and whether a step makes a copy of the weights' size beside them
#: (`foreach`, the default of torch.optim on CUDA: the square roots of the second moments).
OPTIMIZERS = {"adamw": (2, True), "adamw-fused": (2, False), "sgd": (0, False), "momentum": (1, False)}
PRECISIONS = ("bf16", "autocast", "mixed")


@dataclass(frozen=True)
class Job:
    """How a model is trained. `mixed`: bf16 weights with fp32 master weights, states and gradients (Megatron)."""

    model: Model
    seq: int
    mbs: int = 1
    precision: str = "bf16"
    optimizer: str = "adamw"
    recompute: bool = False
    zero: int = 0
    flash: bool = True
    dp: int = 1
    tp: int = 1
    pp: int = 1
    cp: int = 1
    ep: int = 1
    #: micro-batches whose activations the first stage holds; 0: as many as there are stages
    in_flight: int = 0
    #: tokens that the KV cache of a server holds; 0: the job trains
    kv_tokens: int = 0

    @property
    def tokens(self) -> int:
        return self.seq * self.mbs // self.cp


@dataclass(frozen=True)
class Estimate:
    """The peak of the stage that needs most."""

    job: Job
    stage: int
    parameters: int  # on the rank
    peak: Peak
    total: int  # parameters of the whole model

    @property
    def size(self) -> int:
        return self.peak.size


def check(job: Job) -> None:
    """Refuse what cannot be estimated, and say what is missing."""
    m = job.model
    if not m.heads:
        raise BadInput(f"--model {m.name}: without heads nothing is known of attention", "give heads = N")
    if not (m.dense_width or m.expert_width):
        raise BadInput(f"--model {m.name}: no width of the feed-forward", "give dense_width = N (or experts)")
    for axis, what, count in (
        ("tp", "heads", m.heads),
        ("tp", "KV heads", m.kv_heads or m.heads),
        ("pp", "layers", m.layers),
    ):
        size = getattr(job, axis)
        if size > 1 and count % size and not (what == "layers" and count > size):
            raise BadInput(f"{count} {what} do not divide over {axis} = {size}", f"give --{axis} a divisor of {count}")
    if job.ep > 1 and (not m.experts or m.experts % job.ep):
        raise BadInput(
            f"{m.experts} experts do not divide over ep = {job.ep}", f"give --ep a divisor of {m.experts or 1}"
        )
    if job.zero and job.dp * job.cp * job.ep == 1:
        raise BadInput(f"--zero {job.zero} shards over data-parallel ranks, of which there is one", "give --dp N")


def estimate(job: Job) -> Estimate:
    """The peak of a step after the first one: the optimizer has its states."""
    check(job)
    stages = {0, job.pp - 1}
    return max((_stage(job, stage) for stage in stages), key=lambda e: e.size)


def _stage(job: Job, stage: int) -> Estimate:
    m, shape = job.model, _shape(job)
    layers = math.ceil(m.layers / job.pp)
    dense = max(0, min(layers, m.layers - m.mixture_layers - stage * layers)) if m.experts else layers
    first, last = stage == 0, stage == job.pp - 1
    count = _parameters(job, layers, dense, first, last)
    in_flight = (job.in_flight or job.pp) - stage if job.pp > 1 else 1
    builder = Builder(shape)
    x = builder.embedding() if first and m.vocabulary else "x"
    segments, names = [list(builder.ops)], [x]
    builder.ops.clear()
    for layer in range(layers):
        x = builder.layer(x, f"{layer}.", m.experts > 0 and layer >= dense)
        segments.append(list(builder.ops))
        names.append(x)
        builder.ops.clear()
    if last and m.vocabulary:
        builder.loss(x)
    segments.append(list(builder.ops))
    if job.kv_tokens:
        return Estimate(job, stage, count.all, _served(job, count, layers, segments), parameters(m))
    stood = Tape(_standing(job, count, layers))
    if not segments[0]:
        stood.add(ACTIVATION, replace(_x(shape), label="input of the stage"), "the forward pass", max(1, in_flight))
    others = max(0, in_flight - 1)
    if others:
        held = Tape({})
        _forward(held, segments, names, job.recompute, "")
        for (part, label, formula, size), n in held.peak.alive.items():
            if part == ACTIVATION and not label.startswith(("logits", "log of")):
                stood.add(part, Tensor(f"{label} (micro-batches in flight)", formula, size), "forward", n * others)
    _step(stood, segments, names, job.recompute, _x(shape))
    after = _after(job, count, layers)
    peak = max(stood.peak, after, key=lambda p: p.size)
    return Estimate(job, stage, count.all, peak, parameters(m))


def _served(job: Job, count: _Counts, layers: int, segments: list[list[Op]]) -> Peak:
    """A server's forward pass: weights, the cache, and what a layer needs at once; logits of a token a sequence."""
    m = job.model
    size = FULL if job.precision == "autocast" else HALF
    if m.kv_rank:  # latent attention keeps what keys and values are projected from, on every rank
        each, formula = m.kv_rank + m.rope_width, "layers × tokens × (latent + rope) × bytes"
    else:
        each = (m.kv_heads or m.heads) * (m.head + m.value) // job.tp
        formula = "layers × tokens × (k + v) × bytes"
    tape = Tape(
        {
            ("weights", "weights", f"{size} P", size * count.all): 1,
            ("KV cache", "keys and values", formula, layers * (job.kv_tokens // job.cp) * each * HALF): 1,
            ("temporary", "workspace of cuBLAS", "32 MiB a thread", WORKSPACE): 1,
        }
    )
    for number, ops in enumerate(segments[:-1]):
        if ops:
            forward(tape, ops, (), "the forward pass", keep=False)
            if number:
                tape.drop(ACTIVATION, ops[-1].tensor)  # the next layer's input is counted once
    if segments[-1]:
        logits = FULL * job.mbs * math.ceil(m.vocabulary / job.tp)
        tape.add(TEMPORARY, Tensor("logits of the last tokens", "4 V a sequence", logits), "the forward pass")
    return tape.peak


def _step(tape: Tape, segments: list[list[Op]], names: list[str], recompute: bool, x: Tensor) -> None:
    """Forward and backward of one micro-batch."""
    embedding, layers, head = segments[0], segments[1:-1], segments[-1]
    if not recompute:
        ops = [op for segment in segments for op in segment]
        forward(tape, ops, (), "the forward pass")
        grad = None if head else _grad(x)
        if grad is not None:
            tape.add(TEMPORARY, grad, "the backward pass")
        backward(tape, ops, "the backward pass", grad)
        return
    _forward(tape, segments, names, True, "the forward pass")
    grads: dict[str, Tensor] = {}
    if head:
        grads = backward(tape, head, "the backward pass of the loss", None, {names[-1]: x})
    else:
        grads[names[-1]] = _grad(x)
        tape.add(TEMPORARY, grads[names[-1]], "the backward pass")
    for number in range(len(layers) - 1, -1, -1):
        if number < len(layers) - 1 or not head:
            tape.drop(ACTIVATION, x)  # its output is nobody's input any more
        forward(tape, layers[number], (names[number],), "the backward pass, computing a layer again")
        grads = backward(tape, layers[number], "the backward pass", grads[names[number + 1]], {names[number]: x})
    if embedding:
        backward(tape, embedding, "the backward pass", grads[names[0]])


def _forward(tape: Tape, segments: list[list[Op]], names: list[str], recompute: bool, when: str) -> None:
    embedding, layers, head = segments[0], segments[1:-1], segments[-1]
    if not recompute:
        forward(tape, [op for segment in segments for op in segment], (), when)
        return
    if embedding:
        forward(tape, embedding, (), when)
    for number, ops in enumerate(layers):
        forward(tape, ops, (names[number],), when, keep=False)
    if head:
        forward(tape, head, (names[-1],), when)
        tape.drop(ACTIVATION, _stream(segments))


def _shape(job: Job) -> Shape:
    m = job.model
    return Shape(
        m, job.tokens, m.heads * m.head // job.tp, (m.kv_heads or m.heads) * m.head // job.tp, m.heads // job.tp,
        m.dense_width // job.tp, job.tokens * m.experts_per_token, m.expert_width // job.tp,
        m.shared_experts * m.expert_width // job.tp, math.ceil(m.vocabulary / job.tp),
        FULL if job.precision == "autocast" else HALF, job.flash, job.seq // job.cp, max(1, m.experts // job.ep),
        *_shards(job),
    )  # fmt: skip


@dataclass(frozen=True)
class _Counts:
    """Parameters on one rank: of routed experts, which fewer ranks have a copy of, and all others."""

    experts: int
    others: int

    @property
    def all(self) -> int:
        return self.experts + self.others

    def sharded(self, job: Job, stage: int) -> float:
        """As many as a rank keeps where `stage` of ZeRO divides them, over all ranks that have the same ones."""
        if job.zero < stage:
            return self.all
        ranks = job.dp * job.cp
        return self.experts / ranks + self.others / (ranks * job.ep)


def _shards(job: Job) -> tuple[int, int]:
    """`Shape.expert_shards` and `Shape.shards`."""
    if job.precision == "mixed":
        return 0, 0
    ranks = job.dp * job.cp
    return (ranks, ranks * job.ep) if job.zero >= 2 else (1, 1)


def _parameters(job: Job, layers: int, dense: int, first: bool, last: bool) -> _Counts:
    """Matrices are divided over tp, experts over ep, layers over pp."""
    m, experts, others = job.model, 0, 0
    for matrix in matrices(m):
        share = matrix.parameters / (job.tp if matrix.part != "router" else 1)
        if matrix.part == "output":
            others += int(share) * last
        elif matrix.part == "feed-forward":
            others += int(share * dense / max(1, m.layers - m.mixture_layers))
        elif matrix.part == "experts":
            experts += int(share * (layers - dense) / max(1, m.mixture_layers) / job.ep)
        elif matrix.part in ("shared experts", "router"):
            others += int(share * (layers - dense) / max(1, m.mixture_layers))
        else:
            others += int(share * layers / m.layers)
    embedding = m.vocabulary * m.width // job.tp * first * (not m.tied or not last)
    norm = m.width * (2 if m.layer_norm else 1) * last if m.vocabulary else 0
    return _Counts(experts, others + embedding + layers * vectors(m) + norm)


@dataclass(frozen=True)
class _Bytes:
    """Bytes of a parameter: of its weight, its gradient and its states."""

    weight: int
    gradient: int
    states: int


def _bytes(job: Job) -> _Bytes:
    states, _ = OPTIMIZERS[job.optimizer]
    if job.precision == "mixed":
        return _Bytes(HALF, FULL, FULL * (states + 1))
    size = FULL if job.precision == "autocast" else HALF
    return _Bytes(size, size, size * states)


def _standing(job: Job, count: _Counts, layers: int) -> dict[tuple[str, str, str, int], int]:
    """What is there all through the step. ZeRO: 1 divides states, 2 gradients too, 3 weights too."""
    each, copies = _bytes(job), job.dp * job.cp * job.ep
    standing: Counter[tuple[str, str, str, int]] = Counter()

    def put(part: str, label: str, formula: str, size: float) -> None:
        if size:
            standing[part, label, formula, int(size)] += 1

    put("weights", "weights", _of(each.weight, job, 3), each.weight * count.sharded(job, 3))
    put("optimizer states", "optimizer states", _of(each.states, job, 1), each.states * count.sharded(job, 1))
    if job.precision == "mixed":
        put("gradients", "gradients", _of(each.gradient, job, 2), each.gradient * count.sharded(job, 2))
    if job.zero >= 3:
        put(
            "communication", "weights of two layers, gathered", "2 layers", 2 * each.weight * count.all / max(1, layers)
        )
    elif copies > 1 and job.zero < 2 and job.precision != "mixed":
        put("communication", "buckets of DDP", f"{each.gradient} P", each.gradient * count.all)
    standing["temporary", "workspace of cuBLAS", "32 MiB a thread", WORKSPACE] += 2
    put("activations", "ids of tokens", "8 T", 8 * job.tokens)
    put("activations", "labels, shifted", "8 T", 8 * job.tokens)
    return dict(standing)


def _of(size: int, job: Job, stage: int) -> str:
    return f"{size} P" + (" / ranks" if job.zero >= stage else "")


def _after(job: Job, count: _Counts, layers: int) -> Peak:
    """The optimizer's step: all gradients, no activations, and what the optimizer needs for itself."""
    each = _bytes(job)
    alive = Counter({k: n for k, n in _standing(job, count, layers).items() if k[0] != "activations"})
    if job.precision != "mixed":
        size = int(each.gradient * count.sharded(job, 2))
        alive["gradients", "gradients", _of(each.gradient, job, 2), size] += 1
    states, copies = OPTIMIZERS[job.optimizer]
    if copies and states:
        size = FULL if job.precision == "mixed" else each.weight
        label = "roots of second moments (foreach)"
        alive["temporary", label, _of(size, job, 1), int(size * count.sharded(job, 1))] += 1
    return Peak(sum(k[3] * n for k, n in alive.items()), "the optimizer's step", alive)


def _x(shape: Shape) -> Tensor:
    return Tensor("residual stream", f"{shape.residual} T h", shape.residual * shape.tokens * shape.model.width)


def _stream(segments: list[list[Op]]) -> Tensor:
    """The output of the last layer."""
    return segments[-2][-1].tensor


def _grad(x: Tensor) -> Tensor:
    return replace(x, label=f"gradient of {x.label}")
