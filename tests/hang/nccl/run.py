"""Hangs of eight NCCL ranks on one GPU, many in turn, with what was planted in each: `hangs_h200.sh` runs it.

torch is imported once; ranks are forked. A job that makes no more calls is asked for its dumps after `wait_s`, by a
thread of each rank or by the pipes that `capture hang` uses, or left to its watchdog. While it waits longer its
processes are stopped, so that others have the cores. Then all jobs of the batch are killed, and MPS is started anew.
Leaves a folder for each job: dumps, logs, truth.json.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[2] / "src")]
import job  # noqa: E402

CORE = ("host", "gpu", "link", "skip", "size", "crash")
MORE = ("order", "deadlock", "group", "type", "kind", "short", "extra", "oom", "frozen")
ALIVE = ("healthy", "slow")
#: Seconds: until all ranks have begun, until an asked job has dumped.
_START_S, _DUMP_S = 30, 6
_LONG_S = 22
_POLL_S = 0.05


def batches(backend: str, at_once: int, done: set[str], given: set[str]) -> list[list[dict[str, Any]]]:
    """What is to be made, what matters first first; jobs of a batch run side by side, and end together."""
    first = [_case(backend, fault, seed) for seed in range(1, 6) for fault in CORE]
    first[2:2] = [_case(backend, "slow", 0)]
    long = [_case(backend, fault, 0, wait_s=_LONG_S) for fault in CORE if fault != "size"]
    watched = [_case(backend, fault, n, by="watchdog", timeout_s=10) for n, fault in enumerate(("host", "skip", "gpu"))]
    rest = [_case(backend, "size", 0), _case(backend, "healthy", 0)]
    rest += [_case(backend, fault, seed) for seed in range(5) for fault in MORE]
    listed = []
    for cases in (first, watched, long, rest):
        wanted = [c for c in cases if c["name"] not in done and (not given or c["fault"] in given)]
        listed += [wanted[n : n + at_once] for n in range(0, len(wanted), at_once)]
    return listed


def _case(backend: str, fault: str, seed: int, **given: Any) -> dict[str, Any]:
    draw = random.Random(f"{fault} {seed}")
    shapes = ["3d", "fsdp", "tp", "moe", "pipe"]
    shape = shapes[(seed + (*CORE, *MORE, *ALIVE).index(fault)) % len(shapes)]
    if fault in ("size", "type", "group", "kind", "order") and shape in ("fsdp", "moe"):
        shape = "tp" if shape == "fsdp" else "3d"
    place = {"host": draw.choice(["next_batch", "save_checkpoint", "mlp"]), "frozen": "mlp"}.get(fault, fault)
    timing = (seed + CORE.index(fault)) % 2 == 0 if fault in CORE else seed % 2 == 0
    case = {
        "name": f"{'watchdog-' if given.get('by') == 'watchdog' else ''}{fault}-{seed}",
        "backend": backend,
        "fault": fault,
        "seed": seed,
        "mesh": shape,
        "place": place,
        "rank": draw.randrange(8),
        "steps": 40 if fault in ALIVE else 9,
        "step": draw.choice([3, 4, 5, 6]),
        "micro_batch": draw.randrange(2),
        "layer": draw.randrange(2),
        "timing": timing,
        "ring": draw.choice([2000, 2000, 2000, 120]),
        "log_every": draw.choice([1, 1, 2]),
        "wait_s": 5,
        "by": "pipe" if seed == 3 and backend == "nccl" else "call",
        "json": seed == 2,
        "timeout_s": 600,
    }
    case.update(given)
    if case["by"] == "watchdog":
        case.update(step=2, wait_s=18, steps=4)
    return case


def environment(case: dict[str, Any], folder: Path, port: int) -> dict[str, str]:
    """What the ranks of a job are started with: that of `capture hang`, and NCCL on one host's loopback."""
    from stepscope.capture.hang import environment as of_capture

    env = of_capture(folder, buffer=case["ring"], timing=case["timing"])
    if case["by"] != "watchdog":
        env["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "0"
    return {
        **env,
        "TORCH_NCCL_USE_COMM_NONBLOCKING": "0",
        "NCCL_SOCKET_IFNAME": "lo",
        "NCCL_P2P_DISABLE": "1",
        "NCCL_SHM_DISABLE": "1",
        "NCCL_IB_DISABLE": "1",
        "NCCL_NET_PLUGIN": "none",
        "NCCL_ALGO": "Ring",
        "NCCL_MAX_NCHANNELS": "1",
        "NCCL_NCHANNELS_PER_NET_PEER": "1",
        "NCCL_BUFFSIZE": "262144",
        "NCCL_DEBUG": "WARN",
        "NCCL_RAS_ADDR": f"localhost:{port}",
    }


class Job:
    """A job that runs: `state` is starting, running, still, dumping or there."""

    def __init__(self, case: dict[str, Any], out: Path, port: int) -> None:
        self.case, self.folder, self.port = case, out / case["name"], port
        self.folder.mkdir(parents=True)
        case["env"] = environment(case, self.folder, port)
        self.shared = memoryview(mmap.mmap(-1, 8 * job.SLOTS)).cast("q")
        self.state, self.since, self.began = "starting", time.monotonic(), time.monotonic()
        self.seen, self.exits, self.note = 0, {}, ""  # type: tuple[int, dict[int, int], str]
        self.stopped = False
        self.pids = {}  # type: dict[int, int]
        for rank in range(8):
            pid = os.fork()
            if pid == 0:
                job.rank_main(case, rank, self.shared, self.folder)
            self.pids[rank] = pid

    def turn(self) -> None:
        for rank, pid in self.pids.items():
            if rank not in self.exits and os.waitpid(pid, os.WNOHANG)[0] == pid:
                self.exits[rank] = 1
        now = time.monotonic()
        count = sum(self.shared[:8])
        if count != self.seen:
            self.seen, self.since = count, now
        waited = now - self.since
        if self.state != "there":
            getattr(self, f"_{self.state}")(now, waited)

    def _starting(self, now: float, waited: float) -> None:
        if all(self.shared[rank] > 2 for rank in range(8)):
            self.state, self.ready = "running", now
        elif now - self.began > _START_S or len(self.exits) == 8:
            self.note = "did not start"
            self._end(now)

    def _running(self, now: float, waited: float) -> None:
        case = self.case
        if len(self.exits) == 8:
            self._end(now)
        elif case["fault"] in ALIVE:
            if max(self.shared[:8]) > 150 and now - self.ready > (4 if case["fault"] == "slow" else 0):
                self._dump(now)
        elif waited > 2:
            self.still_ns = time.time_ns() - round(waited * 1e9)
            self.state = "still"
            if case["backend"] == "nccl":
                self._ras()
            self._stacks()
            if case["wait_s"] > 10 and case["by"] != "watchdog":
                self._signal(signal.SIGSTOP)
                self.stopped = True

    def _still(self, now: float, waited: float) -> None:
        if self.case["by"] == "watchdog":
            if len(self.exits) == 8 or waited > self.case["wait_s"]:
                self._end(now)
        elif waited > self.case["wait_s"]:
            if self.stopped:
                self._signal(signal.SIGCONT)
            self._dump(now)

    def _dump(self, now: float) -> None:
        self.state, self.asked = "dumping", now
        if self.case["by"] == "pipe":
            for rank in range(8):
                try:
                    handle = os.open(self.folder / f"pipe_rank_{rank}.pipe", os.O_WRONLY | os.O_NONBLOCK)
                    os.write(handle, b"1\n")
                    os.close(handle)
                except OSError as error:
                    self.note += f"pipe {rank}: {error.strerror}; "
        else:
            self.shared[job.DUMP] = 1

    def _dumping(self, now: float, waited: float) -> None:
        alive = [rank for rank in range(8) if rank not in self.exits]
        if self.case["fault"] == "frozen":
            alive.remove(self.case["rank"])
        there = {rank for rank in alive if self._there(rank)}
        late = now - self.asked > _DUMP_S
        if self.case["by"] == "pipe" and late and not there:
            self.case["by"], self.asked, self.note = "call", now, "no dump by the pipe"
            self.shared[job.DUMP] = 1
        elif len(there) == len(alive) or late:
            time.sleep(0.1)
            self._end(now)

    def _there(self, rank: int) -> bool:
        if self.case["by"] == "pipe":
            path = self.folder / f"nccl_trace_rank_{rank}"
            return path.exists() and path.stat().st_size > 0 and time.time() - path.stat().st_mtime > 0.5
        return bool(self.shared[job.DUMPED + rank])

    def _end(self, now: float) -> None:
        """Its processes stay until all jobs of the batch are here: one that ends may hurt others under MPS."""
        self.state, self.gone = "there", sorted(self.exits)

    def kill(self) -> None:
        self._signal(signal.SIGCONT)
        self._signal(signal.SIGKILL)
        for rank, pid in self.pids.items():
            if rank not in self.exits:
                os.waitpid(pid, 0)
        self._leave()

    def _signal(self, number: int) -> None:
        for rank, pid in self.pids.items():
            if rank not in self.exits:
                os.kill(pid, number)

    def _ras(self) -> None:
        """What NCCL itself says of its ranks, as `ncclras -v` asks for it."""
        try:
            with socket.create_connection(("localhost", self.port), timeout=1) as line:
                line.settimeout(4)
                line.sendall(b"timeout 2\nverbose status\n")
                said = b""
                while part := line.recv(65536):
                    said += part
        except OSError as error:
            said = said if "said" in locals() else f"no answer: {error}".encode()
        (self.folder / "ncclras.txt").write_bytes(said)

    def _stacks(self) -> None:
        if (tool := os.environ.get("PY_SPY")) is None or self.case["seed"] % 2:
            return
        for rank, pid in self.pids.items():
            if rank in self.exits:
                continue
            try:
                ran = subprocess.run(
                    [tool, "dump", "--json", "--nonblocking", "--pid", str(pid)],
                    capture_output=True, timeout=3, check=True,
                )  # fmt: skip
                (self.folder / f"stacks_rank_{rank}.json").write_bytes(ran.stdout)
            except (OSError, subprocess.SubprocessError) as error:
                self.note += f"py-spy {rank}: {type(error).__name__}; "
                return

    def _leave(self) -> None:
        """The folder as `hang` is to read it, and the truth."""
        folder = self.folder
        dumps = [rank for rank in range(8) if (folder / f"nccl_trace_rank_{rank}").exists()]
        lines = []
        for rank in range(8):
            log = folder / f"log_{rank}"
            if log.exists():
                said = log.read_text(errors="replace").splitlines()
                lines += said if len(said) < 200 else [*said[:40], *said[-160:]]
                log.unlink()
        (folder / "train.log").write_text("\n".join(lines) + "\n")
        times = {str(rank): (folder / f"nccl_trace_rank_{rank}").stat().st_mtime_ns for rank in dumps}
        (folder / "hang.json").write_text(json.dumps({"dumped_ns": times}))
        for path in (*folder.glob("pipe_rank_*"), *folder.glob("part_*"), folder / "store"):
            path.unlink(missing_ok=True)
        truth = {key: value for key, value in self.case.items() if key != "env"}
        truth |= {"dumps": dumps, "gone": self.gone, "note": self.note, "calls": list(self.shared[:8])}
        truth["still_ns"] = getattr(self, "still_ns", None)
        truth["seconds"] = round(time.monotonic() - self.began, 1)
        (folder / "truth.json").write_text(json.dumps(truth))


def _import_early(backend: str) -> None:
    """A dump with stacks imports torch's compiler, which takes seconds: once, before ranks are forked, where
    forked processes can still use the GPU then."""
    global _DUMP_S
    if os.environ.get("HANGS_LATE"):
        _DUMP_S = 25
        return
    import torch._inductor

    if backend != "nccl":
        return
    pid = os.fork()
    if pid == 0:
        try:
            torch.zeros(1, device="cuda").item()
        except BaseException as error:
            print(f"a forked process: {error}"[:300], flush=True)
            os._exit(1)
        os._exit(0)
    if os.waitpid(pid, 0)[1]:
        print("torch's compiler is imported by each rank", flush=True)
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "HANGS_LATE": "1"})


