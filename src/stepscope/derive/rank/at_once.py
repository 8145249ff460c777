"""Several ranks at once: NumPy and Polars let go of Python's lock while they work on arrays.

What ranks share (tables of all of them, what a name is) is derived by the first of them, alone: two threads that come
for it together would both derive it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from typing import TypeVar

from stepscope import progress
from stepscope.derive.rank.data import RankData
from stepscope.derive.rank.together import TOGETHER
from stepscope.files import budget, cores
from stepscope.model.profile import Profile

T = TypeVar("T")

#: Ops per rank from which on arrays take longer than the Python between them: half of the time, threads would wait.
_WORTH_OPS = 16_384
#: As many threads get in each other's way: two thirds of the time are arrays.
_MOST = 3
#: Whether the work at hand is one rank's among several: what it asks of other ranks is not shared out again.
_among: ContextVar[bool] = ContextVar("among", default=False)


def of_each(profile: Profile, ranks: Iterable[RankData], function: Callable[[RankData], T]) -> list[T]:
    """`function(data)` of each rank, in their order."""
    ranks = list(ranks)
    workers = min(_MOST, cores.threads(), len(ranks) - 1)
    if workers < 2 or _among.get() or not _worth(profile) or budget.tight():
        return [function(data) for data in progress.each("rank", ranks)]
    answers: list[T] = []
    with ThreadPoolExecutor(workers) as pool:
        for first in range(0, len(ranks), TOGETHER):
            some = ranks[first : first + TOGETHER]
            progress.report("rank", first + 1, len(ranks))
            answers.append(function(some[0]))
            answers += _shared(pool, some[1:], function)
    return answers


def _shared(pool: Executor, ranks: list[RankData], function: Callable[[RankData], T]) -> list[T]:
    def alone(data: RankData) -> T:
        _among.set(True)
        return function(data)

    # Each in a context of its own: who may stop the work, and hears of it, is known there.
    running: list[Future[T]] = [pool.submit(copy_context().run, alone, data) for data in ranks]
    try:
        return [one.result() for one in running]
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        raise


def _worth(profile: Profile) -> bool:
    return profile.has("ops") and profile.ops.height >= _WORTH_OPS * profile.ranks.height
