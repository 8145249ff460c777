"""source: frames, ops and passes by hand; forward linked with backward; real traces against plain JSON; call chains."""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections import defaultdict
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import stepscope
from fake import Row, call, make, nvtx, op
from stepscope.analyses.source import NO_FRAME, source
from stepscope.derive.windows.spec import WindowSpec
from stepscope.errors import BadInput, CannotAnswer

DATA = Path(__file__).parents[1] / "data" / "source"
W = WindowSpec()


def py(start: int, end: int, name: str, tid: int = 1) -> Row:
    return {"start_ns": start, "end_ns": end, "name": name, "kind": "python", "tid": tid}


def aten(
    start: int, end: int, name: str, tid: int = 1, seq: int | None = None, fwd: int | None = None, **more: Any
) -> Row:
    row = {"start_ns": start, "end_ns": end, "name": name, "kind": "cpu_op", "tid": tid, "sequence": seq}
    return row | {"fwd_tid": fwd} | more


ENGINE = "autograd::engine::evaluate_function: "
STEP = {
    "host": [
        py(0, 900, "train.py(40): <module>"),
        py(10, 890, "train.py(23): step"),
        py(20, 90, "nn.Module: Block_0"),
        py(21, 89, "torch/nn/modules/module.py(1783): _call_impl"),
        py(22, 88, "model.py(9): forward"),
        py(23, 87, "torch/nn/modules/linear.py(130): forward"),
        aten(30, 60, "aten::linear", seq=5, fwd=0),
        aten(35, 55, "aten::addmm", seq=6, fwd=0),
        # On the engine's thread: a node with an op in it.
        aten(200, 300, ENGINE + "AddmmBackward0", tid=2, seq=6, fwd=1),
        aten(210, 290, "AddmmBackward0", tid=2, seq=6, fwd=1),
        aten(220, 280, "aten::mm", tid=2),
        py(400, 500, "torch/optim/adam.py(214): step"),
        aten(410, 490, "aten::_foreach_mul_", seq=9, fwd=0),
    ],
    "calls": [call(40, 41, 1), call(230, 231, 2, tid=2), call(420, 421, 3), call(600, 601, 4), call(950, 951, 5)],
    "ops": [op(1000 + 100 * i, 1010 + 100 * i + i, name, call=i + 1) for i, name in enumerate("abcde")],
}


def rows(profile: Any, **options: Any) -> list[dict[str, Any]]:
    return source(profile, W, **options).rows.to_dicts()


def by_kernel(profile: Any, **options: Any) -> dict[str, tuple[Any, ...]]:
    return {r["kernel"]: (r["function"], r["op"], r["phase"]) for r in rows(profile, **options)}


def test_frames_ops_and_passes_by_hand():
    assert by_kernel(make(**STEP)) == {
        "a": ("model.py(9): forward", "aten::linear", "forward"),
        "b": ("model.py(9): forward", "AddmmBackward0", "backward"),
        "c": ("train.py(23): step", "aten::_foreach_mul_", "optimizer"),
        "d": ("train.py(23): step", None, "other"),
        "e": (NO_FRAME, None, "other"),
    }
    total = source(make(**STEP), W).summary["total"][0]
    assert (total["total_ns"], total["credited_ns"], total["by_forward_ns"]) == (60, 46, 11)
    found = source(make(**STEP), W)
    assert any("1 of 5 GPU ops have no call stack" in n for n in found.notes)


def test_calls_and_what_they_take_beside_their_ops():
    """A launch that takes the host 7 ns for 3 ns of GPU; a graph launch of two ops counts once in a row."""
    calls = [call(40, 47, 1, "cudaLaunchKernel_v7000"), call(50, 60, 2, "cudaGraphLaunch_ptsz_v10000"), call(70, 72, 3)]
    ops = [op(100, 103, "a", call=1), op(110, 111, "g", call=2), op(120, 124, "g", call=2), op(130, 190, "a", call=3)]
    found = {r["kernel"]: r for r in rows(make(host=STEP["host"], calls=calls, ops=ops), by="kernel")}
    assert (found["g"]["call"], found["g"]["api_ns"], found["g"]["api_less_gpu_ns"]) == ("cudaGraphLaunch", 10, 5)
    assert (found["a"]["call"], found["a"]["api_ns"], found["a"]["api_less_gpu_ns"]) == ("cudaLaunchKernel", 9, -54)
    bare = rows(make(host=STEP["host"], ops=[op(10, 20, "k")]), by="kernel")[0]
    assert bare["call"] is None and bare["api_ns"] is None and bare["api_less_gpu_ns"] is None


