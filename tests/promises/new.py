"""Programs with faults of the catalogue, two and more of each kind: what `diagnose` says, and what the fault costs.

new.toml has the programs and their steps without a profiler. `python tests/promises --new` prints the table; with
`--write` it goes into docs/promises.md, and the intervals of findings that no simulated job has into calibration.toml.
"""

from __future__ import annotations

import math
import statistics
import tarfile
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from promises.pair import Pair, Said, Told, asked

HERE = Path(__file__).parent
DATA = HERE.parent / "data" / "pairs"
TOOLS = ("nsys", "torch")
#: "Within 25 %": what a promise may be off by.
_CLOSE = 0.25
#: An error of the truth that is worth a word.
_SMALL = 0.05
#: Where its part of docs/promises.md begins and ends.
BEGIN, END = "<!-- programs -->", "<!-- /programs -->"


def table(kind: str = "pair") -> list[dict[str, Any]]:
    """Rows with captures that were timed; `captured`: those that were not."""
    rows: list[dict[str, Any]] = _file().get(kind, [])
    return [{"twin": "none", "tools": TOOLS, **row} for row in rows]


def _file() -> dict[str, Any]:
    return tomllib.loads((HERE / "new.toml").read_text("utf-8"))


def archive(program: str, fault: str, tool: str) -> Path:
    return DATA / f"{program}-{fault}.{tool}.tar.xz"


def twins() -> list[tuple[str, str, str]]:
    """Captures of programs without a fault, each once: program, twin, tool."""
    every = dict.fromkeys((row["program"], row["twin"]) for row in (*table(), *table("captured")))
    return [(*twin, tool) for twin in every for tool in TOOLS if archive(*twin, tool).exists()]


def unpacked(program: str, fault: str, tool: str, folder: Path) -> Path:
    into = folder / f"{program}-{fault}.{tool}"
    if not into.exists():
        with tarfile.open(archive(program, fault, tool)) as packed:
            packed.extractall(into, filter="data")
    return into


@dataclass(frozen=True)
class Answer:
    """What `diagnose` says of one capture. `truth_ms` is None where nothing was planted, or it was not timed."""

    row: str
    program: str
    fault: str
    tool: str
    step_ms: float
    truth_ms: float | None
    ids: tuple[str, ...]
    said: tuple[Said, ...]
    #: what the same finding promises for the twin, which has some of the fault, too
    had_ns: int = 0
    #: the standard error of the truth, where both sides were timed several times
    error_ms: float | None = None
    #: said above the findings, where that names it: start-up is no finding
    note: str | None = None
    #: among how many findings it must be: the first two, or one more than there are larger losses in the twin and it
    reach: int = 2

    @property
    def faults(self) -> tuple[Said, ...]:
        """That the profiler slows the step is no fault of the program's."""
        return tuple(s for s in self.said if s.id != "profiler-distortion")

    @property
    def pair(self) -> Pair:
        """The same as other pairs have it."""
        assert self.truth_ms is not None, "nothing was planted"
        step = round(1e6 * self.step_ms)
        return Pair(self.program, self.tool, self.fault, self.ids, 1e6 * self.truth_ms, None, step, self.faults)

    @property
    def named(self) -> bool:
        return self.note is not None or any(s.id in self.ids for s in self.faults[: self.reach])

    @property
    def kept(self) -> bool:
        return self.named and not self.verdict.endswith(")")

    @property
    def verdict(self) -> str:
        """Whether one of the first findings names the fault, and how far its promise is off."""
        if self.truth_ms is None:
            return ("named" if self.named else "not named") + ", not timed" if self.row else ""
        named = next((s for s in self.faults[: self.reach] if s.id in self.ids), None)
        if named is None:
            return "not named"
        place = self.faults.index(named)
        off = (named.ns - self.had_ns) / 1e6 / self.truth_ms - 1
        beyond = f" beyond the twin's {self.had_ns / 1e6:.3g} ms" if self.had_ns else ""
        unsure = self.error_ms is not None and self.error_ms > _CLOSE * self.truth_ms
        where = "" if place < 2 else f" as number {place + 1}, after the twin's own"
        return f"named{where}, {off:+.0%}{beyond}" + (
            "" if abs(off) <= _CLOSE else " (truth unsure)" if unsure else " (off)"
        )


def planted(row: dict[str, Any], tool: str, folder: Path) -> Answer:
    said = asked(unpacked(row["program"], row["fault"], tool, folder)).said
    if ranks := row.get("ranks"):  # on other ranks it does not name the fault
        said = tuple(s for s in said if s.id not in row["ids"] or s.ranks == ranks)
    if word := row.get("says"):  # of another kind it does not, either
        said = tuple(s for s in said if s.id not in row["ids"] or word in s.title)
    sides = timed(row, tool)
    with_ms, without_ms = map(statistics.fmean, sides)
    truth, ids = with_ms - without_ms, tuple(row["ids"])
    if "once_in" in row:  # per step of what was captured, not of what was timed
        truth *= len(row["host_ms"]) / row["once_in"]
    had = 0
    if row.get("beyond_twin"):  # the promise for the difference is the difference of promises
        had = sum(s.ns for s in healthy(row["program"], row["twin"], tool, folder).said if s.id in ids)
    answer = Answer(row["row"], row["program"], row["fault"], tool, with_ms, truth, ids, said, had, _error(*sides))
    if answer.named or not archive(row["program"], row["twin"], tool).exists():
        return answer
    # Only what is the largest or second largest loss must be among the first two.
    others = healthy(row["program"], row["twin"], tool, folder).faults
    larger = sum(s.id not in ids and s.ns >= 1e6 * truth for s in others)
    return replace(answer, reach=larger + 2) if larger >= 2 else answer


