"""Communication of every rank, reduced to small tables where the rank is read: once per profile, for all questions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import polars as pl

from stepscope.derive.comm.calls import groups_of, sides_of
from stepscope.derive.comm.purpose import UNKNOWN, purpose_of
from stepscope.derive.rank.data import RankData, ranks_of
from stepscope.derive.rank.recorded import contradictions
from stepscope.derive.windows.cut_off import notes_on_cut
from stepscope.model.note import Note
from stepscope.model.profile import Profile

#: Further tables of one rank, by name, computed from its sides where the rank is read.
Facts = Callable[[Profile, RankData, pl.DataFrame], dict[str, pl.DataFrame]]


def facts_of(profile: Profile, facts: Facts) -> dict[str, pl.DataFrame]:
    """Tables that `facts` derives from each rank and its communication, those of all ranks as one each; kept."""
    return profile.once(_collection).facts(profile, facts)


def collected(profile: Profile) -> list[Collected]:
    """The communication of every rank."""
    return profile.once(_collection).ranks(profile)


def cut_off_notes(profile: Profile) -> list[Note]:
    """What there is to say of ranks whose capture ended early."""
    return [note for rank in collected(profile) for note in rank.notes]


@dataclass(frozen=True)
class Collected:
    """One rank's communication, as small tables; and what there is to say of the rank."""

    rank: int
    sides: pl.DataFrame
    groups: pl.DataFrame
    facts: dict[str, pl.DataFrame]
    notes: list[Note]


class _Collection:
    """The communication of every rank, read once; and facts about it, read along where they are asked for in time."""

    def __init__(self) -> None:
        self._ranks: list[Collected] | None = None
        self._facts: dict[Facts, dict[str, pl.DataFrame]] = {}

    def ranks(self, profile: Profile, facts: Facts | None = None) -> list[Collected]:
        if self._ranks is None:
            self._ranks = [rank for part in profile.map(collect, facts) for rank in part]
            if facts is not None:
                self._facts[facts] = _joined([rank.facts for rank in self._ranks])
        return self._ranks

    def facts(self, profile: Profile, facts: Facts) -> dict[str, pl.DataFrame]:
        ranks = self.ranks(profile, facts)
        if facts not in self._facts:
            sides = {rank.rank: rank.sides for rank in ranks}
            self._facts[facts] = _joined([rank for part in profile.map(_facts_alone, facts, sides) for rank in part])
        return self._facts[facts]


def _collection(profile: Profile) -> _Collection:
    return _Collection()


def collect(part: Profile, facts: Facts | None = None) -> list[Collected]:
    """Communication of every rank of one part of a profile."""
    ranks = []
    for data in ranks_of(part):
        sides = _with_purpose(part, data, sides_of(part, data))
        more = facts(part, data, sides) if facts is not None else {}
        notes = [*contradictions(data), *notes_on_cut(data)]
        ranks.append(Collected(data.rank, sides, groups_of(part, data), more, notes))
    return ranks


def _facts_alone(part: Profile, facts: Facts, sides: dict[int, pl.DataFrame]) -> list[dict[str, pl.DataFrame]]:
    return [facts(part, data, sides[data.rank]) for data in ranks_of(part)]


def _joined(tables: list[dict[str, pl.DataFrame]]) -> dict[str, pl.DataFrame]:
    return {name: pl.concat([rank[name] for rank in tables]) for name in (tables[0] if tables else ())}


def _with_purpose(part: Profile, data: RankData, sides: pl.DataFrame) -> pl.DataFrame:
    purpose = purpose_of(part, data, sides["op"].to_numpy())
    return sides.with_columns(purpose.replace(UNKNOWN, None).alias("purpose"))