def test_full_names_the_innermost_frame_whosever_it_is():
    assert by_kernel(make(**STEP), full=True)["a"][0] == "torch/nn/modules/linear.py(130): forward"


@pytest.mark.parametrize(
    ("frame", "users"),
    [
        ("train.py(4): main", True),
        ("transformers/models/llama.py(9): forward", True),
        ("/home/me/run.py(3): <module>", True),
        ("testing/loop.py(3): f", True),
        ("torch/nn/functional.py(3): linear", False),
        ("threading.py(1030): _bootstrap", False),
        ("multiprocessing/process.py(3): run", False),
        ("<built-in function linear>", False),
        ("nn.Module: Linear_2", False),
        ("/tmp/torchinductor_me/qg/cqg.py(525): call", False),
        ("triton/runtime/jit.py(1): run", False),
    ],
)
def test_whose_frame(frame, users):
    host = [py(0, 100, "outer.py(1): main"), py(1, 99, frame)]
    found = by_kernel(make(host=host, calls=[call(5, 6, 1)], ops=[op(10, 20, "k", call=1)]))
    assert found["k"][0] == (frame if users else "outer.py(1): main")


def test_rows_by_line_function_op_module_and_kernel():
    p = make(**STEP)
    assert rows(p, by="line")[1] == {"rank": 0, "pid": 100, "line": "train.py(23)", "phase": "other"} | {
        "n": 1,
        "total_ns": 13,
        "share_pct": pytest.approx(100 * 13 / 414),
        "inferred_ns": 0,
        "call": "cudaLaunchKernel",
        "api_ns": 1,
        "api_less_gpu_ns": -12,
    }
    assert {(r["function"], r["phase"]) for r in rows(p, by="function")} >= {("model.py: forward", "backward")}
    assert {(r["module"], r["phase"], r["n"]) for r in rows(p, by="module")} >= {("Block_0", "backward", 1)}
    assert [r["kernel"] for r in rows(p, by="kernel")] == list("edcba")
    assert {r["op"] for r in rows(p, by="op")} == {"aten::linear", "AddmmBackward0", "aten::_foreach_mul_", None}
    for by in ("site", "function", "line", "op", "module", "kernel"):
        assert sum(r["total_ns"] for r in rows(p, by=by)) == 60, "every op is in one row"
    assert len(stepscope.api.analyse(p, "source", top=2).rows) == 2


def test_a_custom_backward_is_its_own_code_and_backward_on_the_callers_thread_is_not():
    node = aten(200, 300, ENGINE + "MineBackward", seq=6, fwd=1)
    forward = [py(20, 90, "model.py(9): forward"), aten(30, 60, "Mine", seq=6, fwd=0)]
    main = py(0, 900, "train.py(1): main")
    tables = {"calls": [call(250, 251, 1)], "ops": [op(260, 270, "k", call=1)]}
    inside = make(host=[main, *forward, node, py(210, 290, "mine.py(7): backward")], **tables)
    assert by_kernel(inside)["k"] == ("mine.py(7): backward", "MineBackward", "backward")
    assert by_kernel(make(host=[main, *forward, node], **tables))["k"][0] == "model.py(9): forward"
    # No forward op in the capture: the caller of backward() is all that is known.
    assert by_kernel(make(host=[main, node], **tables))["k"][0] == "train.py(1): main"


def test_an_op_that_makes_no_node_shares_its_number_with_the_next():
    host = [py(0, 50, "data.py(1): batch"), aten(10, 20, "aten::to", seq=6, fwd=0)]
    host += [py(60, 90, "model.py(9): forward"), aten(70, 80, "aten::mul", seq=6, fwd=0)]
    host += [aten(200, 300, ENGINE + "MulBackward0", tid=2, seq=6, fwd=1)]
    p = make(
        host=host,
        calls=[call(15, 16, 1), call(75, 76, 2), call(250, 251, 3, tid=2)],
        ops=[op(500, 510, "copy", call=1), op(510, 520, "mul", call=2), op(520, 530, "back", call=3)],
    )
    assert by_kernel(p) == {
        "copy": ("data.py(1): batch", "aten::to", "other"),
        "mul": ("model.py(9): forward", "aten::mul", "forward"),
        "back": ("model.py(9): forward", "MulBackward0", "backward"),
    }


