"""How many micro-batches a schedule needs until its median chunk is a steady one."""

from __future__ import annotations

from stepscope.errors import BadInput

SCHEDULES = ("dualpipev", "1f1b", "interleaved", "zero-bubble", "fsdp", "ddp")
#: Steady chunks that a rank should at least have, to be more than an accident.
_ENOUGH = 8


def overlapped_chunks(n: int, p: int, rank: int) -> int:
    """DualPipeV: chunks of pipeline rank `rank` of `p` that overlap forward and backward, with n micro-batches."""
    return 2 * n - 2 * p - 1 if rank == p - 1 else 2 * n - 3 * p + rank + 1


def steady_chunks(n: int, p: int, rank: int) -> int:
    """DualPipeV: those of them before the drain, in which every second forward is missing."""
    return overlapped_chunks(n, p, rank) - (p - rank - 1)


def median_is_steady(schedule: str, n: int, p: int) -> bool:
    """Whether the chunk that analyses look at (the median one) is in the steady state, on every rank."""
    if schedule == "dualpipev":
        return n >= 2 * p and all(overlapped_chunks(n, p, r) // 2 < steady_chunks(n, p, r) for r in range(p))
    return n >= 2 * p


def least_micro_batches(schedule: str, p: int) -> int:
    """The fewest micro-batches whose median chunk is steady."""
    if schedule in ("fsdp", "ddp"):
        return 1
    return next(n for n in range(2 * p, 8 * p + 8) if median_is_steady(schedule, n, p))


def good_micro_batches(schedule: str, p: int) -> int:
    """As few as give every rank a steady median and a handful of steady chunks; an even number, a multiple of pp
    where the schedule wants that."""
    least = least_micro_batches(schedule, p)
    if schedule in ("fsdp", "ddp"):
        return least
    if schedule == "dualpipev":
        while steady_chunks(least, p, 0) < _ENOUGH:
            least += 1
    elif schedule == "interleaved":
        return max(2 * p, -(-_ENOUGH // p) * p)
    else:
        least = max(least, p + _ENOUGH)
    return least + least % 2


def check_micro_batches(schedule: str, n: int, p: int) -> None:
    """Refuse too few, with the numbers."""
    need = least_micro_batches(schedule, p)
    better = f"give --micro-batches {need} or more, or a smaller --pp"
    if schedule == "dualpipev" and n < 2 * p:
        raise BadInput(f"have {n} micro-batches, need {2 * p}: DualPipeV needs 2·pp at pp = {p}", better)
    if not median_is_steady(schedule, n, p) and schedule not in ("fsdp", "ddp"):
        raise BadInput(
            f"have {n} micro-batches, need {need}: with fewer, the median chunk of pp = {p} is not in the steady state",
            better,
        )
    if schedule == "interleaved" and n % p:
        near = -(-n // p) * p
        raise BadInput(f"{n} micro-batches are not a multiple of pp = {p}", f"give --micro-batches {near}")
