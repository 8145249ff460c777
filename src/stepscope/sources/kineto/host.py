"""The host's side: API calls, annotations, torch ops and Python functions."""

from __future__ import annotations

import re

import polars as pl

from stepscope.model.schema import API, HOST_KIND, RANGE_KIND
from stepscope.sources.kineto.categories import Kind, host_kind
from stepscope.sources.kineto.names import Names
from stepscope.sources.kineto.rows import Rows

_SUFFIX = re.compile(r"(?:_v\d+|_ptsz|_ptds)+$")
#: Torch's annotation around each collective. Like NCCL's own NVTX domain, it says nothing about the model's code.
_NCCL = "nccl:"
NCCL_DOMAIN = "NCCL"


def calls(rows: Rows, kind: Kind, names: Names) -> pl.DataFrame:
    raw = rows.names()
    plain = {name: _SUFFIX.sub("", name) for name in set(raw)}
    frame = pl.DataFrame(
        {
            **rows.base(),
            "tid": rows.tid(),
            "name": pl.Series(names.ids([plain[n] for n in raw])),
            "correlation": rows.correlation(),
            "raw_name": pl.Series(names.ids(raw)),
            "external_id": rows.arg("external"),
        }
    )
    return frame.with_columns(pl.lit("driver" if kind is Kind.DRIVER else "runtime", API).alias("api"))


def ranges(rows: Rows, names: Names) -> pl.DataFrame:
    """`record_function` annotations and `ProfilerStep#N`, on the thread that made them."""
    texts = rows.names()
    frame = pl.DataFrame(
        {
            **rows.base(),
            "tid": rows.tid(),
            "name": pl.Series(names.ids(texts)),
            "domain": names.optional(NCCL_DOMAIN if t.startswith(_NCCL) else None for t in texts),
            "closed": pl.Series([f is not False for f in rows.values("finished")], dtype=pl.Boolean),
        }
    )
    return frame.with_columns(pl.lit("pushpop", RANGE_KIND).alias("kind"))


def host(rows: Rows, kind: Kind, names: Names) -> pl.DataFrame:
    texts = rows.names()
    kinds = {name: host_kind(kind, name) for name in set(texts)}
    return pl.DataFrame(
        {
            **rows.base(),
            "tid": rows.tid(),
            "kind": pl.Series([kinds[t] for t in texts], dtype=HOST_KIND),
            "name": pl.Series(names.ids(texts)),
            "external_id": rows.arg("external"),
            "sequence": rows.arg("sequence"),
            "fwd_tid": rows.arg("fwd_tid"),
            "python_id": rows.arg("python_id"),
            "python_parent": rows.arg("python_parent"),
            "shapes": names.optional(str(bytes(s), "utf-8", "replace") or None for s in rows.values("shapes")),
        }
    )
