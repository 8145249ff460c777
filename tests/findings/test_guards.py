"""Conclusions that must not be drawn, and some that must: of judged traces, and by hand."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from fake import Row, call, copy, make, nvtx, op
from stepscope import api
from stepscope.derive.rank.cuda_calls import Family, families
from stepscope.derive.rank.data import ranks_of
from stepscope.derive.replay.replay import Replay
from stepscope.findings.evidence.hosts import Host
from stepscope.findings.evidence.sequence import Sequence
from stepscope.model.range_names import GARBAGE

US = 1000


def diagnosed(file: Path) -> tuple[list[dict[str, Any]], str]:
    result = api.analyse(api.open(str(file), cache=False), "diagnose")
    return result.rows.to_dicts(), result.summary["statement"]


@pytest.mark.parametrize("name", ["one_memset.sqlite", "llmc_no_kernel.sqlite"])
def test_what_never_runs_a_kernel_gets_no_advice(name: str, shared: Path) -> None:
    rows, says = diagnosed(shared / "judged" / name)
    assert rows == [] and says.startswith("No compute kernel was recorded")


def test_memory_of_a_short_program_is_not_churn(shared: Path) -> None:
    """Four kernels, then memory is given back, once: no allocator is at fault."""
    rows, _ = diagnosed(shared / "judged" / "als244_report1.sqlite")
    assert "allocator-churn" not in [row["id"] for row in rows]


def test_memory_that_is_taken_again_and_again_is_churn() -> None:
    """Of a capture without steps: three times, each as long as a kernel. Not twice, nor where each kernel is a new one:
    a library loads it then, and tries algorithms."""
    for times, names, found in ((3, "aaa", ["allocator-churn"]), (2, "aa", []), (3, "abc", [])):
        calls, ops, at = [], [], 0
        for k in range(times):
            calls += [call(at, at + 400 * US, id=2 * k + 1, name="cudaMalloc")]
            calls += [call(at + 400 * US, at + 410 * US, id=2 * k + 2)]
            ops += [op(at + 420 * US, at + 800 * US, names[k], call=2 * k + 2)]
            at += 800 * US
        calls += [call(at, at + 10 * US, id=99)]
        ops += [op(at + 20 * US, at + 400 * US, "a", call=99)]
        calls.insert(0, call(-60 * US, -50 * US, id=98))
        ops.insert(0, op(-40 * US, 0, "a" if names[1] == "a" else "z", call=98))
        rows = api.analyse(make(ops=ops, calls=calls), "diagnose", only=("allocator-churn",)).rows
        assert rows["id"].to_list() == found


def test_layers_are_no_tiny_kernels() -> None:
    """A pattern of four kernels, eight times in a row: copies of tensors are launched over and over, layers are not."""
    layer = (
        "sm90_xmma_gemm_bf16bf16_bf16f32",
        "vectorized_elementwise_kernel<GeluFunctor>",
        "ampere_sgemm_128x64_nn",
        "x",
    )
    for pattern, found in ((layer, []), (("a", "b", "c", "d"), ["tiny-kernels"]), (layer[:1], ["tiny-kernels"])):
        names = (pattern * 32)[:32]
        calls = [call(40 * US * k, 40 * US * k + 3 * US, id=k + 1) for k in range(32)]
        ops = [op(40 * US * k + 5 * US, 40 * US * k + 8 * US, name, call=k + 1) for k, name in enumerate(names)]
        rows = api.analyse(make(ops=ops, calls=calls), "diagnose", only=("tiny-kernels",)).rows
        assert rows["id"].to_list() == found, pattern


def test_one_memset_by_hand_gets_no_advice() -> None:
    profile = make(ops=[copy(20 * US, 22 * US, call=1)], calls=[call(10 * US, 15 * US, id=1)])
    assert api.analyse(profile, "diagnose").rows.height == 0


def test_launch_bound_in_steps_of_few_launches(shared: Path) -> None:
    """85 % idle, 16 launches a step: their pace is that of the whole capture."""
    rows, _ = diagnosed(shared / "judged" / "sidnb_transformer.pt.trace.json")
    assert rows[0]["id"] == "launch-bound"


def test_long_gaps_before_work_launched_long_ago_are_not_short_kernels(shared: Path) -> None:
    """Six gaps of 64 ms among thousands of some µs: what they wait for is elsewhere."""
    rows, _ = diagnosed(shared / "judged" / "hta_negative_queue.json.gz")
    (idle,) = [r for r in rows if r["id"] == "unexplained" and "idles" in r["title"]]
    assert "waits" in idle["title"] and "fewer and larger kernels" not in idle["try_next"]


def test_a_hash_is_not_garbage_collection() -> None:
    texts = pl.Series(
        ["Call CompiledFxGraph f3gc7x", "a9gc", "gc", "step gc.collect()", "Python GC (gen 2)", "agc loss"]
    )
    assert texts.str.contains(GARBAGE).to_list() == [False, False, True, True, True, False]


def test_many_waits_are_listed_even_if_cheap() -> None:
    """A synchronization in every layer of a host that is far ahead."""

    def listed(times: int) -> tuple[list[str], bool]:
        ops = [op(2_000 * US * k + 1_000 * US, 2_000 * US * k + 2_990 * US, call=2 * k + 1) for k in range(times)]
        calls = [call(10 * US * k, 10 * US * k + 3 * US, id=2 * k + 1) for k in range(times)]
        calls += [call(10 * US * k + 5 * US, 10 * US * k + 6 * US, name="cudaEventSynchronize") for k in range(times)]
        calls.sort(key=lambda c: c["start_ns"])
        profile = make(ops=ops, calls=calls, ranges=[nvtx(0, 2_000 * US * (times + 1), "step 0")])
        every = api.analyse(profile, "diagnose", least=0.0).rows["id"].to_list()
        return every, "many-waits" in [note.code for note in api.analyse(profile, "diagnose").notes]

    (many, said), (few, unsaid) = listed(16), listed(15)
    assert "host-sync" in many and said
    assert "host-sync" not in few and not unsaid


def blocking(following: str | None, *, took: int = 400, ends: int = 390) -> Family:
    """The family of a cudaMemcpyAsync to the host that takes so long; its copy ends so long after it began."""
    calls = [call(0, 5 * US, id=1), call(10 * US, (10 + took) * US, id=2, name="cudaMemcpyAsync")]
    if following:
        calls.append(call((20 + took) * US, (21 + took) * US, id=3, name=following))
    ops: list[Row] = [op(6 * US, 350 * US, call=1)]
    ops.append(op(360 * US, (10 + ends) * US, "[memcpy DtoH]", call=2, kind="memcpy", copy_kind="DtoH", bytes=8))
    (data,) = ranks_of(make(ops=ops, calls=calls, ranges=[nvtx(0, 900 * US, "step 0")]))
    return Family(int(families(data)[1]))


def test_a_copy_to_pageable_memory_blocks_the_host() -> None:
    assert blocking(None) == blocking("cudaLaunchKernel") == Family.BLOCKING_COPY
    assert blocking("cudaStreamSynchronize") == Family.BLOCKING_COPY
    assert blocking(None, took=5) == Family.OTHER  # it returned before the copy began


def test_a_number_of_pageable_memory_is_one_wait() -> None:
    """The copy blocks, and the call behind it synchronizes again: ten numbers, and the time of the copies is waited."""
    ops: list[Row] = []
    calls: list[Row] = []
    for k in range(10):
        at = k * 1_000 * US
        calls += [
            call(at, at + 5 * US, id=2 * k + 1),
            call(at + 10 * US, at + 510 * US, id=2 * k + 2, name="cudaMemcpyAsync"),
        ]
        calls.append(call(at + 512 * US, at + 514 * US, name="cudaStreamSynchronize"))
        ops.append(op(at + 6 * US, at + 495 * US, call=2 * k + 1))
        ops.append(copy(at + 500 * US, at + 502 * US, call=2 * k + 2, copy_kind="DtoH", bytes=4))
    profile = make(
        ops=ops, calls=calls, ranges=[nvtx(0, 10_000 * US, "step 0"), nvtx(10_000 * US, 10_001 * US, "step 1")]
    )
    (row,) = api.analyse(profile, "diagnose", index=0, only=("host-sync",), least=0.0).rows.to_dicts()
    assert row["title"].startswith("10 reads of GPU values")
    assert "the host of rank 0 spends 5.02 ms of the step in these calls" in row["evidence"]


def test_a_diagnosis_leaves_nothing_of_its_case(shared: Path) -> None:
    """A case holds hundreds of bytes per op: it goes with the answer, not with the next search for circles."""
    gc.collect()
    gc.disable()
    try:
        api.analyse(api.open(str(shared / "traces/h200/moe4/overlapped.sqlite"), cache=False), "diagnose")
        held = [o for o in gc.get_objects() if type(o) in (Host, Sequence, Replay)]
    finally:
        gc.enable()
    assert not held
