"""Communication of every rank, reduced to small tables where the rank is read: once per profile, for all questions."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl
from msgspec import Struct

from stepscope.derive.comm.calls import groups_of, sides_of
from stepscope.derive.comm.purpose import UNKNOWN, purpose_of
from stepscope.derive.rank.at_once import of_each
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


def collected(profile: Profile) -> Collected:
    """The communication of every rank."""
    return profile.once(_collection).ranks(profile)


class Collected(Struct, frozen=True):
    """Communication of ranks, as small tables; and what there is to say of ranks whose capture ended early."""

    sides: pl.DataFrame
    groups: pl.DataFrame
    facts: dict[str, pl.DataFrame]
    notes: list[Note]


class _Collection:
    """The communication of every rank, read once; and facts about it, read along where they are asked for in time."""

    def __init__(self) -> None:
        self._ranks: Collected | None = None
        self._facts: dict[Facts, dict[str, pl.DataFrame]] = {}

    def ranks(self, profile: Profile, facts: Facts | None = None) -> Collected:
        if self._ranks is None:
            self._ranks = profile.gather(_joined, collect, facts)
            if facts is not None:
                self._facts[facts] = self._ranks.facts
        return self._ranks

    def facts(self, profile: Profile, facts: Facts) -> dict[str, pl.DataFrame]:
        self.ranks(profile, facts)
        if facts not in self._facts:
            self._facts[facts] = profile.gather(_joined_tables, _facts_alone, facts)
        return self._facts[facts]


def _collection(profile: Profile) -> _Collection:
    return _Collection()


def collect(part: Profile, facts: Facts | None = None) -> Collected:
    """Communication of every rank of one part of a profile."""

    def of_rank(data: RankData) -> Collected:
        sides = _sides(part, data)
        more = facts(part, data, sides) if facts is not None else {}
        notes = [*contradictions(data), *notes_on_cut(data)]
        return Collected(sides, groups_of(part, data), more, notes)

    return _joined(of_each(part, ranks_of(part), of_rank))


def _facts_alone(part: Profile, facts: Facts) -> dict[str, pl.DataFrame]:
    return _joined_tables(of_each(part, ranks_of(part), lambda data: facts(part, data, _sides(part, data))))


def _joined(several: list[Collected]) -> Collected:
    """As one, in their order."""
    if len(several) == 1:
        return several[0]
    return Collected(
        pl.concat([one.sides for one in several]),
        pl.concat([one.groups for one in several]),
        _joined_tables([one.facts for one in several]),
        [note for one in several for note in one.notes],
    )


def _joined_tables(several: list[dict[str, pl.DataFrame]]) -> dict[str, pl.DataFrame]:
    if len(several) == 1:
        return several[0]
    return {name: pl.concat([tables[name] for tables in several]) for name in (several[0] if several else ())}


def _sides(part: Profile, data: RankData) -> pl.DataFrame:
    sides = sides_of(part, data)
    purpose = purpose_of(part, data, sides["op"].to_numpy())
    return sides.with_columns(purpose.replace(UNKNOWN, None).alias("purpose"))
