"""Which ops of a timeline are the kernels that were measured, of another run of the same program.

A *kind* is a short name with a grid and a block. Measured launches of a kind that do the same work are one *variant*;
a product of matrices may have several, since its inner size shows in neither. Whether the ops of a kind are of several
works shows in their lengths: those of one work have no gap between them. An op is

- `kind`: of a kind with one variant and of one work, and not of quite another length than was measured,
- `order`: the launches before and after it are those around one variant,
- `range`: launched in a range in which only one variant of its kind was,
- `length`: as long as one variant of its kind, and as no other,
- `ambiguous`: of a measured kind, but nothing of that tells which variant it is,
- none of these: of a kind that was not measured.

The first that holds counts. Nothing is guessed: an ambiguous op has no roof.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from stepscope.derive.kernel.roofline import Roofline, roofline_of
from stepscope.derive.rank.data import RankData, ranks_of
from stepscope.intervals.arrays import I64, NONE
from stepscope.model.gpus import gpu_of
from stepscope.model.kernel_names import short_names
from stepscope.model.profile import Profile
from stepscope.model.threshold import Threshold

SAME_FLOPS = Threshold(
    2.0,
    "% of the operations",
    "launches of one kernel and shape that differ by more do other work: inner sizes of products come in steps",
    ("tests/derive/kernel/test_kernel_matching.py", "h200/ncu/ncu_full_details.csv"),
)
SAME_TIME = Threshold(
    1.5,
    "times the duration",
    "the same work measured twice on an H200 differs by 3 %; other data (an index, a mask) by more than half",
    ("tests/derive/kernel/test_kernel_matching.py", "h200/ncu/ncu_full_details.csv"),
)
OTHER_WORK = Threshold(
    2.0,
    "times the measured duration",
    "clocks and neighbours make an op of a step up to 1.5 times as long as its kernel alone; products of another inner "
    "size take 2.9 times as long",
    ("tests/derive/kernel/test_kernel_matching.py", "h200/train/eager.sqlite"),
)
GAP = Threshold(
    1.15,
    "times the next shorter op",
    "lengths of the same work lie close to each other: on an H200 neighbours are up to 8 % apart, products of other "
    "sizes 28 % and more",
    ("tests/derive/kernel/test_kernel_matching.py", "h200/train/eager.sqlite"),
)
SAME_LENGTH = Threshold(
    1.12,
    "times the measured duration",
    "a kernel alone and the same in the step differ by less, but for the smallest, which caches help",
    ("tests/derive/kernel/test_kernel_matching.py", "h200/train/eager.sqlite"),
)


HOW = pl.Enum(["kind", "order", "range", "length", "ambiguous"])
_SHAPE = [f"{what}_{axis}" for what in ("grid", "block") for axis in "xyz"]
_KIND = ["short", *_SHAPE]
#: Launches before and after an op that tell what it is; fewer where more tell nothing.
_CONTEXTS = (3, 2, 1)
_FEW = Threshold(
    5.0,
    "% of the ops of a kind",
    "too few to be a group of their own: outliers of the others",
    ("tests/derive/kernel/test_kernel_matching.py",),
)


class Matches(Struct, frozen=True):
    """By op of one rank: the measured kernel that stands for it (row of `Kernels`, NONE for none), and how it is known
    (null where its kind was not measured)."""

    rank: int
    kernel: I64
    how: pl.Series
    #: the measured kind (of `variants_of`) that each op is of, NONE for none
    kind: I64


def joined(profile: Profile) -> bool:
    """Whether there is anything to match: a timeline, and measured kernels."""
    return profile.has("measured") and profile.has("ops")


def matches_of(profile: Profile) -> dict[int, Matches]:
    """By rank: which of its ops were measured."""
    roofline = profile.once(roofline_of)
    variants = profile.once(variants_of)
    detail = dict(profile.by_rank("ops", detail=True))
    gpus = dict(profile.ranks.select("rank", "gpu").iter_rows())
    return {
        data.rank: _of_rank(profile, data, detail[data.rank], roofline, on_gpu(variants, gpus[data.rank]))
        for data in ranks_of(profile)
    }


def on_gpu(variants: pl.DataFrame, name: str | None) -> pl.DataFrame:
    """Without those that were measured on another model of GPU: their roof is not this one's."""
    here = gpu_of(name)
    if here is None:
        return variants
    there = {gpu: gpu_of(gpu) for gpu in variants["gpu"].unique().to_list()}
    others = [gpu for gpu, model in there.items() if model is not None and model is not here]
    return variants.filter(~pl.col("gpu").is_in(others).fill_null(False)) if others else variants


