"""A rank at work on the model: what every schedule is made of, stage by stage of a layer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from stepscope.simulate.engine.network import Transfer
from stepscope.simulate.engine.rank import Event, RankSim, Wait
from stepscope.simulate.job import costs
from stepscope.simulate.job.blocks import Block
from stepscope.simulate.job.faults import Fault
from stepscope.simulate.job.kernels import COMPUTE, COPIES, CP, DP, EP
from stepscope.simulate.job.mesh import Mesh
from stepscope.simulate.job.model import Model
from stepscope.simulate.job.scenario import Scenario

#: Blocks whose kernels are as large as the model, whatever the batch.
OF_WEIGHTS = ("norm", "optimizer")


@dataclass
class Faults:
    """What is wrong with one rank, read once."""

    stall_ns: int = 0  # of the data loader, per step
    delay_ns: int = 0  # at the start of each step
    items: int = 0  # host synchronizations per layer
    allocations: int = 0  # cudaMalloc and cudaFree pairs per layer
    waits: bool = False  # every communication is waited for at once
    inline: bool = False  # ... by being on the compute stream
    skew: float = 1.0  # of this rank's expert load
    extra: int = 0  # attentions of no use per layer
    python_ns: int = 0  # before each layer
    reduces: bool = False  # gradients in every micro-batch
    one_bucket: bool = False  # of all gradients
    unfetched: bool = False  # parameters are gathered when they are needed
    of_the_run: list[Fault] = field(default_factory=list)  # of some steps


@dataclass
class Worker:
    """One rank with its model, its communicators and its faults. Each method is a piece of a training step."""

    sim: RankSim
    model: Model
    mesh: Mesh
    scenario: Scenario
    faults: Faults
    #: layer and pass ("f", "b") -> the event after its last stage on either stream
    _events: dict[tuple[int, str], Event] = field(default_factory=dict)

    def group(self, axis: str) -> int:
        """Index of this rank's communicator along an axis."""
        return self.mesh.of[self.sim.rank][axis]

    def size(self, axis: str) -> int:
        """Members of that communicator."""
        return len(self.mesh.groups[self.group(axis)].ranks)

    def compute(self, name: str) -> None:
        """A block of the model; experts at this rank's own load."""
        tables = self.sim.tables
        table = tables.expert if name.startswith("experts") else tables.weights if name in OF_WEIGHTS else None
        self.sim.compute(self.model[name], table)

    # -- communication ---------------------------------------------------------------------------------------------

    def launch(self, kind: str, axis: str, size: int, slot: int, after: Event | None = None) -> Wait:
        """An asynchronous collective on its own stream, after what the compute stream has (or after an event)."""
        sim = self.sim
        if self.size(axis) == 1:
            return
        if self.faults.inline:
            slot = COMPUTE
        else:
            yield from sim.wait(slot, after or sim.record(COMPUTE))
        yield from sim.collective(kind, self.group(axis), size, slot)
        if self.faults.waits:
            yield from sim.follow(COMPUTE, slot)

    def barrier(self, kind: str, axis: str, size: int) -> Wait:
        """A collective on the compute stream, as c10d runs those that are not asynchronous."""
        if self.size(axis) > 1:
            yield from self.sim.collective(kind, self.group(axis), size, COMPUTE)

    def all_to_all(self, layer: int, way: str) -> Wait:
        """Dispatch or combine of a layer's tokens, after its last stage of that pass."""
        if self.size("ep") > 1:
            size = int(self.model.expert_bytes * self.faults.skew)
            yield from self.launch("all_to_all", "ep", size, EP, self._events.pop((layer, way), None))
            self._events[layer, way] = self.sim.record(COMPUTE if self.faults.inline else EP)

    def arrived(self, layer: int, way: str) -> Wait:
        """Compute waits for the layer's all-to-all."""
        event = self._events.pop((layer, way), None)
        if event is not None:
            yield from self.sim.wait(COMPUTE, event)

    def mark(self, layer: int, way: str) -> None:
        """The layer's next all-to-all may start here."""
        if self.size("ep") > 1:
            self._events[layer, way] = self.sim.record(COMPUTE)

    # -- stages of a layer -------------------------------------------------------------------------------------------

    def stage1_f(self, layer: int) -> Wait:
        """Attention and router; with experts elsewhere, how many tokens go where."""
        yield from self._troubles()
        yield from self._attention("attention_f", self.model.ring)
        for _ in range(self.faults.extra):
            self.compute("attention_f")
        yield from self.barrier("all_reduce", "tp", self.model.activation_bytes)
        self.compute("router_f")
        if self.size("ep") > 1:
            yield from self.barrier("all_to_all", "ep", self.model.meta_bytes)
            yield from self.sim.sync_stream(COMPUTE)
            yield from self.barrier("all_to_all", "ep", self.model.meta_bytes)
        self.mark(layer, "f")

    def stage3_f(self, layer: int) -> Wait:
        """Experts."""
        yield from self.arrived(layer, "f")
        self.compute("experts_f")
        self.mark(layer, "f")

    def stage5_f(self, layer: int) -> Wait:
        """Weighted sum and residual."""
        yield from self.arrived(layer, "f")
        self.compute("combine_f")
        yield from self.barrier("all_reduce", "tp", self.model.activation_bytes)

    def stage5_b(self, layer: int) -> Wait:
        """Backward of the sum."""
        yield from self.barrier("all_reduce", "tp", self.model.activation_bytes)
        self.compute("combine_b")
        self.mark(layer, "b")

    def stage3_b(self, layer: int) -> Wait:
        """Gradient of the experts' inputs."""
        yield from self.arrived(layer, "b")
        self.compute("experts_b")
        self.mark(layer, "b")

    def stage3_w(self, layer: int) -> Wait:
        """Gradient of the experts' weights."""
        self.compute("experts_w")
        yield from ()

    def stage1_b(self, layer: int) -> Wait:
        """Backward of router and attention."""
        yield from self.arrived(layer, "b")
        self.compute("router_b")
        yield from self.barrier("all_reduce", "tp", self.model.activation_bytes)
        yield from self._attention("attention_b", self.model.ring_back)

    def forward(self, layer: int) -> Wait:
        """A layer; its shared experts run beside the all-to-alls."""
        yield from self.stage1_f(layer)
        yield from self.all_to_all(layer, "f")
        self.compute("shared1_f")
        yield from self.stage3_f(layer)
        yield from self.all_to_all(layer, "f")
        self.compute("shared2_f")
        yield from self.stage5_f(layer)

    def backward(self, layer: int, weights: bool = True) -> Wait:
        """Its backward pass; `weights` off leaves the experts' weight gradient for later."""
        yield from self.stage5_b(layer)
        yield from self.all_to_all(layer, "b")
        self.compute("shared2_b")
        yield from self.stage3_b(layer)
        yield from self.all_to_all(layer, "b")
        self.compute("shared1_b")
        if weights:
            yield from self.stage3_w(layer)
        yield from self.stage1_b(layer)

    def _attention(self, name: str, ring: Block) -> Wait:
        """Attention; over a ring of ranks, keys and values travel while the last ones are being used."""
        cp = self.scenario.cp
        if cp == 1:
            self.compute(name)
            return
        sim, me = self.sim, self.sim.rank
        ahead, behind = self.mesh.peer(me, "cp", 1), self.mesh.peer(me, "cp", -1)
        size = self.model.ring_bytes
        both = [Transfer(True, ahead, size), Transfer(False, behind, size)]
        for _ in range(cp - 1):
            slot = COMPUTE if self.faults.inline else CP
            if slot == CP:
                yield from sim.follow(CP, COMPUTE)
            yield from sim.exchange(self.group("cp"), both, slot)
            if slot == COMPUTE:
                yield from sim.settle(COMPUTE)
            done = sim.record(slot)
            if self.faults.waits:
                yield from sim.wait(COMPUTE, done)
            sim.compute(ring)
            yield from sim.wait(COMPUTE, done)
        self.compute(name)

    def _troubles(self) -> Wait:
        """What a careless layer does to the host."""
        self.sim.sleep(self.faults.python_ns)
        for _ in range(self.faults.items):
            yield from self.sim.item()
        for _ in range(self.faults.allocations):
            self.sim.malloc()
            # cudaFree waits for the whole device. With a send in flight around a ring of virtual stages that would be
            # for ever, as in a real job: there the memory only grows.
            if self.scenario.schedule == "interleaved":
                self.sim.malloc()
            else:
                yield from self.sim.free()

    # -- around the layers -------------------------------------------------------------------------------------------

    def data(self) -> Wait:
        """The next batch: fetched, and copied to the device beside whatever runs there."""
        self.sim.sleep(self.faults.stall_ns)
        self.sim.host(costs.DATA_FETCH)
        yield from self.sim.copy(COPIES, self.model.batch_bytes, to_host=False)
        yield from self.sim.follow(COMPUTE, COPIES)

    def reduce_gradients(self, layers: int) -> Wait:
        """Dense gradients over the data-parallel ranks, at the end of a pipeline's step."""
        if self.size("data") > 1:
            yield from self.launch("all_reduce", "data", self.model.layer_bytes * layers, DP)
            yield from self.sim.follow(COMPUTE, COMPUTE if self.faults.inline else DP)

    def optimizer(self) -> Wait:
        """Gradient norm over all ranks, clipping, and the update."""
        self.compute("norm")
        yield from self.barrier("all_reduce", "world", 4)
        self.compute("optimizer")

    def report_loss(self) -> Wait:
        """The mean loss, printed: the host waits for the step."""
        yield from self.barrier("all_reduce", "world", 4)
        yield from self.sim.item()

    def within(self, text: str, work: Callable[[], Wait]) -> Wait:
        """Work inside a range."""
        self.sim.push(text)
        yield from work()
        self.sim.pop()
