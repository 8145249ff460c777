"""Collective metadata: on the NCCL kernels themselves, and on torch's `record_param_comms` host ops.

Bytes are the larger of input and output in elements, times the size of the element: all ranks' data of an all-gather,
the whole input of a reduce-scatter. Of an all-to-all it is the input, self-sends included.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

import polars as pl

from stepscope.model.fields import MOST_RANKS
from stepscope.sources.kineto.host import NCCL_PREFIX
from stepscope.sources.kineto.names import Names
from stepscope.sources.kineto.rows import Rows, integers

RECORD = "record_param_comms"
#: Records that move no data: waiting for a collective, and making a communicator.
_NO_OPERATION = ("wait", "init")
_PEER_IS_RANK = ("send", "recv", "broadcast", "reduce", "gather", "scatter", "_broadcast_oop", "_reduce_oop")
_SIZES = {
    **dict.fromkeys(("byte", "char", "bool", "signed char", "unsigned char", "qint8", "quint8"), 1),
    **dict.fromkeys(("half", "bfloat16", "short", "uint16"), 2),
    **dict.fromkeys(("float", "int", "unsigned int", "uint32", "qint32", "complexhalf"), 4),
    **dict.fromkeys(("double", "long", "long int", "unsigned long", "uint64", "complexfloat"), 8),
    "complexdouble": 16,
}
#: Stands in long lists of ranks for those left out.
_CUT = "..."
_POINT_TO_POINT = re.compile(r"^(send|recv)\s+([0-9]{1,9})\s*(?:->|<-)\s*([0-9]{1,9})$")


def on_kernels(rows: Rows) -> pl.DataFrame | None:
    """Metadata that Kineto copied to the kernel of a collective."""
    chosen = rows.where([c is not None for c in rows.values("collective")])
    if chosen is None:
        return None
    frame = _metadata(chosen)
    return frame.with_columns(chosen.arg("correlation").alias("correlation"))


def on_host(rows: Rows) -> pl.DataFrame | None:
    """Metadata on the host op that called the collective. Old versions of torch leave it empty."""
    chosen = rows.where([n == RECORD for n in rows.names()])
    return None if chosen is None else _metadata(chosen).with_columns(chosen.tid().alias("tid"))


def nccl_annotations(rows: Rows) -> pl.DataFrame | None:
    """Torch's `nccl:*` annotations, which lie inside the host op and know what old versions of it do not."""
    chosen = rows.where([n.startswith(NCCL_PREFIX) for n in rows.names()])
    if chosen is None:
        return None
    shapes = [_elements_and_type(*pair) for pair in zip(chosen.raw("shapes"), chosen.raw("types"), strict=True)]
    parsed = [_annotation(n.removeprefix(NCCL_PREFIX)) for n in chosen.names()]
    return pl.DataFrame(
        {
            **chosen.base(),
            "tid": chosen.tid(),
            "op": pl.Series([op for op, _ in parsed], dtype=pl.String),
            "peer": pl.Series([peer for _, peer in parsed], dtype=pl.Int32),
            "elements": integers([n for n, _ in shapes]),
            "dtype": pl.Series([t for _, t in shapes], dtype=pl.String),
        }
    )


