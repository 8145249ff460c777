"""What each block is, on loops written by hand: who allocates, how long it lives, and the part that follows."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from fake import Row, make
from stepscope.analyses.memory.ledger import Ledger, ledgers
from stepscope.analyses.memory.oom import oom_sentence, out_of_memory
from stepscope.analyses.memory.reasons import ADDED_TO
from stepscope.analyses.memory.wording import ledger_sentence

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
    "workspace": (BLAS, ENGINE), "loss": (("loss.py", 7, "masked_loss"), ("train.py", 5, "main")),
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
    loop.before("another", 1000)  # two of one size, one of the other: one of them is the weight
    train(loop, states=False)
    found = loop.most()
    assert found["weights"] == 4000 and found["unknown"] == 1000


def test_what_is_neither_gradient_nor_parameter_from_before():
    loop = Loop()
    loop.before("a", 1000)
    loop.before("b", 3000)
    loop.before("table", 12345)
    train(loop)
    assert loop.most() == TRAINED | {"unknown": 12345}


def weights(loop: Loop, copies: int = 1, layers: int = 4) -> int:
    """A model's weights from before: a table, four matrices and two norms a layer, one norm left; their bytes."""
    sizes = {"table": (90_000, 1), "matrix": (20_000, 4 * layers), "norm": (500, 2 * layers + 1)}
    for copy in range(copies):
        for name, (size, count) in sizes.items():
            for n in range(count):
                loop.before(f"{name}{n}.{copy}", size)
    return sum(size * count for size, count in sizes.values())


def backward(loop: Loop, layers: int = 4) -> None:
    """A forward pass that keeps 700 bytes a layer, and a backward pass that leaves gradients."""
    for n in range(layers):
        loop.alloc(f"hidden{n}", 700 + n, "forward")
    for n in reversed(range(layers)):
        loop.alloc("g", 123, "backward")
        loop.free(f"hidden{n}")
        for m in range(4):
            loop.alloc(f"grad.matrix{4 * n + m}", 20_000, "backward")
        for m in range(2):
            loop.alloc(f"grad.norm{2 * n + m}", 500, "backward")
        loop.free("g")
    loop.alloc("grad.table", 90_000, "backward")
    loop.alloc("grad.last", 500, "backward")


def made_anew(loop: Loop, steps: int, before: bool) -> None:
    """An optimizer that replaces its states in each step: the new one is there before the old one goes."""
    names = {"a": 1000, "b": 3000}
    for step in range(steps):
        loop.alloc("hidden", 700, "forward")
        for name, size in names.items():
            loop.alloc(f"grad.{name}", size, "backward")
        loop.free("hidden")
        loop.step(begin=True)
        for name, size in names.items():
            for state in "mv":
                loop.alloc(f"{state}.{name}.{step}", size, "adam")
                if step or before:
                    loop.free(f"{state}.{name}.{step - 1}")
        loop.step(begin=False)
        if step < steps - 1:
            loop.free("grad.a", "grad.b")


@pytest.mark.parametrize(("steps", "before"), [(1, False), (3, False), (1, True), (2, True)])
def test_states_that_are_made_anew_in_each_step(steps, before):
    """The recording may end where the last step does, with its states just made."""
    loop = Loop()
    for name, size in (("a", 1000), ("b", 3000)):
        loop.before(name, size)
        if before:
            loop.before(f"m.{name}.-1", size)
            loop.before(f"v.{name}.-1", size)
    made_anew(loop, steps, before)
    most = loop.most()
    beside = 0 if steps == 1 and not before else 3000  # an old state, while the new one is there
    assert most["weights"] == 4000 and most["gradients"] == 4000 and "unknown" not in most
    assert (most["optimizer states"], most.get("temporary", 0)) == (8000, beside)


def test_gradients_of_the_step_before_are_not_states():
    """Recorded from after a backward pass on: weights, two states and gradients are there, all of the same sizes."""
    loop = Loop()
    for copy in range(4):
        loop.before(f"a{copy}", 1000)
        loop.before(f"b{copy}", 3000)
    loop.alloc("hidden", 700, "forward")
    loop.free("a3", "b3")  # zero_grad
    loop.free("hidden")
    train(loop, states=False)
    most = loop.most()
    assert (most["weights"], most["gradients"], most["optimizer states"]) == (4000, 4000, 8000)


@pytest.mark.parametrize("native", [True, False])
def test_gradients_without_an_optimizer(native):
    loop = Loop(native)
    size = weights(loop)
    backward(loop)
    assert loop.most() == {"weights": size, "gradients": size, "activations": 2806, "temporary": 123}


def test_a_forward_pass_alone():
    loop = Loop()
    size = weights(loop)
    for n in range(4):
        loop.alloc(f"hidden{n}", 700, "forward")
        loop.alloc("scratch", 64, "model")
        loop.free("scratch")
    assert loop.most() == {"weights": size, "activations": 2800, "temporary": 64}
    assert "weights and other old blocks" in loop.ledger().parts()["why"][0]


