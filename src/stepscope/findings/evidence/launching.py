"""How fast hosts launch, and how fast they should: shared by the detectors that must not blame one thing twice."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from msgspec import Struct

from stepscope.derive.graph.releases import releases
from stepscope.derive.host.idle_causes import QUEUE, STARVED
from stepscope.derive.peers.lateness import host_late
from stepscope.derive.replay.change import Change
from stepscope.findings.case import Case
from stepscope.findings.evidence.hosts import each_host, hosts
from stepscope.findings.evidence.once import once
from stepscope.intervals import Spans, join, subtract, union
from stepscope.intervals.arrays import I64, one_of
from stepscope.model.threshold import Threshold

LAUNCHES_FOR_A_SPEED = Threshold(
    32,
    "launches",
    "of fewer, the fastest tenth is one or two launches; with fewer, the usual speeds below are taken",
    ("public/a100_cuda_graphs.sqlite", "tests/findings/test_thresholds.py::test_a_speed_takes_enough_launches"),
)
FASTEST_LAUNCHES = Threshold(
    10.0,
    "% of the launches",
    "what a host does without anything in its way: nothing shortens a launch, much lengthens one",
    ("tests/findings/test_thresholds.py::test_speeds_come_from_the_trace", "decision 0019"),
)
QUICKEST_CALL = Threshold(
    2.0,
    "µs",
    "no launch takes less: the fastest hundredth takes 2.3 beside an MI300X, 2.8 beside an H100",
    ("public/tl_mi300_resnet_ckpt.json.gz", "public/h100_qwen.json.gz"),
)
SLOWEST_SOUND_CALL = Threshold(
    10.0,
    "µs",
    "the fastest tenth of launch calls takes 2.7 to 8.8 on all sound hosts, under whatever profiler; a host whose "
    "fastest take longer is slow throughout, and says nothing of what is usual",
    ("public/toke_ann0.json.gz", "tests/findings/test_faults_host.py", "decision 0019"),
)
USUAL_CALL = Threshold(
    3.5,
    "µs",
    "a launch call without a profiler's help, where the trace itself does not say",
    ("public/h100_qwen.json.gz", "tests/findings/test_faults_host.py"),
)
USUAL_PACE = Threshold(
    6.0,
    "µs",
    "host time from launch to launch, the call and nearly as much again around it, where the trace does not say",
    ("public/t4_power_iteration.sqlite", "tests/findings/test_faults_host.py"),
)
SLOW_CALL = Threshold(
    3.5,
    "times the usual call",
    "the median call takes 1.1 to 1.6 times the fastest tenth on sound hosts",
    (
        "tests/data/moe_reference",
        "tests/findings/test_faults_host.py",
        "tests/findings/test_thresholds.py::test_speeds_come_from_the_trace",
    ),
)
SLOW_FRAMEWORK = Threshold(
    1.75,
    "times the usual pace",
    "simulated hosts that launch as fast as they can vary by 1.1; eager frameworks take 1.6 to 15 times as long",
    ("tests/findings/test_healthy.py", "public/rtx5000ada_windows.sqlite", "decision 0019"),
)
SLOW_BESIDE_PEERS = Threshold(
    1.4,
    "times the pace of the others",
    "sound hosts of one job differ by up to 1.27",
    ("h200/moe4/overlapped.rank*.pt.trace.json.gz", "tests/findings/test_faults_host.py"),
)


class Usual(Struct, frozen=True):
    """Host time that a launch should take: its call, and from one launch to the next."""

    call_ns: float
    pace_ns: float
    measured: bool  # on the job's own fastest launches; else what they take elsewhere


def usual(case: Case) -> Usual:
    """How fast the hosts of the job can launch; judged once per case."""
    return case.once(_usual)


def _usual(case: Case) -> Usual:
    """From the fastest launches of the faster hosts, where they are as fast as sound hosts are; else as elsewhere.

    A profiler makes every call longer, the fastest too, so that a trace is its own best measure. A host that is slow
    throughout is not: its fastest launches take longer than those of any sound host.
    """
    calls = [h.launch_calls for h in hosts(case).values() if len(h.launch_calls) >= LAUNCHES_FOR_A_SPEED.value]
    call = max(_fastest(calls), QUICKEST_CALL.ns)
    if not calls or call > SLOWEST_SOUND_CALL.ns:
        return Usual(USUAL_CALL.ns, USUAL_PACE.ns, measured=False)
    paces = [h.paces for h in hosts(case).values() if len(h.paces) >= LAUNCHES_FOR_A_SPEED.value]
    around = call * USUAL_PACE.value / USUAL_CALL.value
    return Usual(call, min(max(_fastest(paces), call), around) if paces else around, measured=True)


def _fastest(lengths: list[I64]) -> float:
    """What the fastest launches take; of several hosts, on the lower quartile of them: others may be slow."""
    fastest = sorted(float(np.quantile(of_host, FASTEST_LAUNCHES.share)) for of_host in lengths)
    return fastest[(len(fastest) - 1) // 4] if fastest else 0.0


class Slow(Struct, frozen=True):
    """Ranks that launch slowly, with how many times too slowly."""

    beside: dict[int, float]  # than their peers
    machine: dict[int, float]  # by their calls, than machines usually are
    framework: dict[int, float]  # for what lies between their calls


def slow_hosts(case: Case) -> Slow:
    """Which hosts launch slowly; judged once per case."""
    return case.once(_slow_hosts)


def _slow_hosts(case: Case) -> Slow:
    """A rank that is slower than the median of the others is compared with them.

    All ranks together can only be compared with what is usual (`usual`): where the launch calls themselves take several
    times as long, the machine is slow, and is taken to be as fast as that; where they do not, the framework is what
    takes time between them, and launches are taken to come at the pace of the hardware, as those of CUDA graphs do.
    """
    paces = {r: pace for r, pace in each_host(case, lambda h: h.pace_ns).items() if pace is not None}
    should, slow = usual(case), Slow({}, {}, {})
    for rank, pace in paces.items():
        others = [p for r, p in paces.items() if r != rank]
        if others and pace > SLOW_BESIDE_PEERS.value * (peers := float(np.median(others))):
            slow.beside[rank] = pace / peers
    if 2 * len(slow.beside) > len(paces):  # most of them: then those are the usual ones
        slow.beside.clear()
    for rank, pace in paces.items():
        factor = slow.beside.get(rank, 1.0)
        call = hosts(case)[rank].call_ns / factor / should.call_ns
        if call >= SLOW_CALL.value:
            slow.machine[rank] = call
        elif pace / factor >= SLOW_FRAMEWORK.value * should.pace_ns:
            slow.framework[rank] = pace / factor / should.pace_ns
    return slow


def quicker(case: Case, *factors: dict[int, float]) -> Change:
    """Hosts that launch so many times as fast."""
    products = {r: float(np.prod([f.get(r, 1.0) for f in factors])) for r in {r for f in factors for r in f}}
    return Change(host_time_cut={r: hosts(case)[r].quicker(f) for r, f in products.items()})


def unfed(case: Case, rank: int) -> Spans:
    """When the GPU of a rank idles for lack of a launch: its queue is empty, as `idle` and `launches` have it.

    The moment that any launch takes to arrive belongs to it. What was launched longer ago waits for something else (an
    event, another rank, a copy), and a faster host would not start it sooner. Nor is idle time of a capture that comes
    once, for code to be loaded or connections to be made, a matter of how fast hosts launch.
    """
    host = hosts(case)[rank]
    idle, data = host.idle, host.data
    arrives = releases(data).latency.launch
    returned = host.stop[np.maximum(idle.call, 0)] if len(host.stop) else idle.end
    arrived = np.maximum(np.minimum(idle.end, returned + arrives), idle.start)
    queued = idle.cause == QUEUE
    chosen = queued | one_of(idle.cause, STARVED)
    return subtract(union(idle.start[chosen], np.where(queued, arrived, idle.end)[chosen]), case.once(once)[rank])


def unfed_ns(case: Case, ranks: Iterable[int]) -> int:
    """The most that faster launching on some ranks can save: ranks that meet may be late one after the other.

    While communication runs, compute that is not launched yet could run beside it.
    """
    late = {r: host_late(hosts(case)[r].data)[0].clip(*hosts(case)[r].gpu) for r in ranks}
    lengths = [subtract(join(unfed(case, r), spans), case.once(once)[r]).length() for r, spans in late.items()]
    return max(lengths, default=0) if case.path.met is None else sum(lengths)
