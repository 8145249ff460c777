"""A two-stage pipeline: one process encodes items and decodes what comes back, another runs the longer stage between.

`depth` items are under way at most. With one the stages take turns; with two the second works on an item while the
first decodes the one before it and encodes the next. Ranges are those of `stepscope.annotate.items`.
"""

from __future__ import annotations

from stepscope.simulate.engine.rank import Wait
from stepscope.simulate.job.kernels import COMPUTE
from stepscope.simulate.programs.layers import Worker
from stepscope.simulate.programs.run_faults import at_end
from stepscope.simulate.programs.schedules.data_parallel import begin
from stepscope.simulate.programs.schedules.pipe import AsyncPipe


def step(w: Worker, number: int) -> Wait:
    """As many items as a step has micro-batches, from an empty pipeline to an empty one."""
    sim = w.sim
    yield from begin(w, number)
    if number == 0:
        sim.push(f"pp:queue_depth={w.scenario.depth}")
        sim.pop()
    first = w.mesh.ranks[sim.rank].coords["pp"][0] == 0
    pipe = AsyncPipe(w)
    yield from (_first if first else _second)(w, pipe, number * w.scenario.micro_batches)
    yield from pipe.finish()
    sim.pop()
    yield from at_end(w, number)


def _first(w: Worker, pipe: AsyncPipe, base: int) -> Wait:
    s = w.scenario
    for item in range(s.micro_batches + s.depth):
        if item >= s.depth:
            yield from _decode(w, pipe, item - s.depth, base)
        if item < s.micro_batches:
            yield from _encode(w, pipe, item, base)


def _encode(w: Worker, pipe: AsyncPipe, item: int, base: int) -> Wait:
    w.sim.push(f"pp:stage0:A_encode k={base + item}")
    for _ in range(w.scenario.layers):
        w.compute("attention_f")
    w.sim.pop()
    yield from pipe.send(1, f"f{item}")


def _decode(w: Worker, pipe: AsyncPipe, item: int, base: int) -> Wait:
    if item >= w.scenario.micro_batches:
        return
    yield from pipe.receive(1, f"b{item}")
    w.sim.push(f"pp:stage0:C_decode k={base + item}")
    for _ in range(w.scenario.layers):
        w.compute("shared1_f")
    w.sim.pop()
    yield from w.sim.sync_stream(COMPUTE)
    w.sim.push(f"pp:emit k={base + item} tokens={w.scenario.seq * w.scenario.mbs}")
    w.sim.pop()


def _second(w: Worker, pipe: AsyncPipe, base: int) -> Wait:
    for item in range(w.scenario.micro_batches):
        yield from pipe.receive(0, f"f{item}")
        w.sim.push(f"pp:stage1:B_layers k={base + item}")
        for layer in range(w.scenario.layers):
            yield from w.forward(layer)
        w.sim.pop()
        yield from pipe.send(0, f"b{item}")
