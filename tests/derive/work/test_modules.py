"""Modules by ranges and frames; backward kernels by the forward op that made their node."""

from __future__ import annotations

import numpy as np

from fake import call, make, nvtx, op
from stepscope.derive.rank.data import ranks_of
from stepscope.derive.work.modules import modules


def _host(start: int, end: int, name: str, tid: int = 1, **more: object) -> dict[str, object]:
    return {"start_ns": start, "end_ns": end, "name": name, "kind": "cpu_op", "tid": tid, **more}


def test_backward_belongs_to_the_module_that_ran_forward() -> None:
    """Two layers' linear ops forward on thread 1, and the first one's node backward on thread 2."""
    host = [
        _host(10, 19, "aten::linear", sequence=1, fwd_tid=0),
        _host(30, 39, "aten::linear", sequence=2, fwd_tid=0),
        _host(60, 69, "autograd::engine::evaluate_function: AddmmBackward0", tid=2, sequence=1, fwd_tid=1),
    ]
    ranges = [
        nvtx(0, 50, "forward"),
        nvtx(5, 20, "model.layers.0.mlp"),
        nvtx(25, 40, "model.layers.1.attention"),
        nvtx(55, 80, "backward"),
    ]
    calls = [call(12, 13, 1), call(32, 33, 2), call(62, 63, 3, tid=2), call(45, 46, 4)]
    ops = [op(100 * k, 100 * k + 90, "gemm", call=k) for k in (1, 2, 3, 4)]
    data = next(iter(ranks_of(make(host=host, ops=ops, calls=calls, ranges=ranges))))
    assert modules(data, np.arange(4)).to_list() == [
        "model.layers.*.mlp",
        "model.layers.*.attention",
        "model.layers.*.mlp",
        None,
    ]


def test_without_launches_nothing_is_told() -> None:
    data = next(iter(ranks_of(make(ops=[op(0, 10)]))))
    assert modules(data, np.arange(1)).to_list() == [None]
