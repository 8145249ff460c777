"""Detectors that no fault of the simulator reaches, on profiles whose answer is worked out by hand (in µs)."""

from __future__ import annotations

from typing import Any

import pytest

import cited
from fake import call, make, nvtx, op
from stepscope import api
from stepscope.api.options import window_spec
from stepscope.model.result import Result

US = 1000
Row = dict[str, Any]


def loop(kernels: int, long: int, **more: Any) -> tuple[list[Row], list[Row]]:
    """A host that launches one kernel every 10 µs, each `long` µs on the GPU: ops and calls."""
    calls = [call((10 + 10 * k) * US, (13 + 10 * k) * US, id=k + 1) for k in range(kernels)]
    start = [max(15 + 10 * k, 15 + long * k) for k in range(kernels)]
    ops = [op(s * US, (s + long) * US, call=k + 1, **more) for k, s in enumerate(start)]
    return ops, calls


def steps(end: int) -> list[Row]:
    return [nvtx(0, end * US, "step 0"), nvtx((end + 1) * US, (end + 2) * US, "step 1")]


def diagnose(least: float = 0.1, **tables: list[Row]) -> Result:
    """Its answer; and the command of every finding must show it."""
    wrong = [text for one in cited.every(make(**tables), window_spec(index=0)) for text in one.wrong]
    assert not wrong, "\n".join(wrong)
    return api.analyse(make(**tables), "diagnose", index=0, least=least)


def found(result: Result) -> dict[str, dict[str, Any]]:
    return {row["id"]: row for row in result.rows.to_dicts()}


def stalled(pause: int, name: str | None = None, kind: str = "other", what: str = "pause") -> dict[str, list[Row]]:
    """Twenty kernels of 8 µs, one per 10 µs; before the eleventh the host pauses so long, in a call if one is named."""
    ops, calls = loop(20, 8)
    for row in (*ops[10:], *calls[10:]):
        row["start_ns"] += pause * US
        row["end_ns"] += pause * US
    begin, end = 104 * US, (104 + pause) * US
    tables: dict[str, list[Row]] = {"ops": ops, "calls": calls, "ranges": steps(300 + pause)}
    if name is not None:
        tables["calls"] = sorted([*calls, call(begin, end, name=name)], key=lambda r: r["start_ns"])
    else:
        tables["host"] = [{"start_ns": begin, "end_ns": end, "tid": 1, "kind": kind, "name": what}]
    return tables


@pytest.mark.parametrize(
    ("finding", "name"),
    [
        ("module-loading", "cuModuleLoadData"),
        ("module-loading", "cudaGraphInstantiate"),
        ("allocator-churn", "cudaMalloc"),
    ],
)
def test_a_call_that_keeps_the_host_gives_its_time_back(finding: str, name: str) -> None:
    # Without the 100 µs call the GPU would have had work again 100 µs sooner: it idled from 113 to 215 µs.
    row = found(diagnose(**stalled(100, name)))[finding]
    assert row["recoverable_ns"] == pytest.approx(100 * US, abs=1 * US)
    assert name in row["title"]
    assert row["where"][0] == {"rank": 0, "start_ns": 104 * US, "end_ns": 204 * US, "stream": None}


def test_an_allocator_costs_what_it_does_around_its_calls() -> None:
    """Forty launches at 10 µs; before every other of the last twenty, 5 µs of cudaMalloc and 25 µs of the allocator."""
    tables: dict[str, list[Row]] = {"ops": [], "calls": []}
    now = 0
    for n in range(40):
        if n >= 20 and n % 2:
            tables["calls"].append(call(now + 25 * US, now + 30 * US, name="cudaMalloc"))
            now += 30 * US
        tables["calls"].append(call(now + 6 * US, now + 10 * US, id=n + 1))
        now += 10 * US
        tables["ops"].append(op(now, now + 2 * US, call=n + 1))
    row = found(diagnose(**tables, ranges=[nvtx(0, now + 10 * US, "step 0")]))["allocator-churn"]
    assert row["recoverable_ns"] == pytest.approx(10 * 30 * US, abs=US)


def test_garbage_collection() -> None:
    row = found(diagnose(**stalled(100, kind="gc", what="Python GC")))["gc-pause"]
    assert row["recoverable_ns"] == pytest.approx(100 * US, abs=1 * US)
    assert "longest 100 µs" in row["evidence"]
    tables = stalled(100)
    del tables["host"]
    tables["ranges"].append(nvtx(104 * US, 204 * US, "gc.collect"))
    assert found(diagnose(**tables))["gc-pause"]["recoverable_ns"] == pytest.approx(100 * US, abs=1 * US)


