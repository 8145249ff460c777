"""What a communication op is for: by the range that launched it, its group or library, its pattern (semantics §5)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from stepscope.derive.comm.axes import PURPOSE_OF, purpose_by_name
from stepscope.derive.comm.calls import all_groups, communication, linked
from stepscope.derive.comm.kinds import ALL_TO_ALL, SEND_RECV, of_experts
from stepscope.derive.comm.patterns import by_pattern, in_data_parallel
from stepscope.derive.rank.data import RankData
from stepscope.derive.rank.together import part, parts
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
    purposes = part(data, _purposes)
    return purposes["purpose"].gather(np.searchsorted(purposes["op"].to_numpy(), ops))


def _purposes(ranks: list[RankData]) -> pl.DataFrame:
    """All communication ops of ranks, and the purpose of each."""
    profile, ops = ranks[0].profile, parts(ranks, communication).select("rank", "op", "name")
    rows = [(data, part(data, communication)["op"].to_numpy()) for data in ranks]
    by_group, by_operation = _by_link(ranks, ops)
    by_range = pl.concat([_by_range(profile, data, mine) for data, mine in rows])
    by_use = pl.concat([by_pattern(data, mine) for data, mine in rows])
    by_evidence = [by_range, by_group, _by_library(profile, ops["name"].to_numpy()), by_use, by_operation]
    if (parallel := by_group == PURPOSE_OF["dp"]).any():
        # A group that is called data-parallel serves gradients or parameters: what is done in it says which.
        by_evidence.insert(1, pl.select(pl.when(parallel).then(in_data_parallel(ranks, ops))).to_series())
    return ops.select("rank", "op", pl.coalesce(*by_evidence, pl.lit(UNKNOWN)).alias("purpose"))


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


def _by_link(ranks: list[RankData], ops: pl.DataFrame) -> tuple[pl.Series, pl.Series]:
    """By what the trace links each op to: the name of its communicator, which may say its axis; and the operation.

    Transfers between pairs are a pipeline's, and an all-to-all among some of the ranks is that of experts.
    """
    links, groups = parts(ranks, linked), parts(ranks, all_groups)
    if links.height == 0 or ops.height == 0:
        unknown = pl.Series([None] * ops.height, dtype=pl.String)
        return unknown, unknown
    by_name = [None if name is None else purpose_by_name(name) for name in groups["name"].to_list()]
    stated = pl.when(pl.col("world_size") > 0).then("world_size")
    world = groups.select("rank").join(
        ranks[0].profile.ranks.select("rank", stated), on="rank", how="left", maintain_order="left"
    )
    of_group = groups.select(
        *("rank", "communicator"),
        (pl.col("comm_size") < pl.coalesce(world["world_size"], pl.col("comm_size").max().over("rank"))).alias("some"),
        by_name=pl.Series(by_name, dtype=pl.String),
    )
    by_operation = (
        pl.when(pl.col("kind") == SEND_RECV)
        .then(pl.lit("pp_p2p"))
        .when((pl.col("kind") == ALL_TO_ALL) & pl.col("some"))
        .then(pl.lit("ep_a2a"))
    )
    by_op = links.unique(["rank", "op"], keep="first").join(of_group, on=["rank", "communicator"])
    by_op = by_op.select("rank", "op", "by_name", by_operation.alias("by_operation"))
    joined = ops.join(by_op, on=["rank", "op"], how="left", maintain_order="left")
    return joined["by_name"], joined["by_operation"]


def _by_library(profile: Profile, ids: npt.NDArray[np.uint32]) -> pl.Series:
    """Kernels of DeepEP and its kin move tokens between experts, whatever range launched them."""
    names, of = numbered(ids)
    experts = of_experts(profile.names.gather(names)).gather(of)
    return pl.select(pl.when(experts).then(pl.lit("ep_a2a"))).to_series()
