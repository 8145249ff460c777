"""Faults of the run: what single steps, every N-th one, or later ones do beyond the usual."""

from __future__ import annotations

from random import Random

from stepscope.simulate.engine.rank import Wait
from stepscope.simulate.engine.record import AUTOGRAD, MAIN
from stepscope.simulate.job.faults import Fault
from stepscope.simulate.job.kernels import COPIES
from stepscope.simulate.programs.layers import Worker

#: Copies to the host by which a checkpoint gets the weights.
_COPIES = 16


def at_begin(w: Worker, number: int) -> Wait:
    """A step begins: it may be one that is late, or later than the one before, or do what recurs every so many steps.

    A checkpoint of a program that nobody annotated is written after the optimizer's step, which ends a range: it lies
    in the range of the next.
    """
    for fault in w.faults.of_the_run:
        if fault.name == "spike" and str(number) in fault.params["at"].split("+"):
            w.sim.sleep(round(fault.params["ms"] * 1_000_000))
        elif fault.name == "drift":
            w.sim.sleep(round(fault.params["us"] * 1000 * number))
        elif fault.name == "noise":  # with the long tail that hosts have
            chance = Random(f"{w.scenario.seed}/{w.sim.rank}/{number}")
            w.sim.sleep(round(fault.params["us"] * 1000 * chance.expovariate(1.0)))
    if number:
        yield from _recurring(w, number - 1, "in")


def at_end(w: Worker, number: int) -> Wait:
    """The range of a step is over: a checkpoint is written, the model evaluated."""
    yield from _recurring(w, number, "between")


def _recurring(w: Worker, number: int, where: str) -> Wait:
    for fault in w.faults.of_the_run:
        if fault.params.get("where") == where and fault.recurs(number):
            yield from _KINDS[fault.name](w, fault)


def _checkpoint(w: Worker, fault: Fault) -> Wait:
    """Weights to the host, then to the disk: the GPU has nothing to do."""
    w.sim.push("checkpoint")
    for _ in range(_COPIES):
        yield from w.sim.copy(COPIES, w.model.layer_bytes // _COPIES, to_host=True)
    yield from w.sim.sync_device()
    w.sim.sleep(round(fault.params["ms"] * 1_000_000))
    w.sim.pop()


def _penalty(w: Worker, fault: Fault) -> Wait:
    """Forward and backward passes once more: a step of another kind."""
    w.sim.push("penalty")
    for _ in range(fault.params["passes"]):
        w.compute("embedding_f")
        for layer in range(w.scenario.layers):
            yield from w.forward(layer)
        w.sim.switch(AUTOGRAD)
        for layer in reversed(range(w.scenario.layers)):
            yield from w.backward(layer)
        w.compute("embedding_b")
        w.sim.switch(MAIN)
    w.sim.pop()


def _evaluation(w: Worker, fault: Fault) -> Wait:
    """Forward passes, and a loss each."""
    w.sim.push("evaluation")
    for _ in range(fault.params["passes"]):
        w.compute("embedding_f")
        for layer in range(w.scenario.layers):
            yield from w.forward(layer)
        w.compute("head_f")
        w.compute("loss_f")
    yield from w.sim.item()
    w.sim.pop()


_KINDS = {"checkpoint": _checkpoint, "evaluation": _evaluation, "penalty": _penalty}