def test_a_pause_that_nobody_waits_for_is_no_finding() -> None:
    # Kernels of 50 µs: when the host comes back, 40 of them are still queued.
    tables = stalled(100, "cuModuleLoadData")
    tables["ops"] = [op((15 + 50 * k) * US, (65 + 50 * k) * US, call=k + 1) for k in range(20)]
    tables["ranges"] = steps(2000)
    assert "module-loading" not in found(diagnose(**tables))


def test_compilation_in_the_step() -> None:
    tables = stalled(100)
    tables["host"] = [
        {
            "start_ns": 104 * US,
            "end_ns": 204 * US,
            "tid": 1,
            "kind": "compile",
            "name": "_compile.compile_inner (dynamo_timed)",
        }
    ]
    row = found(diagnose(**tables))["graph-breaks"]
    # Never more than the GPU idled meanwhile: from 104 to 105 µs, and from the end of the tenth kernel at 113.
    assert row["recoverable_ns"] == (1 + 204 - 113) * US
    assert row["title"].startswith("1 compilation in the step")


@pytest.mark.parametrize("inside", [False, True], ids=["between steps", "in the step"])
def test_a_batch_that_is_fetched(inside: bool) -> None:
    """Four times: a batch for 500 µs, then twenty kernels of 20 µs, launched as fast as they run. The GPU idles for it.

    Outside the ranges of the steps it counts all the same, and the step is as long as from one to the next.
    """
    ops, calls, ranges, at = [], [], [], 0
    for number in range(4):
        fetched = at + 500
        ranges.append(nvtx(at * US, fetched * US, "next batch"))
        launched = [fetched + 5 + 22 * k for k in range(20)]
        for k, t in enumerate(launched):
            calls.append(call(t * US, (t + 3) * US, id=20 * number + k + 1))
            ops.append(op((t + 5) * US, (t + 25) * US, call=20 * number + k + 1))
        end = launched[-1] + 30
        ranges.append(nvtx((at if inside else fetched) * US, end * US, f"step {number}"))
        at = end
    result = api.analyse(make(ops=ops, calls=calls, ranges=ranges), "diagnose")
    first = result.rows.to_dicts()[0]
    assert first["id"] == "data-stall"
    assert first["recoverable_ns"] == 500 * US
    # 500 to fetch, 5 until the first launch, 19 launches 22 µs apart, 25 until the last kernel is done, 5 to its end.
    assert result.summary["step_ns"] == (500 + 5 + 19 * 22 + 25 + 5) * US
    assert "`next batch`" in first["evidence"]


@pytest.mark.parametrize(("op_us", "named"), [(480, True), (100, False), (502, False)])
def test_input_that_an_op_makes_on_the_cpu_is_named(op_us: int, named: bool) -> None:
    """Three steps that begin with 500 µs of host, an op of torch in them, and a copy of what it made.

    An op that makes the copy itself gives the GPU work: it is not the CPU's.
    """
    ops, calls, ranges, host = [], [], [], []
    at = 0
    for step in range(3):
        begin, first = at, 100 * step
        host.append({"start_ns": at, "end_ns": at + op_us * US, "tid": 1, "kind": "cpu_op", "name": "aten::randn"})
        at += 500 * US
        calls.append(call(at, at + 5 * US, id=first, name="cudaMemcpyAsync"))
        ops.append(op(at + 5 * US, at + 10 * US, "[memcpy]", call=first, kind="memcpy", copy_kind="HtoD", bytes=4096))
        for k in range(1, 21):
            calls.append(call(at + 10 * k * US, at + (10 * k + 3) * US, id=first + k))
            ops.append(op(at + (10 * k + 5) * US, at + (10 * k + 13) * US, call=first + k))
        at += 220 * US
        ranges.append(nvtx(begin, at, f"step {step}"))
    row = found(api.analyse(make(ops=ops, calls=calls, ranges=ranges, host=host), "diagnose"))["data-stall"]
    assert row["recoverable_ns"] == pytest.approx(500 * US, rel=0.05)
    assert ("mostly in `aten::randn`" in row["evidence"]) == named
    assert row["try_next"].startswith("`aten::randn` computes on the CPU") == named