def test_forward_threads_that_cannot_be_told_apart_give_no_link():
    def thread(tid: int, numbers: list[int]) -> list[Row]:
        return [
            py(0, 90, f"model{tid}.py(9): forward", tid),
            *(aten(10 + n, 11 + n, "aten::mul", tid, seq=n, fwd=0) for n in numbers),
        ]

    nodes = [aten(200 + 10 * n, 205 + 10 * n, ENGINE + "MulBackward0", tid=9, seq=n, fwd=2) for n in (1, 2)]
    tables = {"calls": [call(211, 212, 1, tid=9)], "ops": [op(300, 310, "k", call=1)]}
    assert by_kernel(make(host=[*thread(3, [1]), *thread(4, [1, 2]), *nodes], **tables))["k"][0].startswith("model4")
    assert by_kernel(make(host=[*thread(3, [1, 2]), *thread(4, [1, 2]), *nodes], **tables))["k"][0] == NO_FRAME


def test_without_launch_records_torchs_ids_link():
    host = [py(0, 90, "a.py(1): f"), aten(10, 20, "aten::mul", external_id=77)]
    p = make(host=host, ops=[op(100, 110, "k", external_id=77), op(110, 120, "l", external_id=78)])
    assert by_kernel(p) == {"k": ("a.py(1): f", "aten::mul", "other"), "l": (NO_FRAME, None, "other")}


def test_ranges_say_the_pass_where_nothing_else_does():
    host = [py(0, 900, "a.py(1): f")]
    calls = [call(10 * i, 10 * i + 1, i) for i in range(1, 5)]
    ranges = [
        nvtx(5, 15, "forward"),
        nvtx(18, 28, "bwd 3"),
        nvtx(28, 38, "optimizer step"),
        nvtx(38, 48, "forward backward"),
    ]
    p = make(host=host, calls=calls, ranges=ranges, ops=[op(100 + i, 101 + i, f"k{i}", call=i) for i in range(1, 5)])
    found = {k: v[2] for k, v in by_kernel(p).items()}
    assert found == {"k1": "forward", "k2": "backward", "k3": "optimizer", "k4": "other"}


def test_collapsed_stacks_hold_all_gpu_time(tmp_path):
    file = tmp_path / "stacks.txt"
    source(make(**STEP), W, stacks=file)
    lines = file.read_text().splitlines()
    assert sum(int(line.rsplit(" ", 1)[1]) for line in lines) == 60
    assert lines[0] == f"rank 0;{NO_FRAME};[other];e 14"
    path = "train.py(40): <module>;train.py(23): step;nn.Module: Block_0;torch/nn/modules/module.py(1783): _call_impl"
    path += ";model.py(9): forward;torch/nn/modules/linear.py(130): forward"
    assert f"rank 0;{path};[backward];AddmmBackward0;b 11" in lines
    with pytest.raises(BadInput, match="cannot write"):
        source(make(**STEP), W, stacks=tmp_path / "no" / "where")


def test_no_stacks_no_answer_but_ops_can_be_told():
    tables = {"calls": [call(40, 41, 1)], "ops": [op(100, 110, "k", call=1)]}
    with pytest.raises(CannotAnswer, match=r"capture run --with stacks.*--python-backtrace.*with_stack=True"):
        source(make(**tables), W)
    torch = make(host=[aten(30, 60, "aten::linear")], **tables)
    with pytest.raises(CannotAnswer, match="--by op"):
        source(torch, W)
    assert rows(torch, by="op")[0]["op"] == "aten::linear"
    with pytest.raises(CannotAnswer):
        source(make(host=[], ranges=[nvtx(0, 1, "x")]), W)


# -- call chains of nsys -----------------------------------------------------------------------------------------------


def chain(number: int, *frames: tuple[str, str, int | None]) -> list[Row]:
    return [{"chain": number, "depth": i, "name": n, "file": f, "line": line} for i, (n, f, line) in enumerate(frames)]


LIB = "/v/lib/python3.12/site-packages/torch/lib/libtorch_cpu.so"


