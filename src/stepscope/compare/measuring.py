"""From profiles to two sides that were measured by the same rule, whatever each of them has."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from stepscope.capture import manifest
from stepscope.compare import facts as about
from stepscope.compare.run import Run, measure
from stepscope.compare.side import Side
from stepscope.compare.steps import StepSpec
from stepscope.errors import CannotAnswer
from stepscope.model.note import Note, folded, noted
from stepscope.model.profile import Profile
from stepscope.model.ranks import some_ranks

Sides = tuple[Side, Side]


@dataclass(frozen=True)
class Given:
    """A side before it is measured: its runs, where they were read from, and how the arguments were understood."""

    profiles: Sequence[Profile]
    paths: Sequence[Path] = field(default_factory=list)
    said: str = ""

    def side(self, spec: StepSpec, ranks: list[int] | None = None) -> Side:
        """Measure the runs; of some ranks only, where they are given."""
        recorded = max(p.ranks.height for p in self.profiles)  # of these ranks or not: it is a job of so many
        profiles = self.profiles if ranks is None else [p.view(ranks) for p in self.profiles]
        runs = [measure(p, spec) for p in profiles]
        facts = [about.facts_of(p, *_rule(r), r.graphs, recorded) for p, r in zip(profiles, runs, strict=True)]
        notes = _notes(profiles, runs)
        if other := about.within(facts):
            notes.append(noted("runs-differ", facts=", ".join(other)))
        sources = [s for p in profiles for s in p.sources]
        return Side(runs, facts[0], manifest.of(self.paths), sources, notes, self.said)


def _rule(run: Run) -> tuple[str, str]:
    """How steps were cut, and what they are."""
    if run.kind == "whole":
        return "the whole capture", "whole"
    return "from end to end" if run.kind == "step" else "own ops only", f"{run.kind}s"


def _notes(profiles: Sequence[Profile], runs: list[Run]) -> list[Note]:
    return folded(dict.fromkeys(n for p, r in zip(profiles, runs, strict=True) for n in (*p.notes, *r.notes)))


def both(base: Given, new: Given, spec: StepSpec, ranks: list[int] | None = None) -> Sides:
    """Both sides by one rule: where one lacks what the rule needs, by the nearest rule that both have."""
    sides = _sides(base, new, spec, ranks)
    if _kinds(sides) == {"step", "chunk"} and spec.anchor is None:
        # One side has several steps, the other only the chunks of one: what both mark is compared.
        units: tuple[Literal["step", "chunk"], ...] = ("step", "chunk")
        for unit in units:
            with suppress(CannotAnswer):
                alike = replace(spec, unit=unit)
                sides, spec = _sides(base, new, alike, ranks), alike
                break
    common = sorted(set.intersection(*(set(r.ranks) for side in sides for r in side.runs)))
    left_out = ranks is None and common and any(r.ranks != common for side in sides for r in side.runs)
    if left_out and sides[0].facts["world"] == sides[1].facts["world"]:
        ranks = common
        sides = _sides(base, new, spec, ranks)
        sides[1].notes.append(noted("ranks-left-out", some=some_ranks(common)))
    return sides


def _kinds(sides: Sides) -> set[str]:
    return {run.kind for side in sides for run in side.runs}


def _sides(base: Given, new: Given, spec: StepSpec, ranks: list[int] | None) -> Sides:
    sides = []
    for name, given in (("base", base), ("new", new)):
        try:
            sides.append(given.side(spec, ranks))
        except CannotAnswer as error:
            raise CannotAnswer(f"{name}: {error.message}", error.hint) from None
    return sides[0], sides[1]
