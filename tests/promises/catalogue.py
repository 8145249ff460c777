"""Faults of the catalogue's rows B and D that one GPU cannot show, simulated: two programs of each, both tools.

catalogue.toml has them. `python tests/promises --catalogue` prints the table; with `--write` it goes into
docs/promises.md. The truth is the simulator's: the same job without the fault.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from jobs import written
from promises.new import Answer, text
from promises.pair import MATERIAL, asked
from stepscope.model.ranks import ranks_text
from stepscope.simulate.job.scenario import Scenario
from stepscope.simulate.programs import execute as engine
from stepscope.simulate.truth import step_times
from stepscope.simulate.truth.stragglers import hit

FILE = Path(__file__).with_suffix(".toml")
FORMATS = {"nsys": "nsys", "torch": "kineto"}
#: Where its part of docs/promises.md begins and ends.
BEGIN, END = "<!-- catalogue -->", "<!-- /catalogue -->"
#: Faults of single ranks: those must be named.
_OF_RANKS = ("D4", "D5", "D6", "D9", "D12")


class Planted(NamedTuple):
    row: str
    what: str
    ids: tuple[str, ...]
    faults: tuple[str, ...]
    job: dict[str, Any]
    tool: str


def table() -> Iterator[Planted]:
    for row in tomllib.loads(FILE.read_text("utf-8"))["fault"]:
        for one in row["jobs"]:
            for tool in FORMATS:
                yield Planted(row["row"], row["what"], tuple(row["ids"]), tuple(one["faults"]), one["job"], tool)


def answer(planted: Planted) -> Answer:
    """What `diagnose` says of the job, and what taking the first fault away gives."""
    given = Scenario(steps=4, seed=23, faults=planted.faults, **planted.job)
    with written(given, (FORMATS[planted.tool],)) as (job, folder):
        told, steps = asked(folder), step_times(job)
        ranks = ranks_text(hit(job, given.planted[0])) if planted.row in _OF_RANKS else None
    other = step_times(engine.run(engine.without(given, 0)))
    saved = sorted(a - b for a, b in zip(steps, other, strict=True))
    # DualPipeV's trainer marks no steps: what is promised is for the capture.
    truth = sum(saved) if told.of_capture else saved[len(saved) // 2]
    said = tuple(s for s in told.said if ranks is None or s.id not in planted.ids or s.ranks == ranks)
    step_ms = told.step_ns / 1e6
    return Answer(
        planted.row, _program(planted.job), planted.what, planted.tool, step_ms, truth / 1e6, planted.ids, said
    )


def _program(job: dict[str, Any]) -> str:
    axes = " ".join(f"{k}={job[k]}" for k in ("pp", "dp", "tp", "ep") if job.get(k, 1) > 1)
    return f"{job['schedule']} {axes}"


def section(answers: Iterable[Answer]) -> str:
    every = list(answers)
    worth = [a for a in every if (a.truth_ms or 0) >= MATERIAL * a.step_ms]
    named, kept = sum(a.named for a in worth), sum(a.kept for a in worth)
    rows = len({a.row for a in every})
    return "\n".join(
        [
            BEGIN,
            "## Rows B and D of the catalogue, simulated",
            "",
            f"One GPU cannot be several that wait for each other: {rows} rows of the catalogue are **simulated**, on a",
            "plain loop and on another program (a pipeline, experts, tensor parallelism), written as both tools write.",
            "The truth is the same job without the fault. A fault of some ranks counts as named on just those.",
            "Not simulated: copies from pageable memory (B3), threads over the cores (B8), objects and barriers (D7).",
            "",
            f"{len(worth)} of {len(every)} cost {100 * MATERIAL:.0f} % of the step or more. {named} of those are named",
            f"in the first two findings, {kept} with a promise within 25 %.",
            "",
            text(every),
            END,
        ]
    )


def part(page: str) -> str:
    """This part of a page; nothing where it has none."""
    _, begun, rest = page.partition(BEGIN)
    return f"{begun}{rest.partition(END)[0]}{END}" if begun else ""


def with_part(page: str, text: str) -> str:
    """The page with its part replaced, or added at its end."""
    if not text:
        return page
    old = part(page)
    return page.replace(old, text) if old else f"{page.rstrip()}\n\n{text}\n"
