"""DualPipeV, as the trainer runs and labels it.

The model is folded: rank r holds stage r (phase 0) and stage 2p-1-r (phase 1), so micro-batches go down the pipeline in
phase 0 and come back in phase 1; gradients take the same way back. Stages and labels: semantics §14.
"""

from __future__ import annotations

from collections import deque

from stepscope.simulate.engine.rank import Wait
from stepscope.simulate.job import costs
from stepscope.simulate.programs.layers import Worker
from stepscope.simulate.programs.schedules.pipe import Pipe
from stepscope.simulate.programs.schedules.pipelines import spread


def step(w: Worker, number: int) -> Wait:
    """One step. The trainer has no label for it, nor for data, optimizer and gradient reduction."""
    sim, s = w.sim, w.scenario
    sim.sleep(w.faults.delay_ns)
    sim.host(costs.STEP_PYTHON)
    yield from w.data()
    run = _Run(w)
    yield from run.chunks(s.micro_batches)
    yield from w.reduce_gradients(sum(map(len, run.layers)))
    yield from w.optimizer()
    yield from w.report_loss()


class _Run:
    """The chunks of one step on one rank."""

    def __init__(self, w: Worker) -> None:
        self.w = w
        self.r, self.p = w.mesh.ranks[w.sim.rank].coords["pp"]
        stages = spread(w.scenario.layers, 2 * self.p)
        self.layers = (stages[self.r], stages[2 * self.p - 1 - self.r])
        self.first, self.last = self.r == 0, self.r == self.p - 1
        self.pipe = Pipe(w, "world")
        self.f, self.b = [0, 0], [0, 0]  # next chunk to compute, by phase
        self.f_in, self.f_out, self.b_in, self.b_out = [0, 0], [0, 0], [0, 0], [0, 0]  # and to receive and send
        self.weights: deque[list[int]] = deque()

    def chunks(self, n: int) -> Wait:
        """The eight steps of the schedule."""
        p, r = self.p, self.r
        for _ in range(2 * (p - r - 1)):
            yield from self.forward(0)
        self.receive_f(0)
        for i in range(r + 1):
            yield from self.forward(0, receive=False, send=False)
            self.receive_f(0)
            yield from self.forward(1, send=not self.last or i < r)
            self.send_f(0)
        for _ in range(p - r - 1):
            yield from self.backward(1, defer=True)
            self.receive_f(1)
            yield from self.weight()
            yield from self.forward(1, receive=False)
        for i in range(n - 2 * p + r + 1):
            if i == 0 and self.last:
                # Not overlapped, which makes the bubble smaller.
                yield from self.forward(0, receive=False, send=False)
                self.send_f(1)
                yield from self.backward(1, send=False)
                self.send_f(0)
                self.send_b(1)
            else:
                yield from self.both(0, 1, receive=i > 0)
            yield from self.both(1, 0)
        for _ in range(p - r - 1):
            yield from self.backward(1)
            yield from self.both(1, 0)
        defer = False
        for i in range(r + 1):
            middle = i == (r + 1) // 2
            defer |= middle and r % 2 == 1
            yield from self.backward(1, defer=defer)
            defer |= middle and r % 2 == 0
            yield from self.backward(0, defer=defer)
        for _ in range(p - r - 1):
            yield from self.weight()
            yield from self.backward(0, defer=True)
        while self.weights:
            yield from self.weight()
        yield from self.pipe.commit()

    # -- between ranks ----------------------------------------------------------------------------------------

    def receive_f(self, phase: int) -> None:
        if not (self.last if phase else self.first):
            self.pipe.receive(self.r + (1 if phase else -1), f"f{phase}.{self.f_in[phase]}")
            self.f_in[phase] += 1

    def send_f(self, phase: int) -> None:
        if not (self.first if phase else self.last):
            self.pipe.send(self.r + (-1 if phase else 1), f"f{phase}.{self.f_out[phase]}")
            self.f_out[phase] += 1

    def receive_b(self, phase: int) -> None:
        if not (self.first if phase else self.last):
            self.pipe.receive(self.r + (-1 if phase else 1), f"b{phase}.{self.b_in[phase]}")
            self.b_in[phase] += 1

    def send_b(self, phase: int) -> None:
        if not (self.last if phase else self.first):
            self.pipe.send(self.r + (1 if phase else -1), f"b{phase}.{self.b_out[phase]}")
            self.b_out[phase] += 1

    # -- chunks -----------------------------------------------------------------------------------------------

    def forward(self, phase: int, receive: bool = True, send: bool = True) -> Wait:
        """Forward of the next micro-batch of a phase."""
        if receive:
            self.receive_f(phase)
        yield from self.pipe.commit()
        sim = self.w.sim
        sim.push(f"forward chunk {self.f[phase]} (phase{phase})")
        self.f[phase] += 1
        self._prolog_f(phase)
        for layer in self.layers[phase]:
            yield from self._forward(layer)
        self._epilog_f(phase)
        sim.pop()
        if send:
            self.send_f(phase)

    def backward(self, phase: int, defer: bool = False, send: bool = True) -> Wait:
        """Backward of the next micro-batch of a phase; `defer` leaves the weights' gradient for later."""
        self.receive_b(phase)
        yield from self.pipe.commit()
        sim = self.w.sim
        sim.push(f"backward chunk {self.b[phase]} (phase{phase})")
        self.b[phase] += 1
        self._loss_b(phase)
        for layer in reversed(self.layers[phase]):
            yield from self._backward(layer, defer)
        self._prolog_b(phase)
        sim.pop()
        if defer:
            self.weights.append(self.layers[phase])
        if send:
            self.send_b(phase)

    def weight(self) -> Wait:
        """The oldest weights' gradient that was left for later."""
        yield from self.pipe.commit()
        sim = self.w.sim
        sim.push("weight chunk")
        for layer in reversed(self.weights.popleft()):
            yield from self._stage(layer, "stage3_w")
        sim.pop()

    def both(self, f: int, b: int, receive: bool = True) -> Wait:
        """The overlapped chunk: forward of one micro-batch in phase f, backward of another in phase b."""
        if receive:
            self.receive_f(f)
        self.receive_b(b)
        yield from self.pipe.commit()
        sim = self.w.sim
        sim.push(f"forward chunk {self.f[f]} (phase{f}) backward chunk {self.b[b]} (phase{b})")
        self.f[f] += 1
        self.b[b] += 1
        yield from self._overlapped(self.layers[f], self.layers[b][::-1], f, b)
        sim.pop()
        self.send_f(f)
        self.send_b(b)

    def _overlapped(self, ahead: list[int], back: list[int], f: int, b: int) -> Wait:
        stage, n = self._stage, min(len(ahead), len(back))
        self._loss_b(b)
        yield from stage(back[0], "stage5_b")
        yield from stage(back[0], "stage4_b")
        self._prolog_f(f)
        yield from stage(ahead[0], "stage1_f")
        for k in range(n):
            if k:
                yield from self._fused(back[k - 1], back[k], "b")
                yield from stage(ahead[k - 1], "stage4_f")
                yield from stage(back[k], "stage4_b")
                yield from self._fused(ahead[k - 1], ahead[k], "f")
            yield from stage(back[k], "stage3_b")
            yield from stage(ahead[k], "stage2_f")
            yield from stage(back[k], "stage2_b")
            yield from stage(back[k], "stage3_w")
            yield from stage(ahead[k], "stage3_f")
        yield from stage(ahead[n - 1], "stage4_f")
        yield from stage(back[n - 1], "stage1_b")
        yield from stage(ahead[n - 1], "stage5_f")
        for layer in ahead[n:]:
            yield from self._forward(layer)
        for layer in back[n:]:
            yield from self._backward(layer, defer=False)
        self._prolog_b(b)
        self._epilog_f(f)

    # -- stages -----------------------------------------------------------------------------------------------

    def _forward(self, layer: int) -> Wait:
        for number in range(1, 6):
            yield from self._stage(layer, f"stage{number}_f")

    def _backward(self, layer: int, defer: bool) -> Wait:
        for name in ("stage5_b", "stage4_b", "stage3_b", "stage2_b", "stage3_w", "stage1_b"):
            if not (defer and name == "stage3_w"):
                yield from self._stage(layer, name)

    def _stage(self, layer: int, name: str) -> Wait:
        self.w.sim.push(f"layer{layer:02d}.{name}")
        yield from self._work(layer, name)
        self.w.sim.pop()

    def _fused(self, before: int, layer: int, way: str) -> Wait:
        """The end of one layer and the beginning of the next, in the order of the pass."""
        self.w.sim.push(f"layer{before:02d}_stage5_{way}_layer{layer:02d}_stage1_{way}")
        first, then = ("stage5_f", "stage1_f") if way == "f" else ("stage1_b", "stage5_b")
        yield from self._work(before, first)
        yield from self._work(layer, then)
        self.w.sim.pop()

    def _work(self, layer: int, name: str) -> Wait:
        w = self.w
        if name[5] in "24":
            return w.all_to_all(layer, name[-1])
        run: Wait = getattr(w, name)(layer)
        return run

    # -- around the layers ------------------------------------------------------------------------------------

    def _around(self, text: str, *blocks: str) -> None:
        self.w.sim.push(text)
        for block in blocks:
            self.w.compute(block)
        self.w.sim.pop()

    def _prolog_f(self, phase: int) -> None:
        if self.first and phase == 0:
            self._around("prolog_f", "embedding_f")

    def _prolog_b(self, phase: int) -> None:
        if self.first and phase == 0:
            self._around("prolog_b", "embedding_b")

    def _epilog_f(self, phase: int) -> None:
        if self.first and phase == 1:
            self._around("epilog_f", "head_f")
            self._around("criterion0(*outputs0, *labels0)", "loss_f")

    def _loss_b(self, phase: int) -> None:
        if self.first and phase == 1:
            self._around("loss1.backward()", "loss_b")
