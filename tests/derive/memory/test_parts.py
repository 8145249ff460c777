"""What each block is, on loops written by hand: who allocates, how long it lives, and the part that follows."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from fake import Row, make
from stepscope.derive.memory.ledger import Ledger, ledgers

MODEL = ("model.py", 10, "forward")
LINEAR = ("/venv/site-packages/torch/nn/modules/linear.py", 134, "forward")
ADAM = ("/venv/site-packages/torch/optim/adam.py", 178, "_init_group")
APPLY = ("/venv/site-packages/torch/nn/modules/module.py", 965, "_apply")
DDP = ("/venv/site-packages/torch/nn/parallel/distributed.py", 800, "__init__")
CHECKPOINT = ("/venv/site-packages/torch/utils/checkpoint.py", 900, "recompute_fn")
CACHE = ("/venv/site-packages/transformers/cache_utils.py", 90, "update")
ENGINE = ("", 0, "torch::autograd::Engine::thread_main(x)")
BLAS = ("", 0, "at::cuda::getCUDABlasLtWorkspace()")
#: Stacks by name, innermost frame first; `none` has no Python frame.
STACKS = {
    "forward": (LINEAR, MODEL), "model": (MODEL,), "backward": (ENGINE,), "adam": (ADAM, ("train.py", 9, "main")),
    "init": (APPLY, ("train.py", 2, "main")), "ddp": (DDP,), "again": (MODEL, CHECKPOINT), "cache": (CACHE,),
    "workspace": (BLAS, ENGINE),
}  # fmt: skip


@dataclass
class Loop:
    """Events of an allocator, block by block: names stand for addresses."""

    native: bool = True
    events: list[Row] = field(default_factory=list)
    alive: dict[str, int] = field(default_factory=dict)
    ranges: list[Row] = field(default_factory=list)
    address: dict[str, int] = field(default_factory=dict)
    began: int = 0
    placed: int = 0

    def alloc(self, name: str, size: int, stack: str) -> None:
        self._place(name, size)
        chain: int | None = list(STACKS).index(stack)
        if not self.native and stack in ("backward", "workspace"):
            chain = None
        self._event("alloc", name, size, chain)

    def free(self, *names: str) -> None:
        for name in names:
            self._event("free", name, self.alive.pop(name), None)

    def before(self, name: str, size: int) -> None:
        """There before the recording."""
        self._place(name, size)

    def _place(self, name: str, size: int) -> None:
        self.alive[name] = size
        self.placed += 1
        self.address[name] = self.placed << 28

    def step(self, begin: bool) -> None:
        now = len(self.events) * 10 - 5
        if begin:
            self.began = now
        else:
            row = {"name": "Optimizer.step#AdamW.step", "start_ns": self.began, "end_ns": now}
            self.ranges.append(row | {"tid": -1, "kind": "startend", "closed": True})

    def _event(self, action: str, name: str, size: int, chain: int | None) -> None:
        at = len(self.events)
        row = {"row": at, "start_ns": 10 * at, "action": action, "device": 0, "address": self.address[name]}
        self.events.append(row | {"bytes": size, "chain": chain})

    def ledger(self) -> Ledger:
        blocks = [
            {"device": 0, "address": self.address[n], "bytes": -(-size // 512) * 512, "requested_bytes": size}
            | {"state": "allocated", "segment": self.address[n], "segment_bytes": -(-size // 512) * 512}
            | {"small": False, "expandable": False}
            for n, size in self.alive.items()
        ]
        frames = [
            {"chain": c, "depth": d, "name": name, "file": file or None, "line": line or None}
            for c, stack in enumerate(STACKS.values())
            for d, (file, line, name) in enumerate(stack)
            if self.native or file
        ]
        (ledger,) = ledgers(make(allocations=self.events, blocks=blocks, stacks=frames, ranges=self.ranges))
        return ledger

    def most(self) -> dict[str, int]:
        """The most that each part holds at once."""
        table = self.ledger().parts().drop_nulls("most_bytes")
        return dict(zip(table["part"].to_list(), table["most_bytes"].to_list(), strict=True))


def train(loop: Loop, steps: int = 3, states: bool = True) -> None:
    """Two parameters of 1000 and 3000 bytes: forward keeps 700 and 900, backward uses 500, AdamW 2 states and 4000."""
    for step in range(steps):
        loop.alloc("hidden", 700, "forward")
        loop.alloc("scratch", 64, "model")
        loop.free("scratch")
        loop.alloc("output", 900, "forward")
        loop.alloc("g.output", 500, "backward")
        loop.free("output")
        loop.alloc("grad.b", 3000, "backward")
        loop.free("hidden")
        loop.alloc("grad.a", 1000, "backward")
        loop.free("g.output")
        loop.step(begin=True)
        if step == 0 and states:
            for name, size in (("a", 1000), ("b", 3000)):
                loop.alloc(f"m.{name}", size, "adam")
                loop.alloc(f"v.{name}", size, "adam")
        loop.alloc("root", 4000, "adam")
        loop.free("root")
        loop.step(begin=False)
        loop.free("grad.a", "grad.b")


TRAINED = {"weights": 4000, "gradients": 4000, "optimizer states": 8000, "activations": 1600, "temporary": 4000}


@pytest.mark.parametrize("native", [True, False])
def test_a_training_loop(native):
    loop = Loop(native)
    loop.before("a", 1000)
    loop.before("b", 3000)
    train(loop)
    assert loop.most() == TRAINED


def test_weights_made_while_recording():
    loop = Loop()
    loop.alloc("a", 1000, "init")
    loop.alloc("b", 3000, "init")
    train(loop)
    assert loop.most() == TRAINED


def test_states_from_before_are_told_by_their_number():
    loop = Loop()
    for copy in range(3):
        loop.before(f"a{copy}", 1000)
        loop.before(f"b{copy}", 3000)
    train(loop, states=False)
    assert loop.most() == TRAINED


def test_states_of_twice_the_size():
    """bf16 weights, fp32 master weights and moments: three blocks of 2000 and of 6000."""
    loop = Loop()
    loop.before("a", 1000)
    loop.before("b", 3000)
    for copy in range(3):
        loop.before(f"a{copy}", 2000)
        loop.before(f"b{copy}", 6000)
    train(loop, states=False)
    assert loop.most() == TRAINED | {"optimizer states": 24000}


def test_what_sizes_do_not_tell_is_unknown():
    loop = Loop()
    loop.before("a", 1000)
    loop.before("b", 3000)
    loop.before("another", 1000)  # two of one size, one of the other: which is the weight?
    train(loop, states=False)
    found = loop.most()
    assert "weights" not in found and found["unknown"] == 5000


def test_what_is_neither_gradient_nor_parameter_from_before():
    loop = Loop()
    loop.before("a", 1000)
    loop.before("b", 3000)
    loop.before("table", 12345)
    train(loop)
    assert loop.most() == TRAINED | {"unknown": 12345}


def test_buckets_caches_and_workspaces():
    loop = Loop()
    loop.before("a", 1000)
    loop.before("b", 3000)
    loop.alloc("bucket", 4000, "ddp")
    loop.alloc("kv", 800, "cache")
    loop.alloc("blas", 1 << 20, "workspace")
    train(loop)
    assert loop.most() == TRAINED | {"communication": 4000, "KV cache": 800, "temporary": (1 << 20) + 4000}


def test_a_workspace_without_native_frames():
    """Of cuBLAS's size, allocated where matrices are multiplied, never freed. The same in other code is unknown."""
    loop = Loop(native=False)
    loop.before("a", 1000)
    loop.before("b", 3000)
    loop.alloc("blas", 32 << 20, "forward")
    loop.alloc("mask", 32 << 20, "model")
    train(loop)
    assert loop.most() == TRAINED | {"temporary": (32 << 20) + 4000, "unknown": 32 << 20}