def test_call_chains():
    native = [("cudaLaunchKernel", "/v/libcudart.so.13", None), ("at::_ops::mul_Tensor::call(at::Tensor&)", LIB, None)]
    engine = "torch::autograd::Engine::evaluate_function(int)"
    backward = [*native, ("torch::autograd::generated::MulBackward0::apply(x)", LIB, None), (engine, LIB, None)]
    module = ("_call_impl", "/v/lib/python3.12/site-packages/torch/nn/modules/module.py", 1790)
    python = [
        ("linear", "/v/lib/python3.12/site-packages/torch/nn/functional.py", 20),
        ("forward", "/me/net.py", 7),
        module,
    ]
    calls = [call(10 * i, 10 * i + 1, i) for i in range(1, 6)]
    calls[0] |= {"callchain": 0, "python_chain": -1}
    calls[1] |= {"callchain": 1}
    calls[2] |= {"callchain": 2}
    calls[4] |= {"python_chain": -2}
    stacks = chain(0, *native) + chain(1, *backward) + chain(2, native[0], ("step(int)", "/me/a.out", None))
    stacks += chain(-1, *python) + chain(
        -2, ("adam", "/v/dist-packages/torch/optim/adam.py", 3), ("step", "/me/net.py", 9)
    )
    p = make(calls=calls, stacks=stacks, ops=[op(100 + i, 101 + i, f"k{i}", call=i) for i in range(1, 6)])
    assert by_kernel(p) == {
        "k1": ("/me/net.py(7): forward", "aten::mul_Tensor", "forward"),
        "k2": (NO_FRAME, "MulBackward0", "backward"),
        "k3": ("a.out: step", None, "other"),
        "k4": (NO_FRAME, None, "other"),
        "k5": ("/me/net.py(9): step", None, "optimizer"),
    }
    assert by_kernel(p, full=True)["k1"][0] == "torch/nn/functional.py(20): linear"


def test_a_real_nsys_trace_with_both_sorts_of_stacks(tmp_path):
    """A training step on an H200 under `--cudabacktrace` and `--python-backtrace=cuda`, against the raw rows."""
    file = tmp_path / "backtrace.sqlite"
    file.write_bytes(gzip.decompress((DATA / "backtrace.sqlite.gz").read_bytes()))
    with closing(sqlite3.connect(file)) as db:
        text = dict(db.execute("SELECT id, value FROM StringIds"))
        marks = {
            (tid, at): json.loads(j)
            for tid, at, j in db.execute(
                "SELECT globalTid, start, jsonText FROM NVTX_EVENTS WHERE eventType = 34 AND jsonText IS NOT NULL"
            )
        }
        calls: dict[int, tuple[int, int]] = {}
        for number, tid, start in db.execute(
            "SELECT correlationId, globalTid, start FROM CUPTI_ACTIVITY_KIND_RUNTIME ORDER BY start"
        ):
            calls.setdefault(number, (tid, start))
        gpu = [
            r
            for t in ("KERNEL", "MEMCPY", "MEMSET")
            for r in db.execute(f"SELECT correlationId, end - start FROM CUPTI_ACTIVITY_KIND_{t}")
        ]
    lines: dict[str, int] = defaultdict(int)
    for number, ns in gpu:
        frames = marks.get(calls[number], {}).get("Python Backtrace on CUDA", {}).get("Frames", [])
        mine = [f for f in frames if "site-packages" not in text[f["File"]]]
        lines[f"{text[mine[0]['File']]}({mine[0]['Line']})" if mine else NO_FRAME] += ns
    p = stepscope.open(file, cache=False)
    found: dict[str, int] = defaultdict(int)
    for r in p.source(by="line", index="all").rows.to_dicts():
        taken = r["total_ns"] - r["inferred_ns"]  # what nsys took itself
        found[r["line"]] += taken
        found[NO_FRAME] += r["inferred_ns"]
    assert {k: v for k, v in found.items() if v} == lines and len(lines) > 5
    # 27 % have a stack of their own. The rest is launched by cuBLAS (no stack is taken there) in `forward`, and by the
    # autograd engine while the training step is between `loss.backward()` and `optimizer.step()`.
    total = p.source().summary["total"][0]
    assert (total["total_ns"] - total["inferred_ns"]) / total["total_ns"] == pytest.approx(0.272, abs=0.001)
    assert total["credited_pct"] == 100.0
    inferred = {
        (r["line"].rsplit("/", 1)[-1], r["phase"]) for r in p.source(by="line").rows.to_dicts() if r["inferred_ns"]
    }
    assert inferred == {("train.py(7)", "forward"), ("train.py(14-15)", "backward")}
    ops = {r["op"]: r["phase"] for r in p.source(by="op").rows.to_dicts()}
    assert ops["AddmmBackward0"] == "backward" and ops["aten::_foreach_mul__Scalar"] == "optimizer"
    assert any("credited to the stacks taken before and after" in n for n in p.source().notes)


