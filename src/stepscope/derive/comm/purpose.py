"""What a communication op is for: by the range that launched it, its group or library, its pattern (semantics §5)."""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from stepscope.derive.comm.axes import purpose_by_name
from stepscope.derive.comm.calls import groups_of, linked
from stepscope.derive.comm.kinds import ALL_TO_ALL, SEND_RECV, of_experts
from stepscope.derive.comm.patterns import by_pattern
from stepscope.derive.rank.data import COMM, RankData
from stepscope.intervals.arrays import I64, NONE, numbered
from stepscope.model.first_match import first_true
from stepscope.model.label_rules import Purpose
from stepscope.model.labels import parse_setup
from stepscope.model.profile import Profile

UNKNOWN, MIXED = "unknown", "mixed"
_NO_PURPOSE = ""
#: Columns of what is judged: the text of a range, and its stage by each pattern.
_RANGE, _STAGE = "range", "stage "


def purpose_of(profile: Profile, data: RankData, ops: I64) -> pl.Series:
    """Purpose of each communication op: `ep_a2a`, `cp_ring`, `ep_meta`, `pp_p2p`, a group's axis, or `unknown`."""
    communication, purposes = data.once(_purposes)
    return purposes.gather(np.searchsorted(communication, ops))


def _purposes(data: RankData) -> tuple[I64, pl.Series]:
    """All communication ops of the rank, and the purpose of each."""
    ops = np.flatnonzero(data.role == COMM).astype(np.int64)
    by_range = _by_range(data.profile, data, ops)
    by_group = _by_group(data.profile, data, ops)
    by_library = _by_library(data, ops)
    by_operation = _by_operation(data.profile, data, ops)
    purpose_of = pl.coalesce(by_range, by_group, by_library, by_pattern(data, ops), by_operation, pl.lit(UNKNOWN))
    return ops, pl.select(purpose_of.alias("purpose")).to_series()


def unanimous(purposes: pl.Series) -> str:
    """The one purpose that all ops share; `mixed` where they disagree, never a majority."""
    distinct = purposes.unique().to_list()
    return str(distinct[0]) if len(distinct) == 1 else MIXED if distinct else UNKNOWN


def _by_range(profile: Profile, data: RankData, ops: I64) -> pl.Series:
    if data.ranges.height == 0 or len(ops) == 0:
        return pl.Series([None] * len(ops), dtype=pl.String)
    of_range = data.ranges["name"].to_numpy()  # first: reading them adds their texts
    rules = tuple(rule for rule in profile.labels.purposes if _applies(rule, data))
    per_name = profile.per_name(_Purposes(rules, profile.labels.stage))
    # Stop at the first range that is a stage or has a purpose, even one whose stage has no communication of its own.
    at = data.ancestors_until(data.enclosing(ops), per_name.is_not_null().to_numpy()[of_range])
    purposes = per_name.gather(of_range[np.maximum(at, 0)])
    return pl.select(pl.when(pl.Series(at != NONE) & (purposes != _NO_PURPOSE)).then(purposes)).to_series()


class _Purposes(Struct, frozen=True):
    """What communication in a range of each name is for, by these rules; `_NO_PURPOSE` of a stage that has none."""

    rules: tuple[Purpose, ...]
    stage: str

    def __call__(self, names: pl.Series) -> pl.Series:
        called = sorted({rule.stages for rule in self.rules if rule.stage} | {self.stage})
        texts = pl.DataFrame({_RANGE: names}).with_columns(
            pl.col(_RANGE).str.extract_all(pattern).list.last().alias(f"{_STAGE}{pattern}") for pattern in called
        )
        staged = pl.any_horizontal(pl.col(f"{_STAGE}{pattern}").is_not_null() for pattern in called)
        purpose = first_true([(_of_rule(rule), rule.purpose) for rule in self.rules] + [(staged, _NO_PURPOSE)])
        return texts.select(purpose.alias("purpose")).to_series()  # all rules at once: most files add a name or two


def _of_rule(rule: Purpose) -> pl.Expr:
    """Whether a rule's pattern is in the text of a range, or in the stage that the text names."""
    where, pattern = (_RANGE, rule.range) if rule.range else (f"{_STAGE}{rule.stages}", rule.stage or "")
    return pl.col(where).str.contains(pattern)


def _applies(rule: Purpose, data: RankData) -> bool:
    """Whether the rank's mesh is one that the rule is about."""
    setup = parse_setup(data.setup) if data.setup else None
    return rule.axis is None or (setup is not None and setup.size(rule.axis) > 1)


def _by_group(profile: Profile, data: RankData, ops: I64) -> pl.Series:
    """From the name of each op's communicator, which may say its axis, as far as the trace links them."""
    groups = groups_of(profile, data)
    purposes = {name: purpose_by_name(name) for name in groups["name"].drop_nulls().unique().to_list()}
    by_name = pl.col("name").replace_strict(purposes, default=None, return_dtype=pl.String)
    return _of_links(profile, data, ops, by_name)


def _by_operation(profile: Profile, data: RankData, ops: I64) -> pl.Series:
    """Transfers between pairs are a pipeline's, and an all-to-all among some of the ranks is that of experts."""
    world = data.world_size or groups_of(profile, data)["comm_size"].max()
    some = pl.col("comm_size") < pl.lit(world)
    by_operation = (
        pl.when(pl.col("kind") == SEND_RECV)
        .then(pl.lit("pp_p2p"))
        .when((pl.col("kind") == ALL_TO_ALL) & some)
        .then(pl.lit("ep_a2a"))
    )
    return _of_links(profile, data, ops, by_operation)


def _of_links(profile: Profile, data: RankData, ops: I64, purpose: pl.Expr) -> pl.Series:
    """`purpose` of each op's link to a communicator; null where there is none."""
    links = linked(profile, data)
    if links.height == 0 or len(ops) == 0:
        return pl.Series([None] * len(ops), dtype=pl.String)
    groups = groups_of(profile, data).select("communicator", "name", "comm_size")
    by_op = links.unique("op", keep="first").join(groups, on="communicator").select("op", purpose.alias("purpose"))
    wanted = pl.DataFrame({"op": ops}, schema={"op": pl.Int64})
    return wanted.join(by_op, on="op", how="left", maintain_order="left")["purpose"]


def _by_library(data: RankData, ops: I64) -> pl.Series:
    """Kernels of DeepEP and its kin move tokens between experts, whatever range launched them."""
    names, of = numbered(data.name[ops])
    experts = of_experts(data.profile.names.gather(names)).gather(of)
    return pl.select(pl.when(experts).then(pl.lit("ep_a2a"))).to_series()