def finish(
    comms: pl.DataFrame, marks: pl.DataFrame | None, groups: Any, rank_of: Mapping[int, int | None]
) -> pl.DataFrame:
    """The `comms` table, with texts for its names. Rows carry `proc` by now; `rank_of` gives its rank."""
    comms = _with_annotations(comms, marks)
    comms = comms.filter(pl.col("op").is_not_null() & ~pl.col("op").is_in(_NO_OPERATION))
    members = _all_members(comms, groups)
    listed = [_listed(m) for m in members]
    own = [_position(rank_of.get(proc), ranks) for proc, ranks in zip(comms["proc"].to_list(), listed, strict=True)]
    size = pl.col("dtype").map_elements(element_size, return_dtype=pl.Int64)
    elements = (
        pl.when(pl.col("op").str.contains("all_?to_?all"))
        .then("in_elements")
        .otherwise(pl.max_horizontal("in_elements", "out_elements"))
    )
    rooted = pl.col("op").is_in(_PEER_IS_RANK)
    return comms.with_columns(
        pl.Series("members", members, dtype=pl.String),
        (elements * size).alias("bytes"),
        pl.coalesce("peer", "dst_rank", "src_rank", pl.when(rooted).then("own_rank")).alias("peer"),
        pl.coalesce(pl.Series(own, dtype=pl.Int32), pl.when(~rooted).then("own_rank")).alias("comm_rank"),
        pl.when(pl.col("description") != "undefined").then("description").alias("group_name"),
    ).with_columns(
        # The name tells two groups of the same ranks apart, the members two groups that share a name.
        pl.concat_str([pl.col("group"), pl.col("members")], separator=" ", ignore_nulls=True)
        .replace("", None)
        .alias("communicator")
    )


def world_sizes(comms: pl.DataFrame) -> dict[int, int]:
    """Size of torch's default group, by process: that is all ranks of the job."""
    default = comms.filter(pl.col("group_name") == "default_pg").drop_nulls("comm_size")
    return dict(default.group_by("proc").agg(pl.col("comm_size").max()).iter_rows())


def numbered(comms: pl.DataFrame, names: Names) -> pl.DataFrame:
    """Texts as ids of the string table."""
    columns = ("op", "communicator", "members", "group_name", "dtype")
    return comms.with_columns(names.optional(comms[c].to_list()).alias(c) for c in columns)


def element_size(dtype: str) -> int | None:
    """Bytes of one element; both torch's names (`BFloat16`) and those of C++ (`c10::BFloat16`)."""
    name = dtype.removeprefix("c10::").lower()
    return 1 if name.startswith("float8") else _SIZES.get(name)


def _metadata(rows: Rows) -> pl.DataFrame:
    return pl.DataFrame(
        {
            **rows.base(),
            "op": rows.text("collective"),
            "group": rows.text("group"),
            "description": rows.text("group_desc"),
            "ranks": rows.text("group_ranks"),
            "comm_size": rows.small("group_size"),
            "group_start": rows.arg("group_start"),
            "group_stride": rows.arg("group_stride"),
            "own_rank": rows.small("own_rank"),
            "src_rank": rows.small("src_rank"),
            "dst_rank": rows.small("dst_rank"),
            "in_elements": rows.arg("in_elements"),
            "out_elements": rows.arg("out_elements"),
            "dtype": rows.text("dtype"),
            "sequence": rows.arg("comm_seq"),
        }
    )


def _with_annotations(comms: pl.DataFrame, marks: pl.DataFrame | None) -> pl.DataFrame:
    """Host records with what the annotation inside them knows, and their depth.

    A call inside a group has no annotation of its own: the group's end has one, `nccl:coalesced`, and launches.
    """
    if "tid" not in comms.columns:
        comms = comms.with_columns(pl.lit(None, pl.Int32).alias("tid"))
    if marks is None:
        return comms.with_columns(pl.lit(0, pl.Int32).alias("depth"), pl.lit(None, pl.Int32).alias("peer"))
    comms = pl.concat([comms, _unrecorded(comms, marks)], how="diagonal_relaxed")
    marks = marks.select("proc", "tid", pl.col("start_ns").alias("mark_ns"), "op", "peer", "elements", "dtype")
    groups = marks.filter(pl.col("op") == "coalesced")["proc"].unique()
    joined = comms.sort("start_ns", maintain_order=True).join_asof(
        marks.sort("mark_ns"),
        left_on="start_ns",
        right_on="mark_ns",
        by=["proc", "tid"],
        strategy="forward",
        suffix="_mark",
        check_sortedness=False,
    )
    inside = (pl.col("mark_ns") < pl.col("end_ns")).fill_null(False)
    grouped = pl.col("tid").is_not_null() & ~inside & pl.col("proc").is_in(groups.implode())
    own = {c: pl.when(inside).then(c) for c in ("op_mark", "peer", "elements", "dtype_mark")}
    return joined.with_columns(
        pl.coalesce("op", own["op_mark"]).alias("op"),
        own["peer"].alias("peer"),
        pl.coalesce("in_elements", own["elements"]).alias("in_elements"),
        pl.coalesce("dtype", own["dtype_mark"]).alias("dtype"),
        pl.when(grouped).then(1).otherwise(0).cast(pl.Int32).alias("depth"),
    ).drop("mark_ns", "op_mark", "elements", "dtype_mark")


