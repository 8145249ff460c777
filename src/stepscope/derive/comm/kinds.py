"""What a communication is, whatever the source calls it, and what its bytes mean.

One convention for sizes: S of nccl-tests, the whole buffer that the operation fills or reads on one rank. NCCL's own
payload states the part of one rank (all-gather, reduce-scatter) or peer (all-to-all): times n that is S. Kineto counts
whole tensors: S as it stands.
"""

from __future__ import annotations

import re
from functools import lru_cache

import polars as pl

from stepscope.model.first_match import first_of

ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL = "all_reduce", "all_gather", "reduce_scatter", "all_to_all"
SEND, RECV, SEND_RECV, BARRIER = "send", "recv", "send_recv", "barrier"

#: Libraries of expert parallelism: what they dispatch and combine are all-to-alls.
_EXPERTS = r"deepep|dpsk::ep|hybridep|ucclep|\bmori::moe|\bep(dispatch|combine)(intra|inter)node|pplx::"
#: The first pattern that a name contains, in lower case and without underscores, decides.
_KINDS = (
    (rf"({_EXPERTS}|shmem).*\bbarrier|shmem\w*barrier", BARRIER),
    (rf"alltoall|a2a|{_EXPERTS}", ALL_TO_ALL),
    ("allreduce", ALL_REDUCE),
    ("allgather", ALL_GATHER),
    ("reducescatter", REDUCE_SCATTER),
    ("crossdevicereduce|quickreduce|oneshot|twoshot|multimem", ALL_REDUCE),
    ("shmem", ALL_TO_ALL),
    ("broadcast", "broadcast"),
    ("barrier", BARRIER),
    ("sendrecv", SEND_RECV),
    ("^(nccl)?send", SEND),
    ("^(nccl)?recv", RECV),
    ("^(nccl)?gather", "gather"),
    ("^(nccl)?scatter", "scatter"),
    ("reduce", "reduce"),
)
#: Every operation that a name can tell.
OPERATIONS = frozenset(kind for _, kind in _KINDS)
_PATTERNS = tuple((kind, re.compile(pattern)) for pattern, kind in _KINDS)
_OF_EXPERTS = re.compile(_EXPERTS)
#: Calls of NCCL that move nothing.
_NO_OPERATION = re.compile("^(nccl)?(group|comm|mem|redop|get|init|wait)")
#: Names that are remembered.
_MOST_NAMES = 1 << 14

#: Operations whose part for one rank or peer is what NCCL calls the message.
PARTED = (ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, "gather", "scatter")
#: Operations that no rank leaves before all have come, best first: what clocks can be compared by.
TOGETHER = ((BARRIER, ALL_REDUCE), (ALL_GATHER, REDUCE_SCATTER), (ALL_TO_ALL,), (SEND_RECV,))


def kinds(names: pl.Series) -> pl.Series:
    """The operation of each name (of a call, or of a kernel), null where it is none or does not say."""
    distinct = names.drop_nulls().unique()
    kind_of_name = pl.Series("kind", [kind_of(name) for name in distinct.to_list()], dtype=pl.String)
    return names.replace_strict(distinct, kind_of_name, default=None, return_dtype=pl.String).alias("kind")


@lru_cache(_MOST_NAMES)
def kind_of(name: str) -> str | None:
    """The same of one name. Jobs call the same few thousands of times: each is judged once."""
    plain = name.lower().replace("_", "")
    if _NO_OPERATION.search(plain):
        return None
    return first_of(plain, _PATTERNS)


def of_experts(names: pl.Series) -> pl.Series:
    """Whether each kernel is one of a library of expert parallelism."""
    return pl.Series([_of_experts(name) for name in names.to_list()], dtype=pl.Boolean)


@lru_cache(_MOST_NAMES)
def _of_experts(name: str) -> bool:
    return _OF_EXPERTS.search(name.lower().replace("_", "")) is not None


def bus_factor(kind: str, n: pl.Expr) -> pl.Expr:
    """nccl-tests' factor from algorithm to bus bandwidth, for operations of `n` ranks."""
    if kind in (ALL_REDUCE, BARRIER):
        return 2 * (n - 1) / n
    return (n - 1) / n if kind in PARTED else pl.lit(1.0)


def bus_factors(kind: pl.Expr, n: pl.Expr) -> pl.Expr:
    """The same, by row."""
    return (
        pl.when(kind.is_in([ALL_REDUCE, BARRIER]))
        .then(bus_factor(ALL_REDUCE, n))
        .when(kind.is_in(PARTED))
        .then(bus_factor(ALL_GATHER, n))
        .otherwise(pl.lit(1.0))
    )