def test_products_without_tensor_cores() -> None:
    ops, calls = loop(20, 30, name="ampere_sgemm_128x64_tn")
    row = found(diagnose(ops=ops, calls=calls, ranges=steps(700)))["no-tensor-cores"]
    assert row["recoverable_ns"] == pytest.approx(20 * 15 * US, rel=0.02)  # no GPU is named: twice as fast
    assert row["recoverable_low_ns"] < row["recoverable_ns"] < row["recoverable_high_ns"]  # nobody knows how fast
    for other in ("nvjet_sm90_tst_128x64", "ampere_dgemm_64x64_nn", "void gemv2T_kernel_val<float>"):
        ops, calls = loop(20, 30, name=other)
        assert "no-tensor-cores" not in found(diagnose(ops=ops, calls=calls, ranges=steps(700)))


@pytest.mark.slow
def test_numbers_between_products_halve_where_all_are_in_float() -> None:
    """Kernels that move floats take half the time once products are in half precision; beside products on tensor cores
    they stay as they are. Losses stay in float, and so does what an optimizer moves."""
    add = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>"
    softmax = "void cunn_SoftMaxForward<4, float, float, float>"
    h200 = [{"gpu": "NVIDIA H200"}]
    product = 1 - 67 / 989.5 / 0.85
    for names, share in (
        (("ampere_sgemm_128x64_tn", add), product + 0.5),
        (("ampere_sgemm_128x64_tn", softmax), product),
        (("cudnn::detail::dgrad_engine<float, 512>", "cudnn::nhwcToNchwKernel<float, float>"), product + 1),
        (("ampere_sgemm_128x64_tn", add, "nvjet_sm90_tst_128x64"), product),
    ):
        ops, calls = loop(60, 500)
        ops = [op | {"name": names[i % len(names)]} for i, op in enumerate(ops)]
        row = found(diagnose(ops=ops, calls=calls, ranges=steps(35000), processes=h200))["no-tensor-cores"]
        assert row["recoverable_ns"] == pytest.approx(60 / len(names) * share * 500 * US, rel=0.03)


@pytest.mark.parametrize(
    ("gpu", "left", "advice", "never"),
    [
        ("NVIDIA A100-SXM4-80GB", 19.5 / 312 / 0.85, "TF32", "GradScaler"),
        ("NVIDIA GeForce RTX 3060", 12.7 / 25.5 / 0.85, "TF32 is no faster", "set_float32"),
        ("Tesla V100-SXM2-16GB", 15.7 / 125 / 0.85, "GradScaler", "TF32"),
        ("Tesla T4", 8.1 / 65 / 0.85, "use fp16", "bf16"),
        ("AMD Instinct MI250X", 23.9 / 191.5 / 0.85, "use bf16", "TF32"),
        ("Tesla P100-PCIE-16GB", None, "", ""),
    ],
)
def test_products_gain_what_the_gpu_has(gpu: str, left: float | None, advice: str, never: str) -> None:
    """20 products of 30 µs, each launched in time: they become as short as the peak rates let expect."""
    ops, calls = loop(20, 30, name="volta_sgemm_128x64_tn")
    rows = found(diagnose(ops=ops, calls=calls, ranges=steps(700), processes=[{"gpu": gpu}]))
    if left is None:
        assert "no-tensor-cores" not in rows
        return
    row = rows["no-tensor-cores"]
    # Launches come every few µs: what is left of a product may hide behind the next launch, so no more than that.
    assert row["recoverable_ns"] <= 20 * 30 * (1 - left) * US * 1.01
    assert advice in row["try_next"] and never not in row["try_next"]
    short, calls = loop(20, 15, name="volta_sgemm_128x64_tn")  # bound by latency: twice as fast at most
    row = found(diagnose(ops=short, calls=calls, ranges=steps(700), processes=[{"gpu": gpu}]))["no-tensor-cores"]
    assert row["recoverable_ns"] <= 20 * 15 * 0.5 * US * 1.01


