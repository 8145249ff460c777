"""A training step as a tape of tensors: what is alive when, forwards and backwards, and so what the peak is made of.

Autograd's own rules, applied to a list of ops: forwards an op makes its output and keeps what its backward needs; what
nobody needs any more is gone. Backwards, in reverse order, an op makes the gradients of its inputs and of its weight,
and then drops what it kept and the gradient that it was given. Nothing is measured here, and nothing fitted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

#: What a tensor is to the ledger.
ACTIVATION, TEMPORARY, GRADIENT = "activations", "temporary", "gradients"


@dataclass(frozen=True)
class Tensor:
    """What an op makes: how many bytes, and the formula that gives them."""

    label: str
    formula: str
    size: int


@dataclass(frozen=True)
class Op:
    """One op of the forward pass.

    `inputs` are the tensors that get a gradient; `saves` those that the backward needs, inputs or outputs; `passes`
    that it hands the gradient on as it is (an addition). `scratch` is what its backward uses besides.
    """

    inputs: tuple[str, ...]
    output: str
    tensor: Tensor
    saves: tuple[str, ...] = ()
    extra: tuple[Tensor, ...] = ()  # saved besides: log-sum-exp, a cast weight
    weight: Tensor | None = None  # the gradient of its weight
    passes: bool = False
    scratch: tuple[Tensor, ...] = ()
    held: bool = False  # the program holds the output until the step is over


@dataclass
class Peak:
    """The most that was alive at once, and what that was."""

    size: int = 0
    when: str = ""
    #: (part, label, formula, bytes of one) and how many there are
    alive: Counter[tuple[str, str, str, int]] = field(default_factory=Counter)

    def parts(self) -> dict[str, int]:
        sizes: Counter[str] = Counter()
        for (part, _, _, size), count in self.alive.items():
            sizes[part] += size * count
        return dict(sizes)


class Tape:
    """What is alive while a step is played."""

    def __init__(self, standing: Mapping[tuple[str, str, str, int], int]) -> None:
        self._alive: Counter[tuple[str, str, str, int]] = Counter(standing)
        self._size = sum(size * count for (*_, size), count in standing.items())
        self.peak = Peak()

    def add(self, part: str, tensor: Tensor, when: str, count: int = 1) -> None:
        if not tensor.size:
            return
        self._alive[part, tensor.label, tensor.formula, tensor.size] += count
        self._size += tensor.size * count
        if self._size > self.peak.size:
            self.peak = Peak(self._size, when, self._alive)
            self._alive = self._alive.copy()

    def drop(self, part: str, tensor: Tensor, count: int = 1) -> None:
        if not tensor.size:
            return
        key = part, tensor.label, tensor.formula, tensor.size
        self._alive[key] -= count
        if not self._alive[key]:
            del self._alive[key]
        self._size -= tensor.size * count


def forward(tape: Tape, ops: Sequence[Op], inputs: Iterable[str], when: str, *, keep: bool = True) -> None:
    """Play ops; without `keep` nothing is kept for a backward pass, only `inputs` and the last output."""
    tensors = {op.output: op.tensor for op in ops}
    saved = Counter(name for op in ops for name in op.saves) if keep else Counter[str]()
    last = {name: number for number, op in enumerate(ops) for name in op.inputs}
    fixed = {*inputs, ops[-1].output, *(op.output for op in ops if op.held)}
    for number, op in enumerate(ops):
        tape.add(ACTIVATION, op.tensor, when)
        for extra in op.extra if keep else ():
            tape.add(ACTIVATION, extra, when)
        for name in {op.output, *op.inputs}:
            if name in tensors and name not in fixed and not saved[name] and last.get(name, number) == number:
                tape.drop(ACTIVATION, tensors[name])


def backward(
    tape: Tape, ops: Sequence[Op], when: str, grad: Tensor | None, outer: Mapping[str, Tensor] | None = None
) -> dict[str, Tensor]:
    """Play ops in reverse. `grad` is the gradient of the last output; those of `outer`, the inputs, are returned."""
    outer = outer or {}
    tensors = {**outer, **{op.output: op.tensor for op in ops}}
    saved = Counter(name for op in ops for name in op.saves)
    kept = {*outer, *(op.output for op in ops if op.held)}
    grads: dict[str, Tensor] = {ops[-1].output: grad} if grad is not None else {}
    sharing: Counter[int] = Counter([id(grad)])
    if ops[-1].output not in kept and not saved[ops[-1].output]:
        tape.drop(ACTIVATION, ops[-1].tensor)
    for op in reversed(ops):
        given = grads.pop(op.output, None)
        for extra in op.scratch:
            tape.add(TEMPORARY, extra, when)
        for name in op.inputs:
            if (tensor := tensors.get(name)) is None:
                continue
            made = Tensor(f"gradient of {tensor.label}", tensor.formula, tensor.size)
            if op.passes and given is not None and name not in grads:
                grads[name] = given
                sharing[id(given)] += 1
                continue
            tape.add(TEMPORARY, made, when)
            if name in grads:  # it is added in place to the one that is there
                tape.drop(TEMPORARY, made)
            else:
                grads[name] = made
                sharing[id(made)] += 1
        if op.weight is not None:
            tape.add(GRADIENT, op.weight, when)
        for extra in op.scratch:
            tape.drop(TEMPORARY, extra)
        for extra in op.extra:
            tape.drop(ACTIVATION, extra)
        if given is not None:
            sharing[id(given)] -= 1
            if not sharing[id(given)]:
                tape.drop(TEMPORARY, given)
        for name in op.saves:
            saved[name] -= 1
            if not saved[name] and name in tensors and name not in kept:
                tape.drop(ACTIVATION, tensors[name])
    return {name: grads[name] for name in outer if name in grads}