def test_a_forward_pass_alone_while_the_one_before_is_held():
    loop = Loop()
    size = weights(loop)
    loop.before("old0", 700)
    loop.before("old1", 700)
    loop.alloc("hidden0", 700, "forward")
    loop.alloc("hidden1", 700, "forward")
    loop.free("old0", "old1")
    assert loop.most() == {"weights": size, "activations": 2800}


def test_two_states_of_every_size_are_told_without_a_backward_pass():
    loop = Loop()
    size = weights(loop, copies=3)
    loop.alloc("hidden", 700, "forward")
    assert loop.most() == {"weights": size, "optimizer states": 2 * size, "activations": 700}


def test_a_backward_pass_alone():
    """What it releases of before are activations."""
    loop = Loop()
    size = weights(loop, copies=3)
    loop.before("saved", 7777)
    loop.alloc("first", 123, "backward")
    loop.free("saved")
    backward(loop)
    loop.free("first")
    most = loop.most()
    assert (most["weights"], most["gradients"], most["optimizer states"]) == (size, size, 2 * size)
    assert most["activations"] >= 7777 and "unknown" not in most


def test_an_optimizer_alone():
    loop = Loop()
    for name, size in (("a", 1000), ("b", 3000)):
        loop.before(name, size)
        loop.before(f"grad.{name}", size)
        loop.before(f"m.{name}.-1", size)
        loop.before(f"v.{name}.-1", size)
    loop.step(begin=True)
    for name, size in (("a", 1000), ("b", 3000)):
        for state in "mv":
            loop.alloc(f"{state}.{name}.0", size, "adam")
            loop.free(f"{state}.{name}.-1")
    loop.step(begin=False)
    most = loop.most()
    assert (most["weights"], most["gradients"], most["optimizer states"]) == (4000, 4000, 8000)


def test_frozen_weights_have_no_gradient():
    """LoRA: the adapters alone are trained."""
    loop = Loop()
    size = weights(loop)
    for n in range(4):
        loop.before(f"lora{n}", 64)
    loop.alloc("hidden", 700, "forward")
    for n in range(4):
        loop.alloc(f"grad{n}", 64, "backward")
    loop.free("hidden")
    assert loop.most() == {"weights": size + 256, "gradients": 256, "activations": 700}


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


def test_why_memory_ran_out_and_what_would_fit():
    """4000 bytes of weights, 8000 of states made in step 1, and a list that keeps 5000 bytes more in each step."""
    loop = Loop()
    loop.before("a", 1000)
    loop.before("b", 3000)
    for step in range(4):
        loop.alloc(f"kept{step}", 5000, "model")
        train(loop, steps=1, states=step == 0)
    loop.alloc("hidden", 700, "forward")
    at = len(loop.events)
    out = {"row": at, "start_ns": 10 * at, "action": "oom", "device": 0, "bytes": 9000, "chain": 0, "free_bytes": 2500}
    loop.events.append(out)
    found = out_of_memory(loop.ledger(), dp=4)
    assert (found["asked_bytes"], found["free_bytes"], found["lacks_bytes"]) == (9000, 2500, 6500)
    line = "model.py(10): forward"
    assert found["grows"] == [{"part": "unknown", "bytes_per_step": 5000, "frame": line}]
    # What is kept from step 1 to step 4 comes first. States are 8000: a quarter stays. Weights are 4000 more.
    fits = [(one["change"], one["saves_bytes"]) for one in found["would_fit"]]
    assert fits == [("not keeping what grows", 15000), ("ZeRO 3 over 4 ranks", 9000)]
    loop.events[-1]["bytes"] = 8000
    fits = [(one["change"], one["saves_bytes"]) for one in out_of_memory(loop.ledger(), dp=4)["would_fit"]]
    assert fits[1] == ("ZeRO 1 over 4 ranks", 6000) and len(fits) == 3
    said = oom_sentence(out_of_memory(loop.ledger(), dp=4))
    assert said.startswith(f"Memory ran out in the forward pass of step 5: {line} asked for 7.812 KiB, with 33.00 KiB")
    assert f"unknown grew by 4.883 KiB a step, most of it by {line}. It could fit with not keeping what grows" in said
    assert out_of_memory(loop.ledger(), dp=4, memory=40_000)["outside_bytes"] == 40_000 - 2500 - found["reserved_bytes"]
    assert out_of_memory(loop.ledger(), dp=4, memory=31_000)["outside_bytes"] is None


def ran_out(loop: Loop, asked: int, stack: str | None, **more: int) -> dict[str, object]:
    """The verdict where the loop asks for so much more and gets nothing."""
    at = len(loop.events)
    row = {"row": at, "start_ns": 10 * at, "action": "oom", "device": 0, "bytes": asked, "free_bytes": 0}
    loop.events.append(row | {"chain": list(STACKS).index(stack) if stack else None} | more)
    return out_of_memory(loop.ledger(), dp=1)


