"""How questions about good traces ended: counts over rounds, which a journal keeps for a run that goes on later."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any


class Tally:
    """Counts of how questions ended, and what must not be."""

    def __init__(self, seed: int, journal: Path | None = None) -> None:
        self._seed, self._journal = seed, journal
        self._began, self._seconds, self._last = time.monotonic(), 0.0, time.monotonic()
        self._rounds: set[tuple[str, int]] = set()
        self._ended: Counter[str] = Counter()
        self._drawn: set[str] = set()
        self.failures: Counter[str] = Counter()
        self.slow: list[str] = []
        if journal is not None and journal.is_file():
            for line in journal.read_text("utf-8").splitlines():
                record = json.loads(line)
                if record["seed"] == seed:
                    self._count(record)

    def has(self, trace: Path, number: int) -> bool:
        return (str(trace), number) in self._rounds

    def add(self, trace: Path, number: int, record: dict[str, Any]) -> None:
        before, now = self.questions, time.monotonic()
        record |= {"seed": self._seed, "trace": str(trace), "round": number, "s": now - self._last}
        self._last = now
        for text, what in record["failures"].items():
            if not self.failures[text]:
                print(f"{text}\n     {trace.name}:{number} {what}", flush=True)
        for text in record["slow"]:
            print(f"slow: {trace.name}:{number} {text}", flush=True)
        self._count(record)
        if self._journal is not None:
            with self._journal.open("a", encoding="utf-8") as journal:
                journal.write(json.dumps(record) + "\n")
        if self.questions // 1000 > before // 1000:
            print(f"{self.questions} questions in {self._seconds:.0f} s", flush=True)

    def _count(self, record: dict[str, Any]) -> None:
        self._rounds.add((record["trace"], record["round"]))
        self._ended.update(record["ended"])
        # A question that failed is in none of the other counts.
        self._ended["failed"] += sum(text.startswith("unexpected") for text in record["failures"])
        self._drawn.update(record["drawn"])
        self._seconds += record["s"]
        self.failures.update(record["failures"].keys())
        self.slow += record["slow"]

    @property
    def questions(self) -> int:
        return self._ended.total()

    def print(self) -> None:
        traces = len({trace for trace, _ in self._rounds})
        print(f"{self.questions} questions on {traces} traces in {self._seconds:.0f} s: {dict(self._ended)}")
        print(f"{self.failures.total()} must not be, of {len(self.failures)} kinds; {len(self.slow)} slow")
        drawn, every = self._coverage()
        print(f"{drawn} of {every} options of all commands were drawn in command lines")

    def _coverage(self) -> tuple[int, int]:
        from drawn_lines import every_pair

        every = every_pair()
        return len(self._drawn & every), len(every)

    def result(self) -> dict[str, Any]:
        """What docs/reliability.md shows."""
        sorts = Counter(text.partition(":")[0] for text in self.failures.elements())
        drawn, every = self._coverage()
        return {
            "suite": "good",
            "questions": self.questions,
            "traces": len({trace for trace, _ in self._rounds}),
            "minutes": round(self._seconds / 60, 1),
            "options": f"--seed {self._seed}",
            "ended": {key: self._ended[key] for key in ("answered", "cannot", "refused")},
            "drawn": drawn,
            "declared": every,
            "slow": len(self.slow),
            **{sort: sorts[sort] for sort in ("unexpected", "impossible")},
        }
