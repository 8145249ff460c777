"""One rank of a small training job over NCCL, with a fault planted: `run.py` forks eight of it on one GPU.

Gloo on CPUs takes NCCL's place where there is no GPU, to try the program. Nothing of stepscope is imported: what the
recorder holds is what a job of others would leave.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

#: What ranks and `run.py` share: by rank its calls so far; then whether to dump, to end, and who has dumped.
DUMP, END, DUMPED, SLOTS = 8, 9, 10, 18
#: By shape, by purpose of a group, its members.
MESHES = {
    "3d": {
        "tp": [[0, 1], [2, 3], [4, 5], [6, 7]],
        "dp": [[0, 2], [1, 3], [4, 6], [5, 7]],
        "pp": [[0, 4], [1, 5], [2, 6], [3, 7]],
    },
    "tp": {"tp": [[0, 1, 2, 3], [4, 5, 6, 7]], "dp": [[0, 4], [1, 5], [2, 6], [3, 7]]},
    "fsdp": {"shard": [[0, 1, 2, 3], [4, 5, 6, 7]], "replicate": [[0, 4], [1, 5], [2, 6], [3, 7]]},
    "moe": {"ep": [[0, 1, 2, 3], [4, 5, 6, 7]], "dp": [[0, 4], [1, 5], [2, 6], [3, 7]]},
    "pipe": {"tp": [[0, 1], [2, 3], [4, 5], [6, 7]], "pp": [[0, 2, 4, 6], [1, 3, 5, 7]]},
}
_INNER, _OUTER = ("tp", "shard", "ep"), ("dp", "replicate")
_SIZE = 1 << 14
_MICRO_BATCHES, _LAYERS = 2, 2
_CLOCK = 1_980_000_000


class Trainer:
    """A rank. `shared` are the numbers of `DUMP` and the others."""

    def __init__(self, case: dict[str, Any], rank: int, shared: Any, folder: Path) -> None:
        self.case, self.rank, self.shared, self.folder = case, rank, shared, folder
        self.cuda = case["backend"] == "nccl"
        self.device = torch.device("cuda", 0) if self.cuda else torch.device("cpu")
        self.dtype = torch.bfloat16 if self.cuda else torch.float32
        self.random = random.Random(f"{case['name']} {rank}")
        self.step_number, self.fired = 0, False
        self.groups: dict[str, Any] = {}
        self.members: dict[str, list[int]] = {}
        self.sockets: list[int] = []

    # -- the job -------------------------------------------------------------------------------------------------------

    def main(self) -> None:
        threading.Thread(target=self._listen, daemon=True).start()
        if self.cuda:
            torch.cuda.set_device(0)
        self._join()
        self.weight = torch.ones(256, 256, device=self.device, dtype=self.dtype)
        for number in range(self.case["steps"]):
            self.step_number = number
            self._step()
        while not self.shared[END]:
            time.sleep(0.05)

    def _join(self) -> None:
        dist.init_process_group(
            self.case["backend"],
            init_method=f"file://{self.folder}/store",
            rank=self.rank,
            world_size=8,
            timeout=timedelta(seconds=self.case["timeout_s"]),
        )
        for name, lists in MESHES[self.case["mesh"]].items():
            for members in lists:
                group = dist.new_group(members, group_desc=name)
                if self.rank in members:
                    self.groups[name], self.members[name] = group, members
        inner = next(name for name in _INNER if name in self.groups)
        for name in (None, *self.groups):  # communicators are made now, by all of their ranks
            before = _sockets()
            one = torch.zeros(8, device=self.device)
            dist.all_reduce(one, group=self.groups[name] if name else None)
            if name == "ep":
                dist.all_to_all_single(torch.empty_like(one), one, group=self.groups[name])
            float(one[0])
            if name == inner:
                self.sockets = sorted(_sockets() - before)
        self.inner = inner
        self.outer = next((name for name in _OUTER if name in self.groups), None)

    def _step(self) -> None:
        self._next_batch()
        if "pp" in self.groups:
            self._pipeline()
        else:
            for micro_batch in range(_MICRO_BATCHES):
                self._forward(micro_batch)
                self._backward(micro_batch)
        self._reduce_gradients()
        self._clip()
        if self.step_number % self.case["log_every"] == self.case["log_every"] - 1:
            self._log()
        self._save_checkpoint()

    def _next_batch(self) -> None:
        time.sleep(self.random.uniform(0, 0.004))
        if self._at("next_batch"):
            self._wait_for_data()
        if self.case["fault"] == "slow" and self.rank == self.case["rank"] and self.step_number >= self.case["step"]:
            time.sleep(0.6)
        if self._at("short"):
            self._evaluate()

    def _pipeline(self) -> None:
        """All micro-batches forward, then all backward."""
        stages, place = self.members["pp"], self.members["pp"].index(self.rank)
        before = stages[place - 1] if place else None
        after = stages[place + 1] if place + 1 < len(stages) else None
        for do, source, target in ((self._forward, before, after), (self._backward, after, before)):
            if self.case["mesh"] == "pipe":
                self._in_batches(do, source, target)
                continue
            for micro_batch in range(_MICRO_BATCHES):
                if source is not None:
                    self._beat()
                    dist.recv(self._tensor(_SIZE // 4), source, group=self.groups["pp"])
                do(micro_batch)
                if target is not None:
                    self._beat()
                    dist.send(self._tensor(_SIZE // 4), target, group=self.groups["pp"])

    def _in_batches(self, do: Any, source: int | None, target: int | None) -> None:
        """What is sent and what is received next go together."""
        for micro_batch in range(-1, _MICRO_BATCHES):
            ops = []
            if micro_batch >= 0:
                do(micro_batch)
                if target is not None:
                    ops.append(dist.P2POp(dist.isend, self._tensor(_SIZE // 4), target, self.groups["pp"]))
            if source is not None and micro_batch + 1 < _MICRO_BATCHES:
                ops.append(dist.P2POp(dist.irecv, self._tensor(_SIZE // 4), source, self.groups["pp"]))
            if ops:
                self._beat()
                for work in dist.batch_isend_irecv(ops):
                    work.wait()

    def _forward(self, micro_batch: int) -> None:
        for layer in range(_LAYERS):
            if self._at("order", micro_batch, layer):
                self._mlp(layer)
                self._attention(layer)
            else:
                self._attention(layer, micro_batch)
                self._mlp(layer, micro_batch)

    def _backward(self, micro_batch: int) -> None:
        for layer in reversed(range(_LAYERS)):
            self._compute()
            if self.inner == "shard":
                self._reduce_scatter("shard", _SIZE << layer)
            else:
                self._mlp(layer)
                self._attention(layer)

    def _attention(self, layer: int, micro_batch: int = -1) -> None:
        if self._at("gpu", micro_batch, layer) and self.cuda:
            torch.cuda._sleep(_CLOCK * (self.case["wait_s"] + 5))
        if self.inner == "tp":
            self._all_gather("tp", _SIZE)
            self._compute()
            if not self._at("skip", micro_batch, layer):
                self._reduce_scatter("tp", _SIZE)
        elif self.inner == "shard":
            if not self._at("skip", micro_batch, layer):
                self._all_gather("shard", _SIZE << layer)
            self._compute()
        else:
            self._all_to_all(_SIZE)
            self._compute()
            if not self._at("skip", micro_batch, layer):
                self._all_to_all(_SIZE // 2)

    def _mlp(self, layer: int, micro_batch: int = -1) -> None:
        self._compute()
        if self._at("mlp", micro_batch, layer):
            self._wait_for_data()
        if self._at("link", micro_batch, layer):
            self._cut()
        if self._at("crash", micro_batch, layer):
            self._crash()
        if self._at("oom", micro_batch, layer):
            torch.empty(400 << 30, dtype=torch.uint8, device=self.device)
        if self._at("extra", micro_batch, layer):
            self._metric()
        if self.inner == "shard" and micro_batch >= 0 and self.case["fault"] not in ("size", "type", "group", "kind"):
            return
        size, dtype, group = _SIZE, self.dtype, self.inner
        if self._at("size", micro_batch, layer):
            size //= 2
        if self._at("type", micro_batch, layer):
            dtype = torch.float32 if self.cuda else torch.float64
        if self._at("group", micro_batch, layer):
            group = self.outer or "pp"
        if self._at("kind", micro_batch, layer):
            self._all_gather(group, size)
            return
        self._all_reduce(group, size, dtype)

    def _reduce_gradients(self) -> None:
        if self.outer:
            for bucket in range(2):
                self._all_reduce(self.outer, _SIZE << bucket)

    def _clip(self) -> None:
        """The norm of the gradients, within the inner group and then over all ranks."""
        self.norm = torch.ones(1, device=self.device)
        if self._at("deadlock"):
            self._norm_of_all()
            self._norm_of_group()
        else:
            self._norm_of_group()
            self._norm_of_all()

    def _norm_of_group(self) -> None:
        self._beat()
        dist.all_reduce(self.norm, group=self.groups[self.inner])

    def _norm_of_all(self) -> None:
        self._beat()
        dist.all_reduce(self.norm)

    def _log(self) -> None:
        self.loss = float(self.norm[0])

    def _metric(self) -> None:
        self._beat()
        dist.all_reduce(torch.ones(3, device=self.device), group=self.groups[self.inner])

    def _evaluate(self) -> None:
        """What follows the last step: this rank's data ran out before that of the others."""
        self._compute()
        self._beat()
        counts = torch.ones(16, device=self.device)
        dist.all_reduce(counts)
        float(counts[0])

    def _save_checkpoint(self) -> None:
        if self._at("save_checkpoint"):
            self._wait_for_data()

    # -- calls ---------------------------------------------------------------------------------------------------------

    def _tensor(self, size: int, dtype: torch.dtype | None = None) -> torch.Tensor:
        return torch.ones(size, device=self.device, dtype=dtype or self.dtype)

    def _beat(self) -> None:
        self.shared[self.rank] += 1

    def _compute(self) -> None:
        if self.cuda:
            self.weight = (self.weight @ self.weight).clamp(0, 1)

    def _all_reduce(self, group: str, size: int, dtype: torch.dtype | None = None) -> None:
        self._beat()
        dist.all_reduce(self._tensor(size, dtype), group=self.groups[group])

    def _all_gather(self, group: str, size: int) -> None:
        self._beat()
        ranks = len(self.members[group])
        dist.all_gather_into_tensor(self._tensor(size), self._tensor(size // ranks), group=self.groups[group])

    def _reduce_scatter(self, group: str, size: int) -> None:
        self._beat()
        ranks = len(self.members[group])
        dist.reduce_scatter_tensor(self._tensor(size // ranks), self._tensor(size), group=self.groups[group])

    def _all_to_all(self, size: int) -> None:
        self._beat()
        dist.all_to_all_single(self._tensor(size), self._tensor(size), group=self.groups["ep"])

    # -- faults --------------------------------------------------------------------------------------------------------

    def _at(self, place: str, micro_batch: int = 0, layer: int = 0) -> bool:
        """Whether the fault is here: of the rank, in its step, at its place, once."""
        case = self.case
        if self.fired or case["place"] != place or self.rank != case["rank"] or self.step_number != case["step"]:
            return False
        if (micro_batch, layer) != (case["micro_batch"] * (place in _OF_LAYERS), case["layer"] * (place in _OF_LAYERS)):
            return False
        self.fired = True
        return True

    def _wait_for_data(self) -> None:
        """The host stops: the process is there, and makes no further call; or all its threads are stopped."""
        if self.case["fault"] == "frozen":
            os.kill(os.getpid(), signal.SIGSTOP)
        while not self.shared[END]:
            time.sleep(0.05)
        os._exit(0)

    def _cut(self) -> None:
        """What the rank's inner group sends and receives goes nowhere from now on, and nobody is told."""
        if self.cuda:
            torch.cuda.synchronize()
        for fd in self.sockets:
            self.kept = [*getattr(self, "kept", []), os.dup(fd)]  # so that the other end does not see it closed
            ours, theirs = socket.socketpair()
            os.dup2(ours.detach(), fd)
            theirs.detach()

    def _crash(self) -> None:
        if self.cuda:
            torch.cuda.synchronize()  # what MPS's other clients run is not to be hurt
        os.kill(os.getpid(), signal.SIGKILL if self.case["seed"] % 2 else signal.SIGSEGV)

    # -- dumps ---------------------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        while not self.shared[DUMP] and not self.shared[END]:
            time.sleep(0.05)
        if self.shared[DUMP]:
            try:
                self._dump()
            except Exception as error:
                print(f"dump: {type(error).__name__}: {error}"[:300], file=sys.stderr, flush=True)
        while not self.shared[END]:
            time.sleep(0.05)
        os._exit(0)

    def _dump(self) -> None:
        path = self.folder / f"nccl_trace_rank_{self.rank}"
        part = path.with_name(f"part_{self.rank}")
        part.write_bytes(c10d._dump_nccl_trace() if self.cuda else c10d._dump_fr_trace())
        part.rename(path)
        self.shared[DUMPED + self.rank] = 1
        if self.case["json"]:
            text = c10d._dump_nccl_trace_json() if self.cuda else c10d._dump_fr_trace_json()
            path.with_suffix(".json").write_bytes(text if isinstance(text, bytes) else text.encode())


#: Places that come once for each layer of each micro-batch.
_OF_LAYERS = ("gpu", "skip", "mlp", "link", "crash", "oom", "extra", "size", "type", "group", "kind", "order")


def _sockets() -> frozenset[int]:
    """TCP connections of this process."""
    found = set()
    for name in sorted(path.name for path in Path("/proc/self/fd").iterdir()):
        try:
            with socket.socket(fileno=os.dup(int(name))) as one:
                if one.family in (socket.AF_INET, socket.AF_INET6):
                    one.getpeername()
                    found.add(int(name))
        except OSError:
            continue
    return frozenset(found)


def rank_main(case: dict[str, Any], rank: int, shared: Any, folder: Path) -> None:
    """The life of a forked rank; never returns."""
    log = os.open(folder / f"log_{rank}", os.O_WRONLY | os.O_CREAT, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.update(case["env"], RANK=str(rank), WORLD_SIZE="8", LOCAL_RANK=str(rank), NCCL_HOSTID=f"rank{rank}")
    try:
        Trainer(case, rank, shared, folder).main()
    except BaseException:
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
        if case["fault"] != "oom" or rank != case["rank"]:
            while not shared[END]:
                time.sleep(0.05)
        os._exit(1)
    os._exit(0)
