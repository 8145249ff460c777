"""Captures programs with and without their faults by `stepscope capture run`, unmodified: nsys and torch.profiler.

    python captures.py OUT --nsys NSYS [--until SECONDS] [--only | --skip PROGRAM:FAULT ...]

Several start and export side by side (fewer than there are cores), but only one at a time trains (PAIRS_TURN). Leaves
OUT/captures.tar, a PROGRAM-FAULT.TOOL.tar.xz for each, not scrubbed, and OUT/captures.log. Those that tests/data/pairs
has are left out unless they are named. Programs of several ranks (`ranks_*`) share the GPU by MPS, and time some of
their steps before those that are recorded: OUT/times.jsonl.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import queue
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).parent
SCRUB = HERE.parents[2] / "examples" / "moe_reference" / "scrub.py"
#: Ranks of a program of several, its steps that settle (common.WARM_UP), and those that are timed.
RANKS, WARM_UP, TIMED = 4, 5, 10
DATA = HERE.parents[1] / "data" / "pairs"
#: PROGRAM:FAULT and how many steps are recorded; twins come before their faults.
ORDER = {
    # every step
    "gpt:none": 9, "gpt:attention-by-hand": 3, "hf_trainer:none": 9, "hf_trainer:eager-attention": 3,
    "cnn:none": 4, "cnn:float-no-tf32": 4, "hf_trainer:float": 3, "gpt:float-head": 3,
    "gpt:checkpoint-blocks": 3, "hf_trainer:gradient-checkpointing": 3,
    "cnn:nchw": 4, "lightning_cnn:none": 4, "lightning_cnn:nchw": 4, "unet:none": 3, "unet:permute-in-every-layer": 3,
    "unet:norm-and-silu-by-hand": 3, "accelerated:none": 6, "accelerated:norms-and-swiglu-by-hand": 3,
    "gpt:norm-and-gelu-by-hand": 3,
    "gpt:optimizer-loop": 3, "hf_trainer:optimizer-loop": 3, "lightning_cnn:optimizer-loop": 4,
    "gpt:smoothing-by-hand": 3, "hf_trainer:smoothing-fused": 3, "hf_trainer:label-smoothing": 3,
    "gpt:casts-and-clones": 3, "accelerated:casts-around-norms": 3,
    "gpt:vocabulary-50257": 3, "hf_trainer:gpt2-50304": 3, "hf_trainer:gpt2-50257": 3,
    # the run
    "gpt:save-every-3": 9, "hf_trainer:save-every-3": 9, "gpt:evaluate-every-3": 9, "hf_trainer:evaluate-every-3": 9,
    "gpt:collect-every-4": 8, "hf_trainer:empty-cache-every-4": 8, "gan:none": 8, "gan:penalty-every-4": 8,
    "lightning_policy:none": 8, "lightning_policy:rollout-every-4": 8,
    "cnn:epochs": 8, "cnn:epochs-restart-workers": 8, "lightning_cnn:epochs": 8,
    "lightning_cnn:epochs-restart-workers": 8,
    "cnn:larger-warmed": 6, "cnn:larger-from-step-8": 6, "compiled:longer-dynamic": 6, "compiled:longer-from-step-8": 6,
    "dlrm:none": 9, "dlrm:auroc-of-all": 9, "accelerated:perplexity-of-all": 9,
    "gpt:load-weights": 0, "hf_trainer:load-weights": 0,
    # every step, later
    "dlrm:dense-embeddings": 3, "accelerated:mask-in-loss": 3, "gpt:second-forward": 3, "hf_trainer:second-forward": 3,
    "compiled:none": 4, "compiled:break-in-every-layer": 4, "compiled:eager-and-small": 4,
    "moe:none": 3, "moe:experts-one-by-one": 3, "accelerated:mixtral-grouped": 3, "accelerated:mixtral-one-by-one": 3,
    "cnn:deterministic": 4, "lightning_cnn:deterministic": 4,
    "lightning_cnn:frozen-first": 4, "lightning_cnn:frozen-with-gradients": 4,
    "unet:checkpoint-levels": 3, "lightning_cnn:float": 4, "lightning_cnn:save-every-3": 9,
    "lightning_cnn:validate-every-3": 9, "unet:odd-widths": 3,
    # the host
    "unet:synchronize-every-layer": 3, "accelerated:timers": 3, "gpt:clip-by-item": 3, "hf_trainer:norms-by-item": 3,
    "dlrm:pageable-batches": 3, "lightning_cnn:features-to-host": 4, "gpt:metrics-in-python": 3,
    "hf_trainer:python-in-callback": 3, "gan:monitoring-thread": 3, "lightning_cnn:transforms": 4,
    "lightning_cnn:transforms-no-workers": 4, "cnn:crops": 4, "cnn:crops-one-worker": 4,
    # ranks
    "ranks_gpt:none": 3, "ranks_gpt:reduce-in-every-micro-batch": 3, "ranks_gpt:python-before-blocks-on-rank-1": 3,
    "ranks_gpt:longer-texts-on-rank-2": 3, "ranks_gpt:objects-and-barriers": 3,
    "ranks_trainer:none": 3, "ranks_trainer:sync-each-batch": 3, "ranks_trainer:larger-batch-on-rank-1": 3,
    "ranks_trainer:slow-data-on-rank-2": 3, "ranks_trainer:objects-every-step": 3,
    "ranks_gpt:smaller-share-on-rank-3": 3, "ranks_lightning:none": 3, "ranks_lightning:smaller-share-on-rank-1": 3,
    "ranks_fsdp:none": 3, "ranks_fsdp:reshard": 3, "ranks_lightning:fsdp": 3, "ranks_lightning:fsdp-reshard": 3,
    "ranks_gpt:broadcast-buffers": 3, "ranks_trainer:buckets-of-one-mb": 3, "ranks_lightning:collect-on-rank-3": 3,
    "ranks_lightning:log-sync-dist": 3, "ranks_fsdp:float-reductions": 3, "ranks_gpt:one-bucket": 3,
    "ranks_fsdp:unit-for-every-linear": 3,
    "hf_trainer:compiled-dynamic": 6, "hf_trainer:compiled-longer-from-step-8": 6,
}  # fmt: skip


#: NCCL between ranks that share the GPU: over the loopback, as if each were on a host of its own.
_SHARED = {
    "CUDA_MPS_PIPE_DIRECTORY": os.environ.get("PAIRS_MPS", ""), "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "25",
    "NCCL_SOCKET_IFNAME": "lo", "NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1", "OMP_NUM_THREADS": "1",
    "TORCH_NCCL_USE_COMM_NONBLOCKING": "0",
}  # fmt: skip


class Captures:
    def __init__(self, given: argparse.Namespace) -> None:
        self.given = given
        self.work = Path(tempfile.mkdtemp())
        self.began = time.monotonic()
        self.packing = threading.Lock()
        self.jobs: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
        for name in given.only or ORDER:
            steps = ORDER[name]
            for tool in ("nsys", "torch") if steps else ("nsys",):  # a start is not torch.profiler's to see
                there = (DATA / f"{name.replace(':', '-')}.{tool}.tar.xz").exists()
                if name not in given.skip and (given.only or not there):
                    self.jobs.put((name, tool))

    def say(self, text: str) -> None:
        line = f"[{time.monotonic() - self.began:.0f} s] {text}"
        print(line, flush=True)
        with (self.given.out / "captures.log").open("a") as log:
            log.write(line + "\n")

    def port(self, name: str, tool: str) -> int:
        return 29600 + 2 * list(ORDER).index(name) + (tool == "torch")

    def work_off(self) -> None:
        while time.monotonic() - self.began < self.given.until:
            try:
                name, tool = self.jobs.get_nowait()
            except queue.Empty:
                return
            at = time.monotonic()
            try:
                told = self.one(name, tool)
            except Exception as error:
                told = f"{type(error).__name__}: {error}"
            self.say(f"{name} {tool}: {told}, {time.monotonic() - at:.0f} s")

    def one(self, name: str, tool: str) -> str:
        program, _, fault = name.partition(":")
        steps = ORDER[name]
        folder = self.work / f"{program}-{fault}.{tool}"
        how = ["--warmup", str(WARM_UP), "--steps", str(steps)] if steps else ["--trigger", "none"]
        given = ["--steps", str(steps or 8)]
        times = self.work / f"{folder.name}.json"
        if timed := program.startswith("ranks_") or self.given.timed:
            how[1] = str(WARM_UP + TIMED + 2)
            given = ["--steps", str(TIMED), "--after", str(steps + 3), "--json", str(times)]
        if program.startswith("ranks_"):
            how += ["--nproc", str(RANKS), "--share-gpu", "--port", str(self.port(name, tool))]
        command = [
            *shlex.split(self.given.stepscope), "capture", "run", "--backend", tool, "--nsys", self.given.nsys, *how,
            "--grace", "20", "--no-verify", "--no-doctor", "--yes", "--quiet", "-o", str(folder), "--",
            "python3", str(HERE / f"{program}.py"), "--fault", fault, *given,
        ]  # fmt: skip
        env = {**os.environ, "OMP_NUM_THREADS": "2", "PAIRS_SCRATCH": str(self.given.scratch)}
        env |= _SHARED if program.startswith("ranks_") else {}
        turn = self.given.turn or self.work / "turn"
        if steps:
            env["PAIRS_TURN"] = str(turn)
        with tempfile.TemporaryFile("w+") as said, turn.open("a") as whole:
            if not steps:  # all of it is recorded, the wait would be, too
                fcntl.flock(whole, fcntl.LOCK_EX)
            done = subprocess.run(command, env=env, stdout=said, stderr=subprocess.STDOUT, timeout=150, check=False)
            if done.returncode:
                said.seek(0)
                return f"exit {done.returncode}: {said.read()[-600:]}"
        if timed and times.exists():
            with self.packing, (self.given.out / "times.jsonl").open("a") as all_of:
                all_of.write(json.dumps({"name": name, "tool": tool, **json.loads(times.read_text())}) + "\n")
        if program.startswith("ranks_") and tool == "torch":  # four traces of some MB: not all of that can be sent back
            traces = map(str, folder.glob("*.pt.trace.json.gz"))
            subprocess.run(["python3", str(SCRUB), "--thin", *traces], timeout=60, check=True)
        for left in (*folder.glob("*.nsys-rep"), *folder.glob("*.qdstrm")):
            left.unlink()
        shutil.rmtree(folder / "steps", ignore_errors=True)
        packed = self.work / f"{folder.name}.tar.xz"
        subprocess.run(f"tar cf - -C {folder} . | xz -2 > {packed}", shell=True, check=True)
        shutil.rmtree(folder)
        with self.packing, tarfile.open(self.given.out / "captures.tar", "a") as all_of:  # there even if we are ended
            all_of.add(packed, packed.name)
        return f"{packed.stat().st_size >> 10} KiB"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--nsys", default="nsys")
    parser.add_argument("--until", type=float, default=500)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--skip", nargs="*", default=[])
    parser.add_argument("--stepscope", default="python3 -m stepscope")
    parser.add_argument("--timed", action="store_true", help="steps of programs of one rank are timed, too")
    parser.add_argument("--turn", type=Path, help="the lock, where others use it too")
    parser.add_argument("--scratch", type=Path, default=Path("/tmp/pairs"))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    captures = Captures(given)
    threads = [threading.Thread(target=captures.work_off) for _ in range(given.workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    captures.say("done")
    return 0


if __name__ == "__main__":
    sys.exit(main())
