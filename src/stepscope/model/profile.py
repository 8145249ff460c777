"""A profile: the ranks of one job, read from any number of sources, as tables that load when first used."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from threading import RLock
from time import monotonic
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar
from weakref import WeakSet

import polars as pl

from stepscope import progress
from stepscope.errors import BadInput
from stepscope.files import budget
from stepscope.intervals.arrays import Mask
from stepscope.model import door, label_rules, ranks, taxonomy
from stepscope.model.assembled import Assembled
from stepscope.model.beginning import Extent
from stepscope.model.columns import Part
from stepscope.model.devices import DevicesApart
from stepscope.model.label_rules import LabelRules
from stepscope.model.memo import Memo
from stepscope.model.names import Names
from stepscope.model.note import Note
from stepscope.model.program import ProgramSteps
from stepscope.model.source import Source, SourceInfo

P = ParamSpec("P")
T = TypeVar("T")

#: Between two looks at the memory, for ranks by the thousand.
_LOOK_S = 0.02

#: What is said of so many parts is joined before the next are read: thousands of small tables take more than a large
#: one.
_AT_ONCE = 256


@dataclass(frozen=True)
class Known:
    """What all sources of a job say together: of some of them, another process is told."""

    ranks: pl.DataFrame
    recorded: frozenset[str]  # tables that any source has


class Renewable(Protocol):
    """A rank whose arrays can be derived again."""

    def let_go(self) -> None:
        """Forget arrays."""


class Profile(Assembled):
    """All ranks of a job on one model. Tables are Polars frames, sorted by rank, then time (see docs/model.md)."""

    def __init__(
        self,
        sources: Sequence[Source],
        rules: taxonomy.Taxonomy | None = None,
        labels: LabelRules | None = None,
        known: Known | None = None,
    ) -> None:
        self._sources: list[Source] = [DevicesApart(door.admitted(s)) for s in sources]
        self._rules = rules or taxonomy.default()
        #: What the trainer calls its ranges.
        self.labels = labels or label_rules.default()
        self._names = Names()
        self._tables: dict[tuple[str, Part], pl.DataFrame] = {}
        self._memo = Memo()
        self._reading = RLock()
        #: Questions share what they derive: one at a time, whichever thread asks.
        self.asking = RLock()
        #: By source: from its first to its last GPU op; None without any. Shared by all views and parts.
        self._extents: dict[int, Extent | None] = {}
        #: Whether `map` is to take it as one part; and the profile that it is some ranks of, if that is in one part.
        self._in_one_part, self._of = False, None
        #: Ranks that hold arrays, the one that derived some last, and when it was last seen whether they fit.
        self._ranks_at_work: WeakSet[Renewable] = WeakSet()
        self._latest: Renewable | None = None
        self._looked_at = 0.0
        notes: list[Note] = []
        if known is None:
            table, notes = ranks.assign(self._sources)
            # Asked once: of ten thousand sources, a question per rank would ask each of them.
            known = Known(table, frozenset(table for s in self._sources for table in s.tables()))
        self._known, self.ranks, self._notes = known, known.ranks, notes
        self.check()
        #: Ranks that a view was limited to.
        self.limited_to: list[int] | None = None

    _of: Profile | None

    # -- what was opened -----------------------------------------------------------------------------------------

    @property
    def sources(self) -> list[SourceInfo]:
        return [s.info for s in self._sources]

    def source_info(self, source: int) -> SourceInfo:
        """What one of the sources is."""
        return self._sources[source].info

    def source_path(self, source: int) -> Path:
        """Where one of the sources lies."""
        return self._sources[source].path

    def reads(self, file: Path) -> bool:
        """Whether the profile was read from this file: nothing may be written over it."""
        return file.exists() and any(s.path.exists() and s.path.samefile(file) for s in self._sources)

    @property
    def folders(self) -> list[Path]:
        """Where the sources lie: a capture has more beside its profiles."""
        return list(dict.fromkeys(s.path.parent for s in self._sources))

    @property
    def notes(self) -> list[Note]:
        """What was inferred, dropped or lost while reading; grows as tables are read."""
        several = len(self._sources) > 1
        own = [n.of(s.path.name) if several else n for s in self._sources for n in s.quality.notes]
        return [*self._notes, *dict.fromkeys(own)]

    def add_notes(self, notes: Iterable[Note]) -> None:
        """What whoever opened it has to say of it."""
        self._notes = [*self._notes, *notes]

    @property
    def unprofiled_step_ns(self) -> float | None:
        """Length of a step without the profiler, where whoever captured timed some."""
        return None

    @property
    def unprofiled_host_ns(self) -> float | None:
        """What the host took for such a step, without waiting for the GPU at its end."""
        return None

    @property
    def program_steps(self) -> ProgramSteps | None:
        """Every step of the program, recorded or not, where whoever captured timed them."""
        return None

    @property
    def compile_settings(self) -> list[dict[str, Any]]:
        """What the program asked of torch.compile, where whoever captured heard it."""
        return []

    def program_facts(self, rank: int) -> dict[str, Any]:
        """What the program of a rank had set in torch (`settings`) and the most memory that it took (`memory`), where
        whoever captured asked."""
        return {}

    @property
    def taxonomy(self) -> taxonomy.Taxonomy:
        """The rules that say what a kernel is."""
        return self._rules

    def has(self, table: str) -> bool:
        """Whether any source recorded this table at all: if not, a question about it has no answer."""
        return table in self._known.recorded

    @property
    def has_timeline(self) -> bool:
        """Whether any source recorded what ranks did; else all there is was measured apart, as by Nsight Compute."""
        return len(self.timeless_sources) < len(self._sources)

    def names_with(self, pattern: str) -> Mask:
        """Which names match a regular expression."""
        return self._names.judged(("contains", pattern), lambda texts: texts.str.contains(pattern).to_numpy())

    def names_last(self, pattern: str) -> pl.Series:
        """The last match of a regular expression in each name; null where there is none."""
        return self._names.judged(("last", pattern), lambda texts: texts.str.extract_all(pattern).list.last())

    # -- derived, and kept -----------------------------------------------------------------------------------------

    def once(self, function: Callable[Concatenate[Any, P], T], *args: P.args, **options: P.kwargs) -> T:
        """`function(profile, …)`, computed when first asked for and shared by every question of this profile."""
        return self._memo.once(function, self, *args, **options)

    def once_per_rank(self, function: Callable[[Profile, int], T], rank: int) -> T:
        """The same for one rank. Views of a profile in one part share what is known of a rank."""
        return self._of.once_per_rank(function, rank) if self._of is not None else self.once(function, rank)

    def at_work(self, rank: Renewable) -> None:
        """A rank is about to derive arrays. Where memory is tight, the others let go of theirs."""
        self._ranks_at_work.add(rank)
        if rank is self._latest or (now := monotonic()) - self._looked_at < _LOOK_S:
            return
        self._latest, self._looked_at = rank, now
        if budget.tight():
            # Those that let go are not looked through again until they have work: ranks by the thousand take turns.
            others = [other for other in list(self._ranks_at_work) if other is not rank]
            self._ranks_at_work.difference_update(others)
            for other in others:
                other.let_go()
            budget.give_back()

    def view(self, wanted: Iterable[int] | None = None, *, in_one_part: bool = False) -> Profile:
        """The same profile, with some of its ranks, or in one part.

        In one part, tables stay once they are read, and what is derived from a rank is shared with its views: for
        those who come back to a rank again and again. Otherwise a view is as good as new.
        """
        view = copy(self)
        view._in_one_part = self._in_one_part or in_one_part
        if wanted is None or (chosen := sorted(set(wanted))) == self.rank_ids():
            return view
        if missing := sorted(set(chosen) - set(self.rank_ids())):
            have = ", ".join(map(str, self.rank_ids()[:16]))
            raise BadInput(f"--rank: no rank {missing[0]} in this profile", f"it has {have}")
        view._limit(self, self.ranks.filter(pl.col("rank").is_in(chosen)))
        return view

    def _limit(self, whole: Profile, some: pl.DataFrame) -> None:
        """Make a copy of `whole` a view of some of its ranks."""
        self._memo = Memo()
        self.ranks, self.limited_to = some, some["rank"].to_list()
        self._of = whole if whole._in_one_part else None
        self._tables = {} if whole._in_one_part else {k: self._cut(f) for k, f in whole._tables.items()}

    def map(self, function: Callable[Concatenate[Any, P], T], *args: P.args, **options: P.kwargs) -> list[T]:
        """`function(part, …)` for each source's own part of the profile, in the order of the sources.

        Tables that a part reads are gone with it: a question over many ranks holds those of one source at a time. Where
        the profile was opened with workers, parts are read there; function and arguments must then be picklable.
        """
        by_source = self.by_source()
        if self._in_one_part or len(by_source) == 1:
            return [function(self, *args, **options)]
        parts = list(self.of_parts(by_source, function, *args, **options))
        self.check()
        return parts

    def gather(
        self,
        joined: Callable[[list[T]], T],
        function: Callable[Concatenate[Any, P], T],
        *args: P.args,
        **more: P.kwargs,
    ) -> T:
        """`joined` of what `function` says of each part. Workers join theirs first: few and large things travel.

        Joining must be associative, and keep the order.
        """
        by_source = self.by_source()
        if self._in_one_part or len(by_source) == 1:
            return joined([function(self, *args, **more)])
        answers = self.of_parts(by_source, function, *args, **more)
        several = []
        while batch := list(islice(answers, _AT_ONCE)):
            several.append(joined(batch))
        self.check()
        return joined(several)

    def of_parts(
        self,
        by_source: dict[int, pl.DataFrame],
        function: Callable[Concatenate[Any, P], T],
        *args: P.args,
        **options: P.kwargs,
    ) -> Iterator[T]:
        """What `function` says of each source's own part of the profile, one after the other."""
        for done, some in enumerate(by_source.values(), 1):
            # No phase lasts while this generator waits: where its caller fails, it ends at any time and in any thread.
            with progress.phase(f"file {done} of {len(by_source)}"):
                part = copy(self)
                part._limit(self, some)
                answer = function(part, *args, **options)
                for source in some["source"].unique().to_list():
                    door.forget(self._sources[source])
            yield answer