def timed(row: dict[str, Any], tool: str) -> tuple[list[float], list[float]]:
    """Steps with the fault and without, ms; of the tool's own run, where each was timed."""
    a, b = (side[tool] if isinstance(side, dict) else side for side in (row["with_ms"], row["without_ms"]))
    return a, b


def _error(*sides: list[float]) -> float | None:
    """The standard error of a difference of means; None where a side was timed once."""
    if min(map(len, sides)) < 2:
        return None
    return math.sqrt(sum(statistics.variance(side) / len(side) for side in sides))


def healthy(program: str, fault: str, tool: str, folder: Path) -> Answer:
    return _told(asked(unpacked(program, fault, tool, folder)), program, fault, tool)


def _told(told: Told, program: str, fault: str, tool: str) -> Answer:
    return Answer("", program, fault, tool, told.step_ns / 1e6, None, (), told.said)


def captured(row: dict[str, Any], tool: str, folder: Path) -> Answer:
    """Of a program that was not timed."""
    told = asked(unpacked(row["program"], row["fault"], tool, folder))
    note = row.get("note") if row.get("note") in told.notes else None
    answer = _told(told, row["program"], row["fault"], tool)
    return replace(answer, row=row["row"], ids=tuple(row["ids"]), note=note)


def _shown(said: Said) -> str:
    return f"{said.id} {said.ns / 1e6:.3g} ms ({said.cause})"


def text(answers: Iterable[Answer]) -> str:
    """A table: those with a fault, then those without."""
    lines = [
        "| row | program | fault | tool | step, ms | costs, ms | first | second | verdict |",
        "|---|---|---|---|---:|---:|---|---|---|",
    ]
    for a in answers:
        shown = [*([f"{a.note} (a note)"] if a.note else []), *map(_shown, a.faults), "–", "–"]
        first, second = shown[:2]
        costs = "–" if a.truth_ms is None else f"{a.truth_ms:.3g}"
        if a.error_ms is not None and a.truth_ms is not None and a.error_ms > _SMALL * a.truth_ms:
            costs += f" ± {a.error_ms:.2g}"
        cells = (a.row, a.program, a.fault, a.tool, f"{a.step_ms:.4g}", costs, first, second, a.verdict)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def section(answers: Iterable[Answer]) -> str:
    """The part of docs/promises.md: how many were named and kept, and every row."""
    every = list(answers)
    faults = [a for a in every if a.truth_ms is not None]
    named, kept = sum(a.named for a in faults), sum(a.kept for a in faults)
    return "\n".join(
        [
            BEGIN,
            "## Programs with a fault of the catalogue",
            "",
            "Plain loops and framework programs on one H200, captured unmodified (`capture run`), with the fault and",
            "without. `row` is the kind of fault: A, what the GPU computes; B, the GPU waits for the host; C, the run",
            "around the step; D, ranks (four on one GPU, over the loopback): named on the right ranks. Costs are",
            "unprofiled: steps timed by the program itself, ± their standard error where it is more than 5 %. Those",
            "without a row have no fault; of some, only what is said of them is known (not timed).",
            "",
            f"{named} of {len(faults)} are named in the first two findings (what costs less than two findings of the",
            f"twin: right behind these), {kept} of them with a promise within 25 %.",
            "That is how well detectors fit programs at hand, not how well they do on others. For that, captures were",
            "made of programs that no detector had been made for, and asked about before anything was mended:",
            "",
            *map(_blind(faults), _file()["blind"]),
            "",
            "Wrong notions that they showed are mended one by one, each on one program and checked on the others of",
            "its kind; they are no longer unseen.",
            'Where the twin has some of the fault, too, what it is promised is taken off ("beyond the twin\'s").',
            "",
            text(every),
            *_reasons(faults),
            END,
        ]
    )


def _blind(faults: list[Answer]) -> Callable[[dict[str, Any]], str]:
    """What was said of captures that were unseen, and what is said of them today."""

    def line(blind: dict[str, Any]) -> str:
        rows = {(row["program"], row["fault"]) for row in table() if row.get("blind") == blind["commit"]}
        seen = [a for a in faults if (a.program, a.fault) in rows]
        first = f"- rows {blind['rows']}, at commit {blind['commit']}: **{blind['named']} of {blind['captures']}"
        return (
            f"{first} were named in the first two findings, {blind['within']} with a promise within 25 %**; today "
            f"{sum(a.named for a in seen)} of {len(seen)}, {sum(a.kept for a in seen)} within 25 %"
        )

    return line


def _reasons(faults: list[Answer]) -> list[str]:
    """Why promises are off, as far as that is known."""
    why = {(row["program"], row["fault"]): row["off"] for row in table() if "off" in row}
    off = dict.fromkeys((a.program, a.fault) for a in faults if not a.kept)
    return ["", *(f"- **{' '.join(one)}**: {why.get(one, 'not known.')}" for one in off)] if off else []


def with_section(page: str, answers: Iterable[Answer]) -> str:
    """The page with the part replaced, or added at its end."""
    head, begun, rest = page.partition(BEGIN)
    tail = rest.partition(END)[2] if begun else "\n"
    return f"{head.rstrip()}\n\n{section(answers)}{tail}"
