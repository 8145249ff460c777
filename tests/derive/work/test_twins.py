"""Kernels that graphs replay, by an eager run of the same steps: by hand."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from fake import call, make, nvtx, op
from stepscope import api
from stepscope.errors import CannotAnswer

US = 1000
#: A step: kernels in order, and the module of each.
STEP = (("gemm", "mlp"), ("norm", "head"), ("gemm", "attention"), ("add", "mlp"), ("add", "mlp"))


def eager(step: tuple[tuple[str, str], ...] = STEP, ranges: bool = True) -> Any:
    """Each kernel launched by itself, in a range of its module."""
    ops, calls, marks = [], [], [nvtx(0, 990 * US, "step 0"), nvtx(990 * US, 999 * US, "step 1")]
    for k, (name, module) in enumerate(step):
        at = 10 * US * (k + 1)
        ops.append(op(at + 5 * US, at + 8 * US, call=k + 1, name=name))
        calls.append(call(at, at + US, k + 1))
        marks += [nvtx(at - US, at + 2 * US, module)] * ranges
    return make(ops=ops, calls=calls, ranges=marks)


def graphed(names: tuple[str, ...], alone: str = "adam") -> Any:
    """All of them by one launch of a graph, and one kernel by itself."""
    ops = [op((20 + 5 * k) * US, (24 + 5 * k) * US, call=1, name=name) for k, name in enumerate(names)]
    ops.append(op(400 * US, 410 * US, call=2, name=alone))
    calls = [call(10 * US, 12 * US, 1, "cudaGraphLaunch"), call(390 * US, 391 * US, 2)]
    marks = [nvtx(0, 990 * US, "step 0"), nvtx(990 * US, 999 * US, "step 1"), nvtx(380 * US, 395 * US, "tail")]
    return make(ops=ops, calls=calls, ranges=[*marks, nvtx(9 * US, 13 * US, "replay")])


def named(profile: Any, twin: Any) -> dict[str, str | None]:
    rows = api.analyse(profile, "kernels", index=0, eager=twin).rows
    return dict(rows.select("name", "module").rows())


def test_the_nth_of_a_kind_is_the_nth() -> None:
    """Two gemms of two modules: each takes the one of its place; what no graph replays keeps its own."""
    profile = graphed(tuple(name for name, _ in STEP))
    rows = api.analyse(profile, "compute", index=0, by="module", eager=eager()).rows
    assert dict(rows.group_by("module").agg(pl.col("n").sum()).rows()) == {
        "mlp": 3,
        "attention": 1,
        "head": 1,
        "tail": 1,
    }
    assert named(profile, eager())["norm"] == "head" and named(profile, eager())["adam"] == "tail"


def test_other_counts_are_known_only_where_all_are_of_one_module() -> None:
    """The graph has one gemm and three additions: the additions are all of mlp, the gemm could be of either."""
    told = named(graphed(("gemm", "add", "add", "add")), eager())
    assert told["add"] == "mlp" and told["gemm"] == "replay"


def test_without_it_the_range_of_the_launch_is_all_there_is() -> None:
    assert set(named(graphed(("gemm", "add")), None).values()) == {"replay", "tail"}


def test_an_eager_run_without_modules_is_refused() -> None:
    with pytest.raises(CannotAnswer, match="neither ranges nor stacks"):
        named(graphed(("gemm",)), eager(ranges=False))
