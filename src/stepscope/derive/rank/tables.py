"""One rank's tables, and what is derived from them once: the ground that `RankRanges` and `RankData` build on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

import polars as pl

from stepscope.intervals.arrays import I8, I64
from stepscope.model.memo import Memo, cached_property, is_large
from stepscope.model.profile import Profile

P = ParamSpec("P")
T = TypeVar("T")
A = TypeVar("A", I8, I64)
Self = TypeVar("Self", bound="RankTables")


class RankTables:
    """Tables of one rank: rows index the rank's own ops, calls and ranges."""

    def __init__(self, profile: Profile, row: dict[str, Any]) -> None:
        self.profile, self._memo = profile, Memo()
        self.rank: int = row["rank"]
        self.pid: int | None = row["pid"]  # null where the trace does not say
        self.device: int | None = row["device"]
        self.setup: str | None = row["setup"]
        self.world_size: int | None = row["world_size"]

    def let_go(self) -> None:
        """Forget arrays: they are derived again when they are asked for."""
        stays, ranks = ("profile", "_memo"), self.profile.ranks.height
        for name, value in list(self.__dict__.items()):  # another thread may add to it
            if name not in stays and is_large(value, ranks):
                self.__dict__.pop(name, None)
        self._memo.let_go(ranks)

    def forget(self, *functions: Callable[..., Any]) -> None:
        """Forget what these functions derived of the rank; it is derived again where somebody asks."""
        self._memo.forget(*functions)

    def once(self: Self, function: Callable[Concatenate[Self, P], T], *args: P.args, **options: P.kwargs) -> T:
        """`function(data, …)`, computed when first asked for and kept with the rank."""
        self.profile.at_work(self)
        return self._memo.once(function, self, *args, **options)

    def keep(self, answer: Any, function: Callable[..., Any], *args: Any) -> None:
        """What `once` would compute, where it came out beside another answer."""
        self._memo.keep(answer, function, *args)

    def per_name(self, function: Callable[[pl.Series], A]) -> A:
        """`function` of the string table: judged once per name, not once per row."""
        return self.profile.per_name(function)

    def _mine(self, table: str) -> pl.DataFrame:
        self.profile.at_work(self)
        return self.profile.once(_by_rank, table)[self.rank]

    @cached_property
    def ops(self) -> pl.DataFrame:
        return self._mine("ops")

    @cached_property
    def calls(self) -> pl.DataFrame:
        return self._mine("calls")

    @cached_property
    def ranges(self) -> pl.DataFrame:
        return self._mine("ranges")

    @cached_property
    def host(self) -> pl.DataFrame:
        return self._mine("host")

    @cached_property
    def syncs(self) -> pl.DataFrame:
        return self._mine("syncs")

    @cached_property
    def dependencies(self) -> pl.DataFrame:
        return self._mine("dependencies")

    @cached_property
    def comms(self) -> pl.DataFrame:
        return self._mine("comms")

    @cached_property
    def samples(self) -> pl.DataFrame:
        return self._mine("samples")

    @cached_property
    def off_cpu(self) -> pl.DataFrame:
        return self._mine("off_cpu")


def _by_rank(profile: Profile, table: str) -> dict[int, pl.DataFrame]:
    return dict(profile.by_rank(table))
