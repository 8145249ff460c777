"""Which steps are recorded: so many after the warm-up, once; or as many again every N steps, within a budget."""

from __future__ import annotations

from pathlib import Path

from stepscope.annotate.profilers import common_store

#: How files of profilers end, while they are written or after; their sizes count for the budget.
_FILES = ("*.nsys-rep", "*.pt.trace.json.gz")


class Stretches:
    """Counts stretches of recorded steps. Without `every` there is one."""

    def __init__(self, warmup: int, every: int, budget: int) -> None:
        self.every, self._budget = every, budget
        #: how many were recorded, and after how many steps the next one begins
        self.done, self.next = 0, warmup
        self._first = warmup

    def begun(self, seen: int) -> None:
        """One begins after so many steps: the first says when the others do."""
        if not self.done:
            self._first = seen

    def ended(self) -> bool:
        """One is over; whether that was the last."""
        self.done += 1
        self.next = self._first + self.done * self.every
        return not self.every

    def goes_on(self, seen: int, out: Path, rank: int) -> bool:
        """Whether another one fits the budget. It is decided the step before, by the first rank for all: ranks that
        disagree would wait for each other for ever."""
        if not self.done or not self._budget or seen != self.next - 1:
            return True
        store, world = common_store()
        fits = rank != 0 or self._fits(out)
        if world == 1 or store is None:
            return fits
        key = f"stepscope/stretch{self.done}"
        if rank == 0:
            store.set(key, str(int(fits)))
        return bool(int(store.get(key)))

    def _fits(self, out: Path) -> bool:
        used = sum(f.stat().st_size for ending in _FILES for f in out.glob(ending))
        return used + used / self.done <= self._budget

    def name(self, what: str) -> str:
        """Of a meeting of all ranks, or a file: with the number of the stretch, where there may be several."""
        return f"{what}.{self.done + 1}" if self.every else what