def _unrecorded(comms: pl.DataFrame, marks: pl.DataFrame) -> pl.DataFrame:
    """Annotations that lie in no host record: some versions of torch record some operations this way only."""
    records = comms.drop_nulls("tid").select("proc", "tid", "start_ns", pl.col("end_ns").alias("until"))
    around = marks.sort("start_ns").join_asof(
        records.sort("start_ns"), on="start_ns", by=["proc", "tid"], strategy="backward", check_sortedness=False
    )
    alone = (pl.col("start_ns") >= pl.col("until")).fill_null(True) & (pl.col("op") != "coalesced")
    return around.filter(alone).select("proc", "tid", "start_ns", "end_ns", "op")


def _annotation(name: str) -> tuple[str, int | None]:
    """Operation and peer: `send 0->2` and `recv 0<-2` name the own rank first."""
    match = _POINT_TO_POINT.match(name)
    return (match[1], int(match[3])) if match else (name, None)


def _elements_and_type(shapes: str | None, types: str | None) -> tuple[int | None, str | None]:
    """Elements of all inputs of an annotation and their type, where they have one in common."""
    try:
        dims, names = json.loads(shapes or "null"), json.loads(types or "null")
        kinds = {n for n, d in zip(names, dims, strict=True) if d and n}
        kind = kinds.pop() if len(kinds) == 1 else None
        return sum(math.prod(d) for d in dims if d), kind if isinstance(kind, str) else None
    except (TypeError, ValueError, RecursionError):
        return None, None


def _all_members(comms: pl.DataFrame, groups: Any) -> list[str | None]:
    """Members of each row's group: of all that is said of it, the list that is complete."""
    configured = groups if isinstance(groups, list) else []
    stated = {str(g["pg_name"]): g.get("ranks") for g in configured if isinstance(g, dict) and "pg_name" in g}
    rows = comms.select("proc", "group", "ranks", "group_start", "group_stride", "comm_size").rows()
    best: dict[tuple[int, str | None], str] = {}
    for proc, group, ranks, start, stride, size in dict.fromkeys(rows):
        for text in (_members(ranks), _members(stated.get(group)), _spaced(start, stride, size)):
            if group is not None and text is not None and _CUT not in text:
                best.setdefault((proc, group), text)
    return [best.get((proc, group)) or _members(ranks) for proc, group, ranks, *_ in rows]


def _members(ranks: Any) -> str | None:
    """Global ranks as a text; None where torch wrote none."""
    text = ranks if isinstance(ranks, str) else json.dumps(ranks) if isinstance(ranks, list) else "[]"
    return None if text.strip() in ("[]", "") else text


def _spaced(start: int | None, stride: int | None, size: int | None) -> str | None:
    """The members of a regular group, for lists that torch cut short."""
    if start is None or start < 0 or stride is None or stride < 1 or not size or not 0 < size <= MOST_RANKS:
        return None
    return json.dumps([start + stride * i for i in range(size)])


def _listed(members: str | None) -> list[int]:
    try:
        parsed = json.loads(members or "[]")
    except (ValueError, RecursionError):
        return []
    return parsed if isinstance(parsed, list) else []


def _position(rank: int | None, members: list[int]) -> int | None:
    return members.index(rank) if rank is not None and rank in members else None
