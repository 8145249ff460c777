"""Schedules without a pipeline: DDP (gradients reduced in buckets) and FSDP (parameters gathered layer by layer)."""

from __future__ import annotations

from collections.abc import Generator

from stepscope.simulate.engine.rank import Event, Wait
from stepscope.simulate.engine.record import AUTOGRAD, MAIN
from stepscope.simulate.job import costs
from stepscope.simulate.job.kernels import COMPUTE, DP, SHARD
from stepscope.simulate.programs.layers import Worker
from stepscope.simulate.programs.run_faults import at_begin, at_end

#: Layers whose gradients DDP reduces together.
_BUCKET = 1


def ddp(w: Worker, number: int) -> Wait:
    """Backward passes reduce each bucket as soon as it is whole, in the last micro-batch."""
    s, sim = w.scenario, w.sim
    yield from begin(w, number)
    for mb in range(s.micro_batches):
        sim.push(f"forward mb {mb}")
        w.compute("embedding_f")
        for layer in range(s.layers):
            yield from w.forward(layer)
        w.compute("head_f")
        w.compute("loss_f")
        sim.pop()
        sim.push(f"backward mb {mb}")
        sim.switch(AUTOGRAD)
        w.compute("loss_b")
        last = mb == s.micro_batches - 1 or w.faults.reduces
        for layer in reversed(range(s.layers)):
            yield from w.backward(layer)
            if last and layer % _BUCKET == 0 and not w.faults.one_bucket:
                yield from w.launch("all_reduce", "data", w.model.layer_bytes * _BUCKET, DP)
        w.compute("embedding_b")
        if last and w.faults.one_bucket:
            yield from w.launch("all_reduce", "data", w.model.layer_bytes * s.layers, DP)
        sim.switch(MAIN)
        sim.pop()
    if w.size("data") > 1:
        yield from sim.follow(COMPUTE, COMPUTE if w.faults.inline else DP)
    yield from end(w, number)


def fsdp(w: Worker, number: int) -> Wait:
    """Each layer's parameters are gathered one layer ahead, and its gradients scattered behind."""
    s, sim = w.scenario, w.sim
    yield from begin(w, number)
    for mb in range(s.micro_batches):
        sim.push(f"forward mb {mb}")
        ready = yield from _first(w)
        w.compute("embedding_f")
        for layer in range(s.layers):
            ready = yield from _use(w, ready, more=layer + 1 < s.layers)
            yield from w.forward(layer)
        w.compute("head_f")
        w.compute("loss_f")
        sim.pop()
        sim.push(f"backward mb {mb}")
        sim.switch(AUTOGRAD)
        ready = yield from _first(w)
        w.compute("loss_b")
        for layer in reversed(range(s.layers)):
            ready = yield from _use(w, ready, more=layer > 0)
            yield from w.backward(layer)
            yield from w.launch("reduce_scatter", "data", w.model.layer_bytes // w.size("data"), SHARD)
        w.compute("embedding_b")
        sim.switch(MAIN)
        sim.pop()
    if w.size("data") > 1:
        yield from sim.follow(COMPUTE, COMPUTE if w.faults.inline else SHARD)
    yield from end(w, number)


def _gather(w: Worker) -> Generator[None, None, Event | None]:
    """Start gathering a layer's parameters."""
    if w.size("data") == 1:
        return None
    # The buffers of the layer before the last one must be free, nothing else: the gather runs ahead of compute.
    yield from w.launch("all_gather", "data", w.model.layer_bytes // w.size("data"), DP)
    return w.sim.record(COMPUTE if w.faults.inline else DP)


def _first(w: Worker) -> Generator[None, None, Event | None]:
    """The parameters of a pass' first layer, ahead of it."""
    return None if w.faults.unfetched else (yield from _gather(w))


def _use(w: Worker, ready: Event | None, more: bool) -> Generator[None, None, Event | None]:
    """Wait for the layer's parameters, having started on the next one's."""
    if w.faults.unfetched:
        ready, more = (yield from _gather(w)), False
    coming = (yield from _gather(w)) if more else None
    if ready is not None:
        yield from w.sim.wait(COMPUTE, ready)
    return coming


def begin(w: Worker, number: int) -> Wait:
    """Open the step, and get its batch."""
    sim = w.sim
    sim.push(f"step {number}")
    sim.sleep(w.faults.delay_ns)
    yield from at_begin(w, number)
    sim.host(costs.STEP_PYTHON)
    yield from w.within("data", w.data)


def end(w: Worker, number: int) -> Wait:
    """Update the weights, report, and close the step."""
    yield from w.within("optimizer", w.optimizer)
    yield from w.report_loss()
    w.sim.pop()
    yield from at_end(w, number)
