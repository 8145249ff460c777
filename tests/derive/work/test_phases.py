"""The pass of kernels: what plain nsys gives by names and grids, against autograd's numbers in torch's trace."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from fake import call, make, nvtx, op
from promises.new import unpacked
from stepscope import api
from stepscope.derive.rank.data import ranks_of
from stepscope.derive.windows.choosing import windows
from stepscope.derive.windows.spec import WindowSpec
from stepscope.derive.work.phases import AGAIN, BACKWARD, FORWARD, OPTIMIZER, THREADS, TORCH, phases

DATA = Path(__file__).parents[2] / "data"


def _times(folder: Path) -> tuple[dict[int, int], set[int]]:
    """GPU time by pass of the median step, and how it is known."""
    profile = api.open(folder, cache=False)
    data = next(iter(ranks_of(profile)))
    ops = windows(profile, WindowSpec()).of(data.rank)[0].ops
    found = phases(data, ops)
    length = (data.end - data.start)[ops]
    return {p: int(length[found.phase == p].sum()) for p in np.unique(found.phase).tolist()}, set(found.how.tolist())


@pytest.mark.parametrize("pair", [("gpt", "checkpoint-blocks"), ("hf_trainer", "gradient-checkpointing")])
def test_recomputation_without_marks_is_what_autograd_says(pair: tuple[str, str], tmp_path: Path) -> None:
    plain, _ = _times(unpacked(*pair, "nsys", tmp_path))
    numbered, how = _times(unpacked(*pair, "torch", tmp_path))
    assert TORCH in how
    for phase in (FORWARD, BACKWARD, AGAIN, OPTIMIZER):
        assert plain[phase] == pytest.approx(numbered[phase], rel=0.02)


@pytest.mark.parametrize("pair", [("gpt", "none"), ("hf_trainer", "none"), ("unet", "none")])
@pytest.mark.parametrize("tool", ["nsys", "torch"])
def test_nothing_runs_again_in_healthy_programs(pair: tuple[str, str], tool: str, tmp_path: Path) -> None:
    times, _ = _times(unpacked(*pair, tool, tmp_path))
    assert AGAIN not in times and times[BACKWARD] > times[FORWARD] > times[OPTIMIZER] > 0


_FORWARD = (
    *("vectorized_layer_norm_kernel", "nvjet_tst_a", "flash_fwd_kernel", "nvjet_tst_b", "GeluCUDAKernelImpl"),
    "CUDAFunctor_add_elementwise",
)
_BACK = (
    *("GeluBackwardCUDAKernelImpl", "nvjet_tst_c", "nvjet_tst_d", "flash_bwd_kernel", "nvjet_tst_e", "nvjet_tst_f"),
    "layer_norm_grad_input_kernel",
)


def test_threads_tell_where_no_range_does() -> None:
    """Two layers forward on one thread, backward on another, each layer run again first; then a fused optimizer."""
    names = [*_FORWARD * 2, *(*_FORWARD, *_BACK) * 2, "multi_tensor_apply_kernel<FusedAdamMathFunctor>"]
    threads = [1] * 12 + [2] * 26 + [1]
    ops = [op(10 * k, 10 * k + 9, name, call=k + 1) for k, name in enumerate(names)]
    calls = [call(10 * k - 5, 10 * k - 4, k + 1, tid=tid) for k, tid in enumerate(threads)]
    ranges = [nvtx(-9, 400, "step 0", tid=1), nvtx(401, 410, "step 1", tid=1)]
    profile = make(ops=ops, calls=calls, ranges=ranges)
    data = next(iter(ranks_of(profile)))
    found = phases(data, np.arange(len(ops)))
    layer = [AGAIN] * 6 + [BACKWARD] * 7
    assert found.phase.tolist() == [FORWARD] * 12 + layer * 2 + [OPTIMIZER]
    assert THREADS in found.how


def test_calls_of_no_thread_tell_nothing() -> None:
    profile = make(ops=[op(10, 20, "gemm", call=1)], calls=[call(0, 5, 1, tid=-1)])
    data = next(iter(ranks_of(profile)))
    assert phases(data, np.arange(1)).phase.tolist() == [0]


def _replayed(tmp_path: Path, without_names: bool = False) -> Path:
    """Two replays of a graph whose nodes are marked, as torch 2.15 writes them: tests/data/pftrace."""
    trace = json.loads(gzip.decompress((DATA / "pftrace" / "graphs.json.gz").read_bytes()))
    for event in trace["traceEvents"]:
        if without_names and event.get("cat") == "kernel":
            event["args"].pop("name", None)
    file = tmp_path / "graphs.json"
    file.write_text(json.dumps(trace))
    return file


def test_marks_of_a_graph_s_nodes(tmp_path: Path) -> None:
    """`mark_kernels` says `backward` of the nodes that autograd made for what it encloses."""
    profile = api.open(_replayed(tmp_path), cache=False)
    rows = profile.compute(by="module", whole=True).rows.drop_nulls("module")
    passes = {(r["module"], r["phase"]): r["total_ns"] for r in rows.to_dicts()}
    assert passes == {
        ("layers.*.attention", "forward"): 40_000, ("layers.*.attention", "backward"): 16_000,
        ("layers.*.mlp", "forward"): 20_000,
    }  # fmt: skip
    assert profile.kernels(whole=True).rows["module"].drop_nulls().n_unique() == 2


def test_a_stack_alone_says_no_pass(tmp_path: Path) -> None:
    """torch records stacks of nodes in any pass; only names come with theirs."""
    rows = api.open(_replayed(tmp_path, without_names=True), cache=False).source(whole=True).rows
    found = {r["kernel"]: (r["function"], r["phase"]) for r in rows.to_dicts() if r["kernel"].startswith("node")}
    assert found["node1"] == ("model.py(31): forward", "other")
    assert found["node6"][1] == "backward"