class Mps:
    """The daemon that lets processes share the GPU at the same time: a new one for each batch."""

    def __init__(self, backend: str, folder: Path) -> None:
        self.used, self.folder, self.count = backend == "nccl", folder, 0

    def start(self) -> None:
        if self.used:
            self.count += 1
            for name, what in (("PIPE", "mps"), ("LOG", "log")):
                path = self.folder / f"{what}{self.count}"
                path.mkdir(parents=True)
                os.environ[f"CUDA_MPS_{name}_DIRECTORY"] = str(path)
            subprocess.run(["nvidia-cuda-mps-control", "-d"], timeout=10, check=False)

    def stop(self) -> None:
        if self.used:
            for server in self._asked("get_server_list").split():
                if server.isdigit():
                    os.kill(int(server), signal.SIGKILL)
            self._asked("quit -t 1")

    def _asked(self, command: str) -> str:
        try:
            ran = subprocess.run(
                ["nvidia-cuda-mps-control"],
                input=command + "\n",
                capture_output=True,
                text=True,
                timeout=4,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return ""
        return ran.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="nccl")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--mps", type=Path, default=Path("/tmp/hangs-mps"), help="folder for MPS")
    parser.add_argument("--limit", type=float, default=100, help="seconds after which no batch is started")
    parser.add_argument("--at-once", type=int, default=5, help="jobs of a batch")
    parser.add_argument("--done", default="", help="names of jobs to leave out, by comma")
    parser.add_argument("--only", default="", help="faults, by comma")
    given = parser.parse_args()
    began = time.monotonic()
    mps, port, good = Mps(given.backend, given.mps), 28100, 0
    mps.start()
    _import_early(given.backend)
    only = set(filter(None, given.only.split(",")))
    listed = batches(given.backend, given.at_once, set(given.done.split(",")), only)
    for number, cases in enumerate(listed):
        if time.monotonic() - began > given.limit - (_LONG_S if cases[0]["wait_s"] > 10 else 0):
            continue
        if number:
            mps.start()
        jobs = []
        for case in cases:
            port += 1
            jobs.append(Job(case, given.out, port))
        while any(job.state != "there" for job in jobs):
            for one in jobs:
                try:
                    one.turn()
                except Exception as error:  # one job that fails does not end the others
                    one.note += f"{type(error).__name__}: {error}"
                    one.state, one.gone = "there", []
            time.sleep(_POLL_S)
        for one in jobs:
            one.kill()
            there = len(list(one.folder.glob("nccl_trace_rank_?")))
            good += bool(there)
            print(f"[{time.monotonic() - began:.0f} s] {one.case['name']}: {there} dumps {one.note}"[:300], flush=True)
        mps.stop()
    print(f"{good} jobs with dumps", flush=True)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
