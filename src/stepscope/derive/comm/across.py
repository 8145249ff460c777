"""What every question across ranks begins with: communication collected rank by rank, matched, and on one clock.

Ranks are reduced to small tables where they are read, one source at a time (`Profile.map`); everything else works on
those tables alone. A profile keeps them, so that all questions of one process share one matching.
"""

from __future__ import annotations

from copy import copy
from functools import cached_property
from typing import Annotated, Literal

import numpy as np
import polars as pl
from msgspec import Struct, field

from stepscope import progress
from stepscope.derive.comm.clock_fit import Clocks, align
from stepscope.derive.comm.collecting import Facts, collected, facts_of
from stepscope.derive.comm.communicators import missing_ranks
from stepscope.derive.comm.matching import Matched, match
from stepscope.derive.rank.needs import no_communication
from stepscope.errors import CannotAnswer
from stepscope.intervals.arrays import I64
from stepscope.model.note import Note, noted
from stepscope.model.profile import Profile
from stepscope.model.ranks import ranks_text
from stepscope.model.units import about

#: Sets of ranks that a note spells out.
_MOST_SETS = 8

Align = Annotated[
    Literal["auto", "none"], "clocks of several hosts: auto aligns them by the ends of collectives, none does not"
]


class Across(Struct, dict=True):
    """Matched communication of all ranks. Arrays are per side; sides are sorted by (meeting, rank)."""

    matched: Matched
    clocks: Clocks
    ranks: pl.DataFrame
    start: I64  # on the common clock
    end: I64
    facts: dict[str, pl.DataFrame] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)

    @property
    def meetings(self) -> pl.DataFrame:
        return self.matched.meetings

    @cached_property
    def rank(self) -> I64:
        return self.matched.sides["rank"].cast(pl.Int64).to_numpy()

    @cached_property
    def meeting(self) -> I64:
        return self.matched.sides["meeting"].to_numpy()

    @cached_property
    def first(self) -> I64:
        """First side of each meeting."""
        return self.matched.first

    @cached_property
    def count(self) -> I64:
        """Sides of each meeting."""
        return np.diff(np.append(self.first, len(self.meeting)))

    @cached_property
    def by_arrival(self) -> I64:
        """Sides by (meeting, arrival); of those that arrived together, the lowest rank counts as last."""
        return np.lexsort((-self.rank, self.start, self.meeting)).astype(np.int64)

    @cached_property
    def last_side(self) -> I64:
        """Side of the last to arrive at each meeting."""
        last_side: I64 = self.by_arrival[self.first + self.count - 1]
        return last_side

    @cached_property
    def second_side(self) -> I64:
        """Side of the last but one; the last itself where there is no other."""
        second_side: I64 = self.by_arrival[self.first + np.maximum(self.count - 2, 0)]
        return second_side

    @cached_property
    def first_side(self) -> I64:
        """Side of the first to arrive."""
        first_side: I64 = self.by_arrival[self.first]
        return first_side

    @cached_property
    def last(self) -> I64:
        """When the last rank arrived at each meeting."""
        return self.start[self.last_side]

    @cached_property
    def transfer(self) -> I64:
        """min over ranks of (end − last), floored at 0."""
        if len(self.first) == 0:
            return np.empty(0, np.int64)
        return np.maximum(np.minimum.reduceat(self.end, self.first) - self.last, 0)


def across(profile: Profile, how: str = "auto", facts: Facts | None = None) -> Across:
    """Communication collected, matched and aligned: once per profile, however many questions ask.

    With `facts`, what they say of all ranks (`facts_of`) comes along.
    """
    if facts is None:
        return profile.once(_aligned, how)
    tables = facts_of(profile, facts)  # first: so each rank is read once for both
    met = copy(profile.once(_aligned, how))
    met.facts = tables
    return met


class _Met(Struct, frozen=True):
    """What was matched, on the clocks of the files."""

    matched: Matched
    ranks: pl.DataFrame
    origin: int
    notes: list[Note]


