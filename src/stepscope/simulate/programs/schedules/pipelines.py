"""1F1B, interleaved 1F1B and zero-bubble (ZB-H1): an order of chunks per rank, and one way to run it."""

from __future__ import annotations

from typing import NamedTuple

from stepscope.simulate.engine.rank import Wait
from stepscope.simulate.engine.record import AUTOGRAD, MAIN
from stepscope.simulate.programs.layers import Worker
from stepscope.simulate.programs.schedules.data_parallel import begin, end
from stepscope.simulate.programs.schedules.pipe import AsyncPipe, Pipe


class Chunk(NamedTuple):
    """One piece of work: `f`orward, `b`ackward or `w`eights of a micro-batch in one of the rank's virtual stages."""

    kind: str
    virtual: int
    mb: int


def one_f_one_b(w: Worker, number: int) -> Wait:
    """Warm-up forwards, then one forward and one backward in turn."""
    yield from _run(w, number, order_1f1b(*_place(w), w.scenario.micro_batches), split=False)


def interleaved(w: Worker, number: int) -> Wait:
    """1F1B over several virtual stages per rank."""
    s = w.scenario
    yield from _run_virtual(w, number, order_interleaved(*_place(w), s.micro_batches, s.vpp))


def zero_bubble(w: Worker, number: int) -> Wait:
    """ZB-H1: weight gradients apart, and put off to fill the drain."""
    yield from _run(w, number, order_zero_bubble(*_place(w), w.scenario.micro_batches), split=True)


def _place(w: Worker) -> tuple[int, int]:
    return w.mesh.ranks[w.sim.rank].coords["pp"]


def order_1f1b(r: int, p: int, m: int) -> list[Chunk]:
    """Order of rank r of p with m micro-batches."""
    warm = min(p - r - 1, m)
    order = [Chunk("f", 0, i) for i in range(warm)]
    for i in range(m - warm):
        order += [Chunk("f", 0, warm + i), Chunk("b", 0, i)]
    return order + [Chunk("b", 0, i) for i in range(m - warm, m)]


def order_zero_bubble(r: int, p: int, m: int) -> list[Chunk]:
    """As 1F1B, with rank r keeping up to r weight gradients for later: every rank holds p activations then."""
    order: list[Chunk] = []
    done = 0
    for chunk in order_1f1b(r, p, m):
        order.append(chunk)
        if chunk.kind == "b" and chunk.mb - r >= done:
            order.append(Chunk("w", 0, done))
            done += 1
    return order + [Chunk("w", 0, i) for i in range(done, m)]


def order_interleaved(r: int, p: int, m: int, v: int) -> list[Chunk]:
    """Micro-batches go through the virtual stages in groups of p."""
    total = m * v
    warm = min((p - r - 1) * 2 + (v - 1) * p, total)

    def chunk(kind: str, k: int) -> Chunk:
        virtual = k % (p * v) // p
        return Chunk(kind, virtual if kind == "f" else v - 1 - virtual, k // (p * v) * p + k % p)

    order = [chunk("f", k) for k in range(warm)]
    for k in range(total - warm):
        order += [chunk("f", warm + k), chunk("b", k)]
    return order + [chunk("b", k) for k in range(total - warm, total)]


def spread(layers: int, stages: int) -> list[list[int]]:
    """Layers of each stage, as even as they go, the first ones larger."""
    size, extra = divmod(layers, stages)
    cuts = [i * size + min(i, extra) for i in range(stages + 1)]
    return [list(range(cuts[i], cuts[i + 1])) for i in range(stages)]


def _run(w: Worker, number: int, order: list[Chunk], split: bool) -> Wait:
    """Run an order of chunks, with one batch of transfers before each."""
    s, (r, p) = w.scenario, _place(w)
    layers = spread(s.layers, p)[r]
    first, last = r == 0, r == p - 1
    pipe = Pipe(w, "pp")
    yield from begin(w, number)
    for kind, _, mb in order:
        if kind == "f":
            if not first:
                pipe.receive(r - 1, f"f{mb}")
            yield from pipe.commit()
            yield from _forward(w, mb, layers, first, last)
            if not last:
                pipe.send(r + 1, f"f{mb}")
        elif kind == "b":
            if not last:
                pipe.receive(r + 1, f"b{mb}")
            yield from pipe.commit()
            yield from _backward(w, mb, layers, first, last, split)
            if not first:
                pipe.send(r - 1, f"b{mb}")
        else:
            # The gradient that the neighbour waits for goes out before the weights are seen to.
            yield from pipe.commit()
            w.sim.push(f"weight mb {mb}")
            for layer in reversed(layers):
                yield from w.stage3_w(layer)
            w.sim.pop()
    yield from pipe.commit()
    yield from w.reduce_gradients(len(layers))
    yield from end(w, number)


def _run_virtual(w: Worker, number: int, order: list[Chunk]) -> Wait:
    """Run an order of chunks of several virtual stages, each transfer by itself."""
    s, (r, p) = w.scenario, _place(w)
    stages = spread(s.layers, p * s.vpp)
    last = len(stages) - 1
    pipe = AsyncPipe(w)
    yield from begin(w, number)
    for kind, virtual, mb in order:
        stage = virtual * p + r
        if kind == "f":
            if stage > 0:
                yield from pipe.receive(r - 1, f"f{stage}.{mb}")
            yield from _forward(w, mb, stages[stage], stage == 0, stage == last)
            if stage < last:
                yield from pipe.send(r + 1, f"f{stage + 1}.{mb}")
        else:
            if stage < last:
                yield from pipe.receive(r + 1, f"b{stage}.{mb}")
            yield from _backward(w, mb, stages[stage], stage == 0, stage == last, split=False)
            if stage > 0:
                yield from pipe.send(r - 1, f"b{stage - 1}.{mb}")
    yield from pipe.finish()
    yield from w.reduce_gradients(sum(len(stages[i * p + r]) for i in range(s.vpp)))
    yield from end(w, number)


def _forward(w: Worker, mb: int, layers: list[int], first: bool, last: bool) -> Wait:
    w.sim.push(f"forward mb {mb}")
    if first:
        w.compute("embedding_f")
    for layer in layers:
        yield from w.forward(layer)
    if last:
        w.compute("head_f")
        w.compute("loss_f")
    w.sim.pop()


def _backward(w: Worker, mb: int, layers: list[int], first: bool, last: bool, split: bool) -> Wait:
    sim = w.sim
    sim.push(f"backward mb {mb}")
    # A schedule that splits the backward pass calls autograd piece by piece, from its own thread.
    if not split:
        sim.switch(AUTOGRAD)
    if last:
        w.compute("loss_b")
    for layer in reversed(layers):
        yield from w.backward(layer, weights=not split)
    if first:
        w.compute("embedding_b")
    if not split:
        sim.switch(MAIN)
    sim.pop()