# -- real traces -------------------------------------------------------------------------------------------------------


def median_step(events: list[Any], launches: dict[int, Any]) -> tuple[float, float]:
    """When the host began and ended the step of median length: from the end of all GPU work before it to its own."""
    steps = sorted(
        (e for e in events if e["name"].startswith("ProfilerStep#") and e["cat"] == "user_annotation"),
        key=lambda e: e["ts"],
    )
    cuts = [steps[0]["ts"], *(e["ts"] + e["dur"] for e in steps)]
    ran = [
        (launches[e["args"]["correlation"]]["ts"], e["ts"] + e["dur"])
        for e in events
        if e["cat"] in ("kernel", "gpu_memcpy", "gpu_memset") and e["args"].get("correlation") in launches
    ]
    ends = [max([cuts[0], *(end for at, end in ran if at < cut)]) for cut in cuts]
    lengths = [b - a for a, b in pairwise(ends)]
    k = lengths.index(sorted(lengths)[len(lengths) // 2])
    return cuts[k], cuts[k + 1]


@pytest.mark.slow
@pytest.mark.parametrize("trace", ["eager", "compiled"])
def test_a_real_trace_against_plain_json(shared, trace):
    """Time by op and pass, and by line, of the median step: everything looked up in the JSON in the plainest way."""
    file = shared / f"traces/h200/train/{trace}.pt.trace.json.gz"
    p = stepscope.open(file, cache=False)
    with gzip.open(file) as f:
        events = [e for e in json.load(f)["traceEvents"] if e.get("ph") == "X"]
    wrap = ("Torch-Compiled", "TorchDynamo", "Pregraph", "AOTDispatcher")
    cpu = [e for e in events if e["cat"] == "cpu_op" and not e["name"].startswith(wrap)]
    frames = [e for e in events if e["cat"] == "python_function"]
    launches: dict[int, Any] = {}
    for e in events:
        if e["cat"] in ("cuda_runtime", "cuda_driver"):
            launches.setdefault(e["args"]["correlation"], e)
    begin, end = median_step(events, launches)

    def around(what: list[Any], tid: int, at: float) -> list[Any]:
        return sorted(
            (e for e in what if e["tid"] == tid and e["ts"] <= at < e["ts"] + e["dur"]), key=lambda e: e["ts"]
        )

    ops: dict[tuple[str, str], float] = defaultdict(float)
    lines: dict[str, float] = defaultdict(float)
    for e in events:
        at = launches.get(e["args"].get("correlation")) if e["cat"] in ("kernel", "gpu_memcpy", "gpu_memset") else None
        if at is None or not begin <= at["ts"] < end:
            continue
        outer = around(cpu, at["tid"], at["ts"])[0]
        name = outer["name"].removeprefix(ENGINE)
        back = outer["name"].startswith(ENGINE)
        ops[name, "backward" if back else ""] += e["dur"]
        tid, when = at["tid"], at["ts"]
        if back and outer["args"].get("Fwd thread id"):
            number = outer["args"]["Sequence number"]
            made = [c for c in cpu if c["args"].get("Sequence number") == number and not c["args"]["Fwd thread id"]]
            maker = max(made, key=lambda c: c["ts"])
            tid, when = maker["tid"], maker["ts"]
        mine = [f for f in around(frames, tid, when) if f["name"].startswith("train.py")]
        lines[mine[-1]["name"].split(":")[0] if mine else NO_FRAME] += e["dur"]
    got: dict[tuple[str, str], int] = defaultdict(int)
    for r in p.source(by="op").rows.to_dicts():
        got[r["op"], "backward" if r["phase"] == "backward" else ""] += r["total_ns"]
    assert got == {k: pytest.approx(1000 * v, abs=1) for k, v in ops.items()}
    by_line: dict[str, int] = defaultdict(int)
    for r in p.source(by="line").rows.to_dicts():
        by_line[r["line"]] += r["total_ns"]
    assert by_line == {k: pytest.approx(1000 * v, abs=1) for k, v in lines.items()}
    assert p.source().summary["total"][0]["credited_pct"] == 100.0
