"""The host's side: API calls, annotations, torch ops and Python functions."""

from __future__ import annotations

import polars as pl

from stepscope.model.api_names import api_name
from stepscope.model.columns import API, HOST_KIND, RANGE_KIND
from stepscope.sources.kineto.categories import Kind, host_kind
from stepscope.sources.kineto.gpu import positive
from stepscope.sources.kineto.names import Names
from stepscope.sources.kineto.rows import Rows

#: Torch's annotation around each collective. Like NCCL's own NVTX domain, it says nothing about the model's code.
NCCL_PREFIX = "nccl:"
NCCL_DOMAIN = "NCCL"


def calls(rows: Rows, names: Names) -> pl.DataFrame:
    rows.take("rank", "external", "correlation")
    raw = rows.names()
    return pl.DataFrame(
        {
            **rows.base(),
            "tid": rows.tid(),
            "name": names.ids_of(api_name, raw),
            "raw_name": names.ids(raw),
            "correlation": rows.arg("correlation"),
            "external_id": rows.arg("external"),
        }
    )


def finish_calls(frame: pl.DataFrame, api: str) -> pl.DataFrame:
    return frame.with_columns(pl.lit(api, API).alias("api"), positive("correlation"))


def ranges(rows: Rows, names: Names) -> pl.DataFrame:
    """`record_function` annotations and `ProfilerStep#N`, on the thread that made them."""
    texts = rows.names()
    return pl.DataFrame(
        {
            **rows.base(),
            "tid": rows.tid(),
            "name": names.ids(texts),
            "domain": names.optional(NCCL_DOMAIN if t.startswith(NCCL_PREFIX) else None for t in texts),
            "closed": pl.Series([f is not False for f in rows.values("finished")], dtype=pl.Boolean),
        }
    )


def finish_ranges(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(pl.lit("pushpop", RANGE_KIND).alias("kind"))


def host(rows: Rows, kind: Kind, names: Names) -> pl.DataFrame:
    rows.take("rank", "external", "sequence", "fwd_tid", "shapes", "types", "inputs", "python_id", "python_parent")
    texts = rows.names()
    kinds = {name: host_kind(kind, name) for name in set(texts)}
    return pl.DataFrame(
        {
            **rows.base(),
            "tid": rows.tid(),
            "kind": pl.Series([kinds[t] for t in texts], dtype=HOST_KIND),
            "name": names.ids(texts),
            "external_id": rows.arg("external"),
            "sequence": rows.arg("sequence"),
            "fwd_tid": rows.arg("fwd_tid"),
            "python_id": rows.arg("python_id"),
            "python_parent": rows.arg("python_parent"),
            "shapes": names.optional(rows.raw("shapes")),
            "types": names.optional(rows.raw("types")),
            "inputs": names.optional(rows.raw("inputs")),
        }
    )
