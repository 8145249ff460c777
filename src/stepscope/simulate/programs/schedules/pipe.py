"""Point-to-point between pipeline stages: collected, and sent as one batch before the next chunk."""

from __future__ import annotations

from stepscope.simulate.engine.network import Transfer
from stepscope.simulate.engine.rank import Wait
from stepscope.simulate.job.kernels import COMPUTE, P2P, P2P_BACK, P2P_BACK_IN, P2P_IN
from stepscope.simulate.programs.layers import Worker


class Pipe:
    """The neighbours of a rank along the pipeline. `axis` names the communicator that carries the batches."""

    def __init__(self, w: Worker, axis: str) -> None:
        self._w, self._axis = w, axis
        self._ranks = w.mesh.groups[w.group("pp")].ranks
        self._waiting: list[Transfer] = []

    def send(self, stage: int, tag: str) -> None:
        """To the rank at this place of the pipeline, with the next batch."""
        self._add(True, stage, tag)

    def receive(self, stage: int, tag: str) -> None:
        """From it, likewise."""
        self._add(False, stage, tag)

    def _add(self, send: bool, stage: int, tag: str) -> None:
        peer = self._ranks[stage % len(self._ranks)]
        if peer != self._w.sim.rank:
            self._waiting.append(Transfer(send, peer, self._w.model.activation_bytes, tag))

    def commit(self) -> Wait:
        """Exchange what waits; compute goes on after it."""
        if not self._waiting:
            return
        w, sim = self._w, self._w.sim
        slot = COMPUTE if w.faults.inline else P2P
        sim.push("pipeline send/recv")
        if slot == P2P:
            yield from sim.follow(P2P, COMPUTE)
        yield from sim.exchange(w.group(self._axis), self._waiting, slot)
        if slot == P2P:
            yield from sim.follow(COMPUTE, P2P)
        else:
            yield from sim.settle(COMPUTE)
        sim.pop()
        self._waiting = []


class AsyncPipe:
    """Sends and receives by themselves, each direction on streams and a communicator of its own.

    Virtual stages make a ring of the pipeline, where batches would wait for each other in a circle.
    """

    def __init__(self, w: Worker) -> None:
        self._w = w
        self._ranks = w.mesh.groups[w.group("pp")].ranks

    def send(self, stage: int, tag: str) -> Wait:
        """Send what compute has just made; compute goes on."""
        yield from self._post(True, stage, tag)

    def receive(self, stage: int, tag: str) -> Wait:
        """Receive what compute needs next."""
        yield from self._post(False, stage, tag)

    def _post(self, send: bool, stage: int, tag: str) -> Wait:
        w, sim = self._w, self._w.sim
        peer = self._ranks[stage % len(self._ranks)]
        if peer == sim.rank:
            return
        ahead = tag[0] == "f"
        slot = (P2P if send else P2P_IN) if ahead else (P2P_BACK if send else P2P_BACK_IN)
        sim.push("pipeline send/recv")
        # A receive too: posted any earlier, it would only occupy the GPU while it waits.
        yield from sim.follow(slot, COMPUTE)
        one = [Transfer(send, peer, w.model.activation_bytes, tag)]
        yield from sim.exchange(w.group("pp" if ahead else "pp_back"), one, slot)
        # Never wait for a send at once, even where the fault is to serialize: around a ring all would wait for ever.
        if not send:
            yield from sim.follow(COMPUTE, slot)
        sim.pop()

    def finish(self) -> Wait:
        """Compute waits for what is still being sent."""
        for slot in (P2P, P2P_BACK):
            yield from self._w.sim.follow(COMPUTE, slot)
