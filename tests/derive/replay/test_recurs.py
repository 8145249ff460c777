"""A replayed step recurs: its length is that of the last of many such steps, simulated one after the other.

The reference is a loop over launches: the host goes from one to the next, and a kernel starts when its launch has
returned and the kernel before it is over. Nothing else takes time, so the figures are equal.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
import pytest

from fake import Row, call, make, nvtx, op
from stepscope.derive.graph.critical_path import walk
from stepscope.derive.replay.change import Change
from stepscope.derive.replay.replay import Replay
from stepscope.derive.windows.spec import WindowSpec
from stepscope.intervals import Spans

STEPS = 24
#: The step that is looked at: the host and the GPU have found their pace by then.
MIDDLE = STEPS // 2


@dataclass(frozen=True)
class Loop:
    """By launch of a step: host time before it, of its call, and of its kernel; does the step end with a wait?."""

    gap: list[int]
    call: list[int]
    kernel: list[int]
    waits: bool = False

    def played(self) -> tuple[dict[str, list[Row]], list[int]]:
        """What a profiler would record of many steps, and when each step was over on the GPU."""
        rows: dict[str, list[Row]] = {"ops": [], "calls": [], "ranges": []}
        host = gpu = number = 0
        over = []
        for n in range(STEPS):
            begun = host
            for gap, takes, kernel in zip(self.gap, self.call, self.kernel, strict=True):
                number += 1
                rows["calls"].append(call(host + gap, host + gap + takes, id=number))
                host += gap + takes
                start = max(host, gpu)
                gpu = start + kernel
                rows["ops"].append(op(start, gpu, call=number))
            if self.waits:
                number += 1
                rows["calls"].append(call(host, max(host, gpu) + 1, id=number, name="cudaDeviceSynchronize"))
                host = max(host, gpu) + 1
            rows["ranges"].append(nvtx(begun, host, f"step {n}"))
            over.append(gpu)
        return rows, over


def loop(chance: random.Random, waits: bool) -> Loop:
    n = chance.randint(3, 12)
    return Loop(*([chance.randint(lo, hi) for _ in range(n)] for lo, hi in ((5, 60), (2, 9), (3, 70))), waits)


def replayed(loop: Loop, quick: list[int], step: int = MIDDLE) -> tuple[int, int]:
    """The step with no host time before these launches: by a replay, and by many steps."""
    rows, _ = loop.played()
    profile = make(**rows)
    path = walk(profile, WindowSpec(index=step), "auto")
    per_step = len(loop.gap) + loop.waits
    calls = [rows["calls"][step * per_step + i] for i in quick]
    ends = np.array([c["start_ns"] for c in calls], dtype=np.int64)
    cut = Spans(ends - np.array([loop.gap[i] for i in quick], dtype=np.int64), ends)
    gaps = [0 if i in quick else gap for i, gap in enumerate(loop.gap)]
    _, over = Loop(gaps, loop.call, loop.kernel, loop.waits).played()
    return Replay(profile, path).run(Change(host_time_cut={0: cut})), over[-1] - over[-2]


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("seed", range(40))
def test_a_step_is_as_long_as_the_last_of_many(seed: int, waits: bool) -> None:
    chance = random.Random(seed)
    drawn = loop(chance, waits)
    quick = sorted(chance.sample(range(len(drawn.gap)), chance.randint(0, len(drawn.gap))))
    by_replay, by_many = replayed(drawn, quick)
    assert by_replay == by_many


@pytest.mark.parametrize("seed", range(40))
def test_the_first_step_of_a_capture_recurs_too(seed: int) -> None:
    """Where the GPU is done when the host is: what a change saves is what it saves of later steps."""
    chance = random.Random(seed)
    drawn = loop(chance, waits=False)
    drawn = Loop([*drawn.gap, 900], [*drawn.call, 9], [*drawn.kernel, 1])  # the host is busy at the end
    quick = sorted(chance.sample(range(len(drawn.gap)), chance.randint(0, len(drawn.gap))))
    over = drawn.played()[1]
    assert over[0] == sum(drawn.gap) + sum(drawn.call) + 1
    by_replay, by_many = replayed(drawn, quick, step=0)
    assert abs((over[0] - by_replay) - (over[-1] - over[-2] - by_many)) <= 1


@pytest.mark.parametrize("seed", range(20))
def test_a_step_behind_a_synchronization_begins_with_a_host_that_is_not_ahead(seed: int) -> None:
    drawn = loop(random.Random(seed), waits=False)
    rows, over = drawn.played()
    profile = make(**rows)
    replay = Replay(profile, walk(profile, WindowSpec(index=MIDDLE), "auto"))
    behind = max(rows["ranges"][MIDDLE]["start_ns"] - over[MIDDLE - 1], 0)
    host = gpu = 0
    for gap, takes, kernel in zip(drawn.gap, drawn.call, drawn.kernel, strict=True):
        host += gap + takes
        gpu = max(host, gpu) + kernel
    assert replay.alone(Change()) == behind + gpu
    assert not replay.waiting