def _met(profile: Profile) -> _Met:
    communication = collected(profile)
    sides, notes = communication.sides, list(communication.notes)
    if sides.height == 0:
        raise no_communication()
    shift = _rebase(profile, notes)
    place = {old: new for new, old in enumerate(sorted(set(profile.ranks["source"].to_list())))}
    ranks = profile.ranks.with_columns(
        pl.col("source").replace_strict(place, return_dtype=pl.Int32),
        pl.col("source").replace_strict(shift, return_dtype=pl.Int64).alias("shift"),
    )
    sides = sides.join(ranks.select("rank", "source", "shift"), on="rank", how="left", maintain_order="left")
    sides = sides.with_columns(pl.col("start_ns", "end_ns", "launched_ns") + pl.col("shift"))
    progress.report("matching communication across ranks")
    matched = match(sides, communication.groups, ranks)
    if matched.meetings.height == 0:
        raise CannotAnswer("no communication could be matched: " + "; ".join(matched.notes or ["no metadata"]), _HINT)
    return _Met(matched, ranks, _origin(profile, sides), notes)


def _aligned(profile: Profile, how: str) -> Across:
    met = profile.once(_met)
    sides, sources = met.matched.sides, met.ranks["source"].n_unique()
    start, end = (sides[c].to_numpy() for c in ("start_ns", "end_ns"))
    clocks = Clocks.unaligned(sources)
    if how == "auto":
        progress.report("aligning clocks")
        clocks = align(met.matched.meetings, sides, sources, met.origin)
        source = sides["source"].cast(pl.Int64).to_numpy()
        start, end = clocks.correct(source, start), clocks.correct(source, end)
    done = Across(met.matched, clocks, met.ranks, start, end)
    notes = [*met.notes, *missing_ranks(met.ranks), *met.matched.notes]
    done.notes = [*notes, *_presence(done), *clock_notes(profile, done, how)]
    return done


_HINT = (
    "export nsys with --include-blobs=true (NCCL's payloads), as `stepscope capture run` does, "
    "and give the traces of all ranks"
)


def _rebase(profile: Profile, notes: list[Note]) -> dict[int, int]:
    """What brings each source's times to those of the first: the difference of the sessions' UTC."""
    used = sorted(set(profile.ranks["source"].to_list()))
    epochs = {s: profile.source_info(s).epoch_ns for s in used}
    unknown = [s for s in used if epochs[s] is None]
    if unknown and len(used) > 1:
        notes.append(noted("no-session-time", without=len(unknown), all=len(used)))
        return dict.fromkeys(used, 0)
    first = epochs[used[0]] or 0
    return {s: (e or 0) - first for s, e in epochs.items()}


def _origin(profile: Profile, sides: pl.DataFrame) -> int:
    """Where offsets are stated: at t=0 of the first source's capture, or its first communication."""
    if profile.source_info(int(profile.ranks["source"].min())).capture_ns is not None:  # type: ignore[arg-type]
        return 0
    return int(sides["start_ns"].min())  # type: ignore[arg-type]


def _presence(a: Across) -> list[Note]:
    """Notes on communication that not all its ranks recorded."""
    part = a.meetings.filter((pl.col("present") < pl.col("size")) | pl.col("size").is_null())
    notes = []
    if part.height:
        unsure = " (or may: nothing tells the size of their groups)" if part["size"].null_count() else ""
        notes.append(noted("communication-incomplete", incomplete=part.height, all=a.meetings.height, unsure=unsure))
    apart = a.last > np.minimum.reduceat(a.end, a.first)
    # A broadcast's root, and a send, need not wait for the others.
    kinds = a.meetings["kind"].is_in(["all_reduce", "all_gather", "reduce_scatter", "barrier"]).to_numpy()
    odd = int((apart & kinds & (a.count > 1)).sum())
    if odd:
        notes.append(noted("collectives-apart", number=odd))
    return notes


def clock_notes(profile: Profile, a: Across, how: str) -> list[Note]:
    """How well the clocks are known."""
    c = a.clocks
    sources = len(c.offset)
    if sources < 2:
        return []
    if how == "none":
        return [noted("clocks-as-recorded", files=sources)]
    notes = []
    groups = np.unique(c.component)
    if len(groups) > 1:
        of_rank = c.component[a.ranks["source"].to_numpy()]
        shown = [a.ranks.filter(pl.Series(of_rank == g))["rank"].to_list() for g in groups[:_MOST_SETS]]
        more = f" | and {len(groups) - len(shown)} more" if len(shown) < len(groups) else ""
        texts = " | ".join(map(ranks_text, shown)) + more
        notes.append(noted("clocks-unconnected", some=texts))
    if c.n.any():
        clocks = len(np.unique(c.same))
        shared = (
            "" if clocks == sources else " (they share one clock)" if clocks == 1 else f" ({clocks} different ones)"
        )
        worst = float(np.nanmax(c.residual_p50))
        notes.append(noted("clocks-aligned", files=sources, shared=shared, p50=about(worst), p95=about(c.residual)))
    return notes