def test_the_logits_of_a_first_step():
    """Weights of 4000 bytes and activations of 9000; the loss asks for 3000. Nothing of the optimizer is there yet."""
    loop = Loop()
    loop.alloc("a", 4000, "init")
    loop.alloc("hidden", 9000, "forward")
    found = ran_out(loop, 3000, "loss")
    assert (found["phase"], found["frame"]) == ("in the forward pass", "loss.py(7): masked_loss")
    assert [(one["change"], one["saves_bytes"]) for one in found["would_fit"]] == [
        ("a loss in chunks", 3000), ("half the tokens of a micro-batch", 6000), ("recomputation", 9000),
    ]  # fmt: skip
    assert found["to_come_bytes"] == 3 * 4000 and "No optimizer has stepped yet" in oom_sentence(found)
    assert ran_out(loop, 3000, "model")["would_fit"][0]["change"] == "a loss in chunks"  # the first time counts


def test_the_optimizer_s_first_step():
    loop = Loop()
    loop.before("a", 1000)
    loop.before("b", 3000)
    train(loop, steps=1)
    loop.alloc("m", 500, "adam")
    found = ran_out(loop, 6000, "adam", free_bytes=2000)
    assert found["phase"].startswith("in the optimizer") and not found["to_come_bytes"]
    # States are 8500 bytes, weights 4000; there are no gradients, which ZeRO 2 would divide.
    fits = [(one["change"], one["saves_bytes"]) for one in found["would_fit"]]
    assert fits == [("ZeRO 1 over 8 ranks", 7437), ("ZeRO 3 over 8 ranks", 10937)]


def test_the_backward_pass_has_no_frame():
    loop = Loop(native=False)
    loop.alloc("a", 4000, "init")
    loop.alloc("hidden", 700, "forward")
    found = ran_out(loop, 600, None)
    assert (found["phase"], found["frame"]) == ("in the backward pass", None)
    assert oom_sentence(found).startswith("Memory ran out in the backward pass: 600 B were asked for")


def test_a_server_s_cache_ran_out():
    loop = Loop()
    loop.alloc("a", 4000, "init")
    loop.alloc("kv", 8000, "cache")
    found = ran_out(loop, 2000, "cache")
    assert found["would_fit"][0]["change"] == "half the tokens in the KV cache"
    assert not found["to_come_bytes"]


def test_no_change_fits():
    loop = Loop()
    loop.alloc("a", 1000, "init")
    loop.events.append({"row": 1, "start_ns": 10, "action": "oom", "device": 0, "bytes": 99999, "chain": 0})
    found = out_of_memory(loop.ledger(), dp=1)
    assert found["free_bytes"] is None and not found["would_fit"]
    assert "No single change frees" in oom_sentence(found)
    assert out_of_memory(trained(), dp=1) is None


def trained() -> Ledger:
    loop = Loop()
    train(loop)
    return loop.ledger()


def test_memory_ran_out():
    loop = Loop()
    loop.alloc("a", 1000, "init")
    loop.alloc("hidden", 700, "forward")
    loop.events.append({"row": 2, "start_ns": 20, "action": "oom", "device": 0, "bytes": 9999, "chain": 0})
    loop.free("hidden")
    assert loop.most() == {"weights": 1000, "activations": 700}


def test_without_a_history_nothing_limits():
    """A snapshot after the program has let go of all: what is free is no fragmentation, and the peak is not known."""
    block = {"device": 0, "address": 0, "bytes": 512, "requested_bytes": 500, "state": "allocated", "segment": 0}
    more = {"segment_bytes": 1 << 20, "small": False, "expandable": False}
    (ledger,) = ledgers(make(blocks=[block | more]))
    said = ledger_sentence([ledger], None, None)
    assert ledger.phase == "when the snapshot was taken"
    assert (
        said.startswith("When the snapshot was taken, 512 B of 1.000 MiB reserved were in use") and "limit" not in said
    )
    assert "no history was recorded" in said


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


@pytest.mark.parametrize("passes", [1, 2])
@pytest.mark.parametrize("native", [True, False])
def test_gradients_that_each_backward_pass_adds_to(native, passes):
    """No zero_grad, no optimizer: a pass makes each gradient anew, adds it to the one that stands, and releases it."""
    loop = Loop(native)
    size = weights(loop, copies=2)
    for _ in range(passes):
        loop.alloc("hidden", 700, "forward")
        loop.alloc("g", 123, "backward")
        loop.free("hidden")
        for name, shape in [("matrix", 20_000)] * 16 + [("norm", 500)] * 9 + [("table", 90_000)]:
            loop.alloc(f"new.{name}", shape, "backward")
            loop.free(f"new.{name}")
        loop.free("g")
    most = loop.most()
    assert (most["weights"], most["gradients"]) == (size, size) and "unknown" not in most


def test_weights_whose_gradients_are_not_kept():
    """As many stand as a pass makes: weights alone, of sizes that come in pairs."""
    loop = Loop()
    for n in range(4):
        loop.before(f"matrix{n}", 20_000)
    loop.alloc("hidden", 700, "forward")
    loop.alloc("g", 123, "backward")
    loop.free("hidden")
    for n in range(4):
        loop.alloc(f"new{n}", 20_000, "backward")
        loop.free(f"new{n}")
    loop.free("g")
    assert ADDED_TO not in loop.ledger().decided.reason