def variants_of(profile: Profile) -> pl.DataFrame:
    """Measured kernels with their `kind` and `variant`: `stands`, the row that stands for all of the variant."""
    roofline = profile.once(roofline_of)
    frame = roofline.kernels.frame.with_columns(kind=pl.struct(_KIND).rank("dense"))
    done = np.zeros(len(roofline.kernels))
    for work in roofline.works:
        done += np.nan_to_num(work.operations)
    frame = frame.with_columns(operations=pl.Series(done))
    variant = np.full(frame.height, NONE)
    firsts: dict[tuple[int, str | None], list[tuple[int, float, float]]] = {}
    for row, (kind, gpu, operations, dur) in enumerate(frame.select("kind", "gpu", "operations", "dur_ns").iter_rows()):
        variants_here = firsts.setdefault((kind, gpu), [])
        like = next((at for at, *other in variants_here if _alike(operations, dur, *other)), None)
        if like is None:
            variants_here.append((row, operations, dur))
        variant[row] = row if like is None else like
    frame = frame.with_columns(variant=pl.Series(variant))
    middle = frame.sort("dur_ns").group_by("variant").agg(pl.col("row").gather(pl.len() // 2).first().alias("stands"))
    return frame.join(middle, on="variant", how="left", maintain_order="left").with_columns(
        pl.col("stands").cast(pl.Int64)
    )


def _alike(operations: float, dur: float | None, other_operations: float, other_dur: float | None) -> bool:
    """Whether two launches of a kind do the same work."""
    if abs(operations - other_operations) > SAME_FLOPS.share * max(operations, other_operations):
        return False
    if not dur or not other_dur:
        return True
    return max(dur, other_dur) <= SAME_TIME.value * min(dur, other_dur)


def _of_rank(
    profile: Profile, data: RankData, detail: pl.DataFrame, roofline: Roofline, variants: pl.DataFrame
) -> Matches:
    ops = _kernels(profile, data, detail)
    kinds = variants.select(*_KIND, "kind").unique("kind")
    ops = ops.join(kinds, on=_KIND, how="left", maintain_order="left", nulls_equal=True)
    count = variants.group_by("kind").agg(
        pl.col("stands").n_unique().alias("count"), pl.col("stands").first().alias("only")
    )
    ops = ops.join(count, on="kind", how="left", maintain_order="left")
    took = pl.DataFrame({"only": range(len(roofline.kernels)), "took": roofline.kernels.frame["dur_ns"]})
    ops = ops.join(took, on="only", how="left", maintain_order="left")
    ratio = pl.col("dur_ns") / pl.col("took")
    fits = ratio.is_between(1 / OTHER_WORK.value, OTHER_WORK.value).fill_null(True)
    ops = ops.with_columns(several=(pl.col("count") > 1) | pl.col("kind").is_in(_of_several_works(ops)))
    one = ~pl.col("several")
    ops = ops.with_columns(
        stands=pl.when(one & fits).then("only"),
        how=pl.when(one & fits).then(pl.lit("kind")).otherwise(pl.lit(None, pl.String)),
    )
    if ops["several"].any():
        ops = _by_order(ops, variants)
        ops = _by_range(ops, data, variants)
        ops = _by_length(ops, variants)
    ops = ops.with_columns(
        how=pl.when(pl.col("kind").is_not_null() & pl.col("how").is_null()).then(pl.lit("ambiguous")).otherwise("how")
    )
    return _by_op(data, ops)


def _kernels(profile: Profile, data: RankData, detail: pl.DataFrame) -> pl.DataFrame:
    """Kernels of a rank in the order of their launches: which op, short name, shape and length."""
    frame = detail.select("name", "kind", *_SHAPE, dur_ns=pl.col("end_ns") - pl.col("start_ns"))
    frame = frame.with_columns(op=pl.Series(np.arange(frame.height)), at=pl.Series(data.launched_at))
    frame = frame.filter(pl.col("kind") == "kernel").drop("kind")
    ids = frame["name"].unique()
    shorts = pl.DataFrame({"name": ids, "short": short_names(profile.names.gather(ids))})
    return frame.join(shorts, on="name", how="left", maintain_order="left").sort("at", "op")


def _by_order(ops: pl.DataFrame, variants: pl.DataFrame) -> pl.DataFrame:
    """Ops whose neighbours are those of one variant alone; the more neighbours agree, the earlier."""
    # Kinds that were not measured are told apart from each other by name only: they are never looked up.
    other = pl.struct(_KIND).rank("dense").cast(pl.Int64) + 1_000_000
    code = pl.coalesce(pl.col("kind").cast(pl.Int64), other)
    sequence = ops.with_columns(code=code)
    measured = variants.with_columns(code=pl.col("kind").cast(pl.Int64))
    for reach in _CONTEXTS:
        around = [pl.col("code").shift(-step).alias(f"at{step}") for step in range(-reach, reach + 1) if step]
        columns = [f"at{step}" for step in range(-reach, reach + 1) if step]
        keys = ["kind", *columns]
        unambiguous = (
            measured.with_columns(e.over("source") for e in around)
            .drop_nulls(columns)
            .group_by(keys)
            .agg(pl.col("stands").n_unique().alias("n"), pl.col("stands").first().alias("told"))
            .filter(pl.col("n") == 1)
            .drop("n")
        )
        sequence = (
            sequence.with_columns(around)
            .join(unambiguous, on=keys, how="left", maintain_order="left")
            .with_columns(
                how=pl.when(pl.col("how").is_null() & pl.col("several") & pl.col("told").is_not_null())
                .then(pl.lit("order"))
                .otherwise("how"),
                stands=pl.when(pl.col("several") & pl.col("stands").is_null()).then("told").otherwise("stands"),
            )
            .drop("told", *columns)
        )
    return sequence.drop("code")


def _by_range(ops: pl.DataFrame, data: RankData, variants: pl.DataFrame) -> pl.DataFrame:
    """Ops launched in a range in which only one variant of their kind was."""
    ranged = variants.drop_nulls("nvtx").with_columns(range=pl.col("nvtx").str.split("/").list.last())
    left = ops.filter(pl.col("how").is_null() & pl.col("several"))
    if ranged.height == 0 or left.height == 0:
        return ops
    one_of_range = ranged.group_by("kind", "range").agg(
        pl.col("stands").n_unique().alias("n"), pl.col("stands").first().alias("told")
    )
    one_of_range = one_of_range.filter(pl.col("n") == 1).drop("n")
    texts = data.text_of(data.enclosing(left["op"].to_numpy()))
    named = left.select("op", "kind").with_columns(range=texts).join(one_of_range, on=["kind", "range"], how="inner")
    ops = ops.join(named.select("op", "told"), on="op", how="left", maintain_order="left")
    hit = pl.col("told").is_not_null()
    return ops.with_columns(
        how=pl.when(hit).then(pl.lit("range")).otherwise("how"), stands=pl.when(hit).then("told").otherwise("stands")
    ).drop("told")


def _of_several_works(ops: pl.DataFrame) -> pl.Series:
    """Measured kinds whose ops fall into groups of clearly different lengths."""
    ordered = (
        ops.drop_nulls("kind")
        .sort("kind", "dur_ns")
        .with_columns(
            step=pl.col("dur_ns") / pl.col("dur_ns").shift(1).over("kind"),
            place=pl.int_range(pl.len()).over("kind") / pl.len().over("kind"),
        )
    )
    # A few that are held up by something beside them are not a group.
    gap = (pl.col("step") > GAP.value) & pl.col("place").is_between(_FEW.share, 1 - _FEW.share)
    return ordered.filter(gap)["kind"].unique()


def _by_length(ops: pl.DataFrame, variants: pl.DataFrame) -> pl.DataFrame:
    """Ops that are as long as one variant of their kind, and much less like any other."""
    left = ops.filter(pl.col("how").is_null() & pl.col("several")).select("op", "kind", "dur_ns")
    took = variants.filter(pl.col("row") == pl.col("stands")).select("kind", told="stands", took="dur_ns").drop_nulls()
    if left.height == 0 or took.height == 0:
        return ops
    apart = pl.max_horizontal(pl.col("dur_ns") / pl.col("took"), pl.col("took") / pl.col("dur_ns"))
    pairs = left.join(took, on="kind").with_columns(apart=apart).sort("op", "apart")
    nearest = pairs.group_by("op", maintain_order=True).agg(
        pl.col("told").first(), pl.col("apart").first(), pl.col("apart").slice(1, 1).first().alias("next")
    )
    alone = pl.col("next").is_null() | (pl.col("next") > SAME_LENGTH.value)
    nearest = nearest.filter((pl.col("apart") <= SAME_LENGTH.value) & alone)
    ops = ops.join(nearest.select("op", "told"), on="op", how="left", maintain_order="left")
    hit = pl.col("told").is_not_null()
    return ops.with_columns(
        how=pl.when(hit).then(pl.lit("length")).otherwise("how"), stands=pl.when(hit).then("told").otherwise("stands")
    ).drop("told")


def _by_op(data: RankData, ops: pl.DataFrame) -> Matches:
    def by_op(values: pl.Series) -> I64:
        spread: I64 = np.full(len(data.start), NONE)
        spread[ops["op"].to_numpy()] = values.cast(pl.Int64).fill_null(NONE).to_numpy()
        return spread

    how = pl.Series("how", by_op(ops["how"].cast(HOW).to_physical()))
    named = how.replace_strict({**dict(enumerate(HOW.categories)), NONE: None}, return_dtype=pl.String)
    return Matches(data.rank, by_op(ops["stands"]), named.cast(HOW), by_op(ops["kind"]))