def test_few_blocks() -> None:
    gpu = [{"gpu": "NVIDIA H200"}]
    # 33 blocks on 132 multiprocessors: at half of what spreading them gives, they would take half as long.
    shape = {"grid_x": 33, "grid_y": 1, "grid_z": 1, "block_x": 128, "block_y": 1, "block_z": 1}
    ops, calls = loop(20, 30, **shape)
    row = found(diagnose(ops=ops, calls=calls, ranges=steps(700), processes=gpu))["low-occupancy"]
    assert row["recoverable_ns"] == pytest.approx(20 * 15 * US, rel=0.02)
    assert row["expected_ns"] == row["recoverable_ns"] // 2
    ops, calls = loop(20, 30, **{**shape, "grid_x": 132})
    assert "low-occupancy" not in found(diagnose(ops=ops, calls=calls, ranges=steps(700), processes=gpu))


def test_a_clock_below_what_it_was() -> None:
    ops, calls = loop(20, 30)
    clock = [
        {"start_ns": at * US, "device": 0, "name": "GPC Clock Frequency [MHz]", "value": 1980.0 if at < 0 else 990.0}
        for at in range(-1000, 700, 10)
    ]
    row = found(diagnose(ops=ops, calls=calls, ranges=steps(700), counters=clock))["clock-throttling"]
    assert row["recoverable_ns"] == pytest.approx(20 * 15 * US, rel=0.02)
    assert "meanwhile" not in row["evidence"]
    torch = [{**c, "name": "SM Clock (MHz)"} for c in clock] + [
        {**c, "name": "Power (W)", "value": 690.0} for c in clock
    ]
    row = found(diagnose(ops=ops, calls=calls, ranges=steps(700), counters=torch))["clock-throttling"]
    assert row["evidence"].endswith("it draws 690 W meanwhile")
    result = diagnose(ops=ops, calls=calls, ranges=steps(700))
    assert "clock-throttling" in {s["id"] for s in result.summary["skipped"]}


def test_a_synchronization_behind_every_kernel_is_a_measurement() -> None:
    # Launch, run for 30 µs, wait: 12 times; between a kernel's end and the next one's start lie 20 µs.
    ops = [op((15 + 50 * k) * US, (45 + 50 * k) * US, call=2 * k + 1) for k in range(12)]
    calls = [
        row
        for k in range(12)
        for row in (
            call((10 + 50 * k) * US, (13 + 50 * k) * US, id=2 * k + 1),
            call((14 + 50 * k) * US, (47 + 50 * k) * US, id=2 * k + 2, name="cudaDeviceSynchronize"),
        )
    ]
    result = diagnose(ops=ops, calls=calls, ranges=steps(700))
    first = result.rows.to_dicts()[0]
    assert first["id"] == "host-sync"
    assert "one after nearly every large kernel, as block timers do" in first["evidence"]
    assert "profiler-distortion" not in found(result)  # the program waits, not its profiler
    # Without the waits the host is ahead: eleven gaps of 20 µs shrink to the usual moment between two kernels.
    assert first["recoverable_ns"] == pytest.approx(11 * 20 * US, rel=0.05)


def _locked(tid: int) -> dict[str, list[Row]]:
    """The pause of `stalled`, in which thread `tid` waits for the lock and thread 7 has it."""
    tables = stalled(100)
    del tables["host"]
    tables["ranges"] += [
        nvtx(104 * US, 204 * US, "Waiting for GIL", tid=tid, domain="GIL Trace"),
        nvtx(103 * US, 203 * US, "Holding GIL", tid=7, domain="GIL Trace"),
    ]
    return tables


def test_the_interpreter_s_lock() -> None:
    row = found(diagnose(**_locked(1)))["gil-contention"]
    assert row["recoverable_ns"] == pytest.approx(100 * US, abs=1 * US)
    assert "waits for 100 µs of the step on rank 0" in row["evidence"]
    assert "thread 7 holds the lock for 99 % of that time" in row["evidence"]
    assert row["where"][0] == {"rank": 0, "start_ns": 104 * US, "end_ns": 204 * US, "stream": None}


def test_another_thread_may_wait_for_the_lock() -> None:
    assert "gil-contention" not in found(diagnose(**_locked(9)))


def test_while_another_thread_launches_a_wait_for_the_lock_holds_up_nothing() -> None:
    """The thread that called for the backward pass waits, autograd's launches."""
    tables = _locked(1)
    tables["calls"] += [call(150 * US, 151 * US, 9_001, tid=9)]
    tables["ops"] += [op(153 * US, 154 * US, call=9_001)]
    result = api.analyse(make(**tables), "diagnose", index=0, least=0.1)
    assert "gil-contention" not in found(result)