def test_recomputed_activations():
    loop = Loop()
    loop.before("a", 1000)
    loop.before("b", 3000)
    train(loop, steps=1)
    loop.alloc("input", 200, "forward")
    loop.alloc("loss.g", 8, "backward")
    loop.alloc("hidden", 700, "again")
    loop.alloc("helper", 64, "again")
    loop.free("helper")
    loop.alloc("grad.a", 1000, "backward")
    loop.free("hidden", "input", "loss.g")
    loop.alloc("grad.b", 3000, "backward")
    loop.step(begin=True)
    loop.step(begin=False)
    loop.free("grad.a", "grad.b")
    ledger = loop.ledger()
    reasons = set(zip(ledger.decided.part.tolist(), ledger.history.blocks.requested.tolist(), strict=True))
    assert (3, 700) in reasons and (4, 64) in reasons and (3, 200) in reasons
    assert loop.most()["activations"] == 1600


def test_gradients_that_are_kept():
    """zero_grad(set_to_none=False): they live through all steps, and are gradients all the same."""
    loop = Loop()
    loop.before("a", 1000)
    loop.before("b", 3000)
    loop.alloc("grad.b", 3000, "backward")
    loop.alloc("grad.a", 1000, "backward")
    for _ in range(3):
        loop.alloc("hidden", 700, "forward")
        loop.alloc("g", 500, "backward")
        loop.free("hidden", "g")
        loop.step(begin=True)
        loop.step(begin=False)
    assert loop.most() == {"weights": 4000, "gradients": 4000, "activations": 700, "temporary": 500}


def test_memory_ran_out():
    loop = Loop()
    loop.alloc("a", 1000, "init")
    loop.alloc("hidden", 700, "forward")
    loop.events.append({"row": 2, "start_ns": 20, "action": "oom", "device": 0, "bytes": 9999, "chain": 0})
    loop.free("hidden")
    assert loop.most() == {"weights": 1000, "activations": 700}


def test_without_stacks_little_is_known():
    loop = Loop()
    train(loop)
    for event in loop.events:
        event["chain"] = None
    blocks = make(allocations=loop.events, blocks=[], ranges=loop.ranges)
    (ledger,) = ledgers(blocks)
    table = ledger.parts().drop_nulls("most_bytes")
    assert set(table["part"].to_list()) == {"optimizer states", "temporary", "unknown"}


def test_frames_are_the_user_s():
    loop = Loop(native=False)
    loop.before("a", 1000)
    loop.before("b", 3000)
    train(loop)
    ledger = loop.ledger()
    held = {(r["part"], r["frame"]): r["bytes"] for r in ledger.frames().to_dicts()}
    assert held["optimizer states", "train.py(9): main"] == 8000
    assert held["weights", "(before recording began)"] == 4000
    assert ledger.frames()["bytes"].sum() == ledger.parts().drop_nulls("most_bytes")["bytes"].sum()
