"""What the flight recorder of each rank holds when it is dumped: a ring of the last calls, with what was seen of
each."""

from __future__ import annotations

from functools import cache
from random import Random
from typing import Any

from stepscope.simulate.hang.job import Call, HangJob, Program
from stepscope.simulate.hang.pickled import Frame
from stepscope.simulate.hang.play import NEVER, Played

#: When the job began, and how often the watchdog looks at what is under way.
EPOCH_NS = 1_790_000_000_000_000_000
_POLL_NS = 100_000_000
_TIMEOUT_MS = 600_000
#: Below the frames of the job, those of torch.
_BELOW = (("wrapper", "torch/distributed/c10d_logger.py", 83),)
_ABOVE = (("train", "trainer.py", 140), ("main", "train.py", 31))


def dump_of(made: Program, played: Played, rank: int, dumped_ns: int, backend: str = "") -> dict[str, Any]:
    """The dump of a rank at a time of the job, by the recorder of the job's library or of `backend`."""
    job = made.job
    random = Random(f"{job.seed} clock {rank // 8}")
    clock = EPOCH_NS + random.randrange(-2_000_000, 2_000_000)
    count = sum(t <= dumped_ns for t in played.enqueued[rank])
    entries: list[dict[str, Any]] = []
    record = 0
    op_ids: dict[int, int] = {}
    here = {g.number for g in made.groups if g.backend == backend}
    for n in range(count):
        if made.calls[rank][n].group not in here:
            continue
        for entry in _entries(made, played, rank, n, dumped_ns, clock):
            group = entry["pg_id"]
            op_ids[group] = entry["op_id"] = op_ids.get(group, 0) + 1
            entries.append({**entry, "record_id": record})
            record += 1
    own = [group for group in made.groups if rank in group.members and group.number in here]
    config = {g.name: {"name": g.name, "desc": g.purpose, "ranks": str(list(g.members))} for g in own}
    status = {str(g.number): _status(made, played, rank, g.number, count, dumped_ns) for g in own}
    head: dict[str, Any] = {"version": job.version, "pg_config": config}
    if _minor(job) >= 6:
        head["comm_lib_version" if _minor(job) >= 9 else "nccl_version"] = "2.27.5"
    if _minor(job) >= 3:
        head["pg_status"] = status
    return {**head, "entries": entries[-job.buffer :]}


def _minor(job: HangJob) -> int:
    return int(job.version.split(".")[1])


def _status(made: Program, played: Played, rank: int, group: int, count: int, now: int) -> dict[str, int]:
    own = [n for n in range(count) if made.calls[rank][n].group == group and not made.calls[rank][n].pairs]
    done = [played.seq[rank][n] for n in own if played.ended[rank][n] <= now]
    begun = [played.seq[rank][n] for n in own if played.began[rank][n] <= now] if made.job.timing else []
    return {
        "last_enqueued_collective": played.seq[rank][own[-1]] if own else -1,
        "last_started_collective": max(begun, default=-1),
        "last_completed_collective": max(done, default=-1),
    }


def _entries(made: Program, played: Played, rank: int, n: int, now: int, clock: int) -> list[dict[str, Any]]:
    """A call as the recorder has it; of a batch, each transfer without events, then the call that closes it."""
    job, call = made.job, made.calls[rank][n]
    began, ended = played.began[rank][n], played.ended[rank][n]
    state = "completed" if ended <= now else "started" if began <= now and job.timing else "scheduled"
    retired = min(now, -(-ended // _POLL_NS) * _POLL_NS) if ended <= now else NEVER
    # Events are asked when a call is retired, or else when the dump is written.
    seen = retired if ended <= now else now
    times: dict[str, Any] = {
        "time_discovered_started_ns": clock + seen if state != "scheduled" and job.timing else None,
        "time_discovered_completed_ns": clock + retired if ended <= now else None,
    }
    group = made.groups[call.group]
    where = {
        "frames": _frames(call.site, call.kind),
        "pg_id": call.group,
        "process_group": (group.name, group.purpose),
        **({"thread_name": "pt_main_thread", "thread_id": "139690303249280"} if _minor(job) >= 10 else {}),
        "collective_seq_id": played.seq[rank][n] if not call.pairs else 0,
        "p2p_seq_id": played.seq[rank][n] if call.pairs else 0,
        "op_id": 0,
    }
    took = {"duration_ms": (ended - began) / 1e6} if job.timing and ended <= now else {}
    tail = {"retired": ended <= now, "timeout_ms": _TIMEOUT_MS, "is_p2p": bool(call.pairs)}
    created = {"time_created_ns": clock + played.enqueued[rank][n]}
    done = {"state": state, **times, **tail}
    place = group.members.index(rank) if call.pairs else 0
    if group.backend:  # without events: that a call is over says that it was retired
        unseen = {"state": "scheduled", "time_discovered_started_ns": None, "time_discovered_completed_ns": None}
        took, done = {}, {**unseen, **tail}
    if len(call.pairs) < 2 and not (call.pairs and job.batched):
        name = {"profiling_name": _name(group.backend or job.backend, call, place)}
        return [{**where, **name, **created, **took, **_sizes(call), **done}]
    nothing = {"state": "scheduled", "time_discovered_started_ns": None, "time_discovered_completed_ns": None}
    inside = {**nothing, **tail, "retired": False}
    names = [_name(job.backend, call, place, n) for n in range(len(call.pairs))]
    rows = [{**where, "profiling_name": name, **created, **_sizes(call), **inside} for name in names]
    closing: dict[str, Any] = {"input_sizes": [], "input_dtypes": [], "output_sizes": [], "output_dtypes": []}
    return [*rows, {**where, "profiling_name": f"{job.backend}:coalesced", **created, **took, **closing, **done}]


def _name(backend: str, call: Call, place: int, n: int = 0) -> str:
    """`place` is that of the rank in the group."""
    if not call.pairs:
        return f"{backend}:{call.kind}"
    source, target = call.pairs[n]
    return f"{backend}:send {source}->{target}" if source == place else f"{backend}:recv {target}<-{source}"


def _sizes(call: Call) -> dict[str, Any]:
    """Of a transfer, one side has no tensor."""
    tensors = {"input": call.elements, "output": call.out}
    return {
        f"{side}_{what}": value
        for side, size in tensors.items()
        for what, value in (("sizes", [[size]]), ("dtypes", [call.dtype]))
    }


@cache
def _frames(site: str, kind: str) -> list[Frame]:
    file, line, name = site.split(":")
    lines = ((kind, "torch/distributed/distributed_c10d.py", 2801), *_BELOW, (name, file, int(line)), *_ABOVE)
    return [_frame(*one) for one in lines]


@cache
def _frame(name: str, file: str, line: int) -> Frame:
    return Frame(name=name, filename=file, line=line)
