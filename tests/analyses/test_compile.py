"""compile: regions, breaks and idle time by hand; real traces against plain JSON; logs of all versions of torch."""

from __future__ import annotations

import gzip
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import stepscope
from fake import Row, call, make, nvtx, op
from stepscope import api
from stepscope.analyses.compile import compile
from stepscope.analyses.compile.log import parse
from stepscope.capture import manifest
from stepscope.cli.main import run
from stepscope.derive.rank.data import ranks_of
from stepscope.derive.rank.graphs import captures
from stepscope.derive.windows.spec import WindowSpec
from stepscope.errors import BadInput, CannotAnswer, GateFailed

DATA = Path(__file__).parents[1] / "data" / "compile"
LOG, CLEAN = DATA / "torch2.13_broken.log", DATA / "torch2.13_whole.log"
W = WindowSpec()


def host(start: int, end: int, name: str, kind: str = "compile", tid: int = 1) -> Row:
    return {"start_ns": start, "end_ns": end, "name": name, "kind": kind, "tid": tid}


def region(start: int, end: int, ids: str, tid: int = 1) -> Row:
    return host(start, end, f"Torch-Compiled Region: {ids}", tid=tid)


def graph(start: int, end: int, tid: int = 1) -> Row:
    return host(start, end, "## Call CompiledFxGraph abc ##", tid=tid)


BROKEN = {
    # A frame with a graph [10, 20), a break in which Python launches an op, and the rest as a region of its own.
    "host": [region(0, 100, "0/0"), graph(10, 20), region(60, 90, "1/2"), graph(70, 80)],
    "calls": [call(12, 13, 1), call(40, 41, 2), call(72, 73, 3), call(110, 111, 4)],
    "ops": [op(14, 20, "a", call=1), op(42, 45, "b", call=2), op(74, 80, "c", call=3), op(112, 132, "d", call=4)],
    "ranges": [nvtx(0, 200, "step 0"), nvtx(300, 301, "step 1")],
}


def one(profile: Any, anchor: str | None = None) -> dict[str, Any]:
    return compile(profile, WindowSpec(anchor=anchor, index=0)).rows.to_dicts()[0]


def test_regions_breaks_and_gpu_time_by_hand():
    row = one(make(**BROKEN))
    assert (row["regions"], row["graphs"], row["breaks"], row["recompiled"], row["compiles"]) == (2, 2, 1, 1, 0)
    assert (row["compiled_ns"], row["between_ns"], row["eager_ns"]) == (12, 3, 20)
    assert row["gpu_per_graph_ns"] == 6 and row["compiled_pct"] == pytest.approx(100 * 12 / 35)


def test_idle_time_is_split_by_where_the_host_was_and_sums_up():
    row = one(make(**BROKEN))
    # Gaps [0, 14), [20, 42), [45, 74), [80, 112): until the launch, the host was the reason.
    assert row["idle_ns"] == 14 + 22 + 29 + 32
    assert row["idle_graph_ns"] == (12 - 10) + (72 - 70)  # in the graphs before their launches
    assert row["idle_between_ns"] == (10 - 0) + (40 - 20) + (70 - 45) + (100 - 80)
    assert row["idle_eager_ns"] == 110 - 100
    assert row["idle_other_ns"] == 2 + 2 + 2 + 2  # queued
    assert row["idle_ns"] == sum(row[f"idle_{k}_ns"] for k in ("compile", "graph", "between", "eager", "other"))
    assert row["verdict"] == "host-bound"  # 79 ns of waiting in compiled code for 12 ns of work


@pytest.mark.parametrize(
    ("a", "between", "verdict"),
    [(70, 42, "breaks hidden"), (30, 42, "breaks exposed"), (30, 31, "breaks hidden")],
)
def test_verdict_of_breaks(a, between, verdict):
    tables = {
        "host": [region(0, 60, "0/0"), graph(10, 20), region(45, 58, "1/0"), graph(46, 50)],
        "calls": [call(12, 13, 1), call(between - 1, between, 2), call(47, 48, 3)],
        "ops": [op(14, a, "a", call=1), op(max(a, between), 100, "b", call=2), op(100, 140, "c", call=3)],
        "ranges": [nvtx(0, 200, "step 0"), nvtx(300, 301, "step 1")],
    }
    row = one(make(**tables), anchor="^step")  # from its first op on: without what comes before the first graph
    assert (row["breaks"], row["verdict"]) == (1, verdict)


def test_compilation_in_the_window():
    more = [host(20, 35, "_compile.compile_inner (dynamo_timed)"), host(22, 30, "bytecode_tracing (dynamo_timed)")]
    more += [host(31, 33, "entire_frame_compile_data: compile_id=1/2", "cpu_op")]
    row = one(make(**{**BROKEN, "host": [*BROKEN["host"], *more]}))
    assert (row["compiles"], row["compiling_ns"], row["idle_compile_ns"]) == (1, 15, 15)
    frames = [host(20, 35, "torch/_dynamo/convert_frame.py(1300): _compile", "python")]
    frames += [host(50, 51, "torch/_dynamo/decorators.py(600): graph_break", "python")]
    row = one(make(**{**BROKEN, "host": [*BROKEN["host"], *frames]}))
    assert (row["compiles"], row["compiling_ns"], row["breaks"]) == (1, 15, 1)


def test_backward_graphs_run_on_a_thread_of_their_own():
    tables = {
        "host": [
            region(0, 50, "0/0"),
            graph(10, 20),
            host(60, 90, "CompiledFunctionBackward", tid=2),
            graph(62, 80, 2),
        ],
        "calls": [call(12, 13, 1), call(70, 71, 2, tid=2), call(85, 86, 3, tid=2), call(95, 96, 4, tid=2)],
        "ops": [op(100 + i, 101 + i, "k", call=i + 1) for i in range(4)],
    }
    row = compile(make(**tables), W).rows.to_dicts()[0]
    assert (row["graphs"], row["breaks"], row["compiled_ns"], row["between_ns"], row["eager_ns"]) == (2, 0, 3, 0, 1)
    regions = compile(make(**tables), W, by="region").rows.to_dicts()
    assert [(r["region"], r["n"], r["graphs"], r["compiled_ns"], r["other_ns"]) for r in regions] == [
        ("0/0", 1, 1, 1, 0),
        ("(no region)", 0, 1, 2, 1),
    ]


def test_nvtx_ranges_say_the_same():
    names = {"## Call CompiledFxGraph abc ##": "## Call CompiledFxGraph abc ##, op_id = 7"}
    as_ranges = [
        nvtx(h["start_ns"], h["end_ns"], names.get(h["name"], h["name"] + ", op_id = 3")) for h in BROKEN["host"]
    ]
    ranges = {k: v for k, v in BROKEN.items() if k != "host"} | {"ranges": [*BROKEN["ranges"], *as_ranges]}
    spec = WindowSpec(anchor="^step", index=0)
    by_host, by_range = (compile(make(**t), spec).rows.to_dicts() for t in (BROKEN, ranges))
    assert by_host == by_range


@pytest.mark.parametrize("marked", ["calls", "range"])
def test_capturing_a_cuda_graph_is_no_break_and_no_compilation(marked):
    """A region captures a graph for [20, 80), and the GPU waits: 60 ns of what it waits until the graph's launch."""
    begin, end = call(20, 21, None, "cudaStreamBeginCapture"), call(79, 80, None, "cudaStreamEndCapture")
    launches = [call(30 + k, 31 + k, None) for k in range(0, 40, 2)]
    tables = {
        "host": [region(0, 100, "0/0"), graph(10, 95)],
        "calls": [call(12, 13, 1), *launches, call(90, 91, 2, "cudaGraphLaunch")],
        "ops": [op(14, 18, "a", call=1), op(92, 132, "b", call=2)],
        "ranges": [nvtx(0, 200, "step 0"), nvtx(300, 301, "step 1")],
    }
    if marked == "range":
        tables["ranges"].append(nvtx(20, 80, "CUDAGraphNode.record (dynamo_timed)"))
    else:
        tables["calls"] += [begin, end]
    row = one(make(**tables))
    assert (row["breaks"], row["compiles"], row["compiling_ns"], row["idle_compile_ns"]) == (0, 0, 0, 0)
    # In the graph, but not capturing: before its first launch, and on both sides of the capture.
    assert (row["idle_capture_ns"], row["idle_graph_ns"]) == (60, (12 - 10) + (20 - 18) + (90 - 80))
    parts = ("compile", "graph", "between", "eager", "capture", "other")
    assert row["idle_ns"] == sum(row[f"idle_{k}_ns"] for k in parts) == 14 + (92 - 18)
    assert row["verdict"] == "whole"
    found = api.analyse(make(**tables), "diagnose", index=0)
    assert not {"graph-breaks", "launch-bound"} & set(found.rows["id"].to_list())
    assert any(n.code == "graph-capture" and "60 ns of the step" in str(n) for n in found.notes)


def test_a_capture_that_never_ends_lasts_to_the_end_of_the_trace():
    calls = [
        call(5, 6, None, "cudaStreamBeginCapture"),
        call(50, 60, 1),
        call(7, 9, None, "hipStreamBeginCapture", tid=2),
    ]
    calls.append(call(8, 9, None, "hipStreamBeginCapture", tid=2))  # of another stream, within the first
    profile = make(ops=[op(61, 70, call=1)], calls=[*calls, call(20, 22, None, "hipStreamEndCapture", tid=2)])
    assert [a.tolist() for a in captures(next(iter(ranks_of(profile))))] == [[1, 2, 2], [5, 7, 8], [60, 22, 22]]


@pytest.mark.slow
def test_flux_captures_a_graph(shared: Path):
    """hipStreamBeginCapture at 669.311 ms, hipStreamEndCapture at 1,207.732: read off the file."""
    profile = api.open(shared / "traces/public/tl_xdit_flux_capture.json.gz", cache=False)
    _, start, end = captures(next(iter(ranks_of(profile))))
    assert [int(e - s) for s, e in zip(start, end, strict=True)] == [4026146207732470 - 4026145669311143]
    assert "graph-breaks" not in profile.diagnose().rows["id"].to_list()


def test_kernel_names_are_the_stated_last_resort():
    found = compile(make(ops=[op(0, 30, "triton_poi_fused_add_0"), op(30, 40, "nvjet_x")], ranges=[nvtx(0, 1, "x")]), W)
    row = found.rows.to_dicts()[0]
    assert (row["compiled_ns"], row["eager_ns"], row["regions"], row["verdict"]) == (30, 10, None, "undecided")
    assert any("kernel names alone" in n for n in found.notes)
    with pytest.raises(CannotAnswer, match="torch ops"):
        compile(make(ops=[op(0, 30, "nvjet_x")], ranges=[nvtx(0, 1, "x")]), W)


def test_names_decide_a_gate_only_where_their_share_is_enough():
    """Three quarters are inductor's by name; the product may be compiled, too: at least 75 %, perhaps all."""
    profile = make(ops=[op(0, 30, "triton_poi_fused_add_0"), op(30, 40, "nvjet_x")], ranges=[nvtx(0, 1, "x")])
    answer = compile(profile, W, gate="compiled>=70")
    assert answer.summary["statement"].endswith("at least 75.0 % of the GPU time is compiled. Verdict: undecided.")
    for gate in ("compiled>=80", "compiled<=90"):
        with pytest.raises(CannotAnswer, match="undecided") as raised:
            compile(profile, W, gate=gate)
        assert raised.value.exit_status == 3


def test_torch_ops_without_regions_are_not_compiled():
    tables = {"ops": [op(10, 30, call=1)], "calls": [call(5, 6, 1)], "host": [host(0, 9, "aten::mm", "cpu_op")]}
    row = compile(make(**tables), W).rows.to_dicts()[0]
    assert (row["regions"], row["compiled_pct"], row["verdict"]) == (0, 0.0, "not compiled")


# -- real traces -------------------------------------------------------------------------------------------------------


def events(file: Path) -> list[dict[str, Any]]:
    with gzip.open(file) as f:
        return [e for e in json.load(f)["traceEvents"] if e.get("ph") == "X"]


def test_a_real_cpu_trace_with_breaks_and_recompiles():
    """tests/data/compile/model.py, torch 2.13: per forward 7 regions; step 3 has another batch size and recompiles."""
    file = DATA / "torch2.13_broken.pt.trace.json.gz"
    found = stepscope.open(file, cache=False).compile(by="step").rows.to_dicts()
    trace = events(file)
    for row in found:
        step = next(e for e in trace if e["name"] == row["label"])
        inside = [e for e in trace if step["ts"] <= e["ts"] < step["ts"] + step["dur"]]
        regions = [e for e in inside if e["name"].startswith("Torch-Compiled Region")]
        holding = [r for r in regions if any(r["ts"] < o["ts"] < r["ts"] + r["dur"] for o in regions)]
        assert (row["regions"], row["breaks"]) == (len(regions), len(holding)) == (7, 4)
        assert row["graphs"] == sum(e["name"].startswith("## Call") for e in inside) == 9
        assert row["compiles"] == sum(e["name"].startswith("_compile.compile_inner (") for e in inside)
    assert [r["compiles"] for r in found] == [0, 0, 7, 0] and [r["recompiled"] for r in found] == [2, 2, 5, 5]
    assert found[2]["compiling_ns"] > 800_000_000 and found[0]["compiling_ns"] == 0


def test_a_real_cpu_trace_without_breaks():
    found = stepscope.open(DATA / "torch2.13_whole.pt.trace.json.gz", cache=False).compile(by="step")
    assert [(r["regions"], r["graphs"], r["breaks"], r["compiles"]) for r in found.rows.to_dicts()] == [
        (1, 2, 0, 0)
    ] * 4


def test_breaks_on_a_gpu_by_torch_profiler_and_by_nvtx(tmp_path):
    """The same model on an H200 (torch 2.11): three steps, whole and broken; the broken one also under nsys."""
    files = [DATA / f"torch2.11_h200_{which}.pt.trace.json.gz" for which in ("whole", "broken")]
    whole, broken = (stepscope.open(f, cache=False).compile(whole=True).rows.to_dicts()[0] for f in files)
    assert [(r["regions"], r["graphs"], r["breaks"]) for r in (whole, broken)] == [(3, 6, 0), (21, 27, 12)]
    each = [stepscope.open(f, cache=False).compile().rows.to_dicts()[0] for f in files]  # the optimizer ends a step
    assert [(r["regions"], r["graphs"], r["breaks"]) for r in each] == [(1, 2, 0), (7, 9, 4)]
    assert whole["compiled_ns"] == pytest.approx(broken["compiled_ns"], rel=0.01)  # the same work, in smaller pieces
    assert whole["gpu_per_graph_ns"] > 4 * broken["gpu_per_graph_ns"]
    assert broken["between_ns"] > 0 == whole["between_ns"]  # what .item() launches at a break
    assert broken["idle_between_ns"] > 2 * whole["idle_between_ns"]

    file = tmp_path / "broken.sqlite"
    file.write_bytes(gzip.decompress((DATA / "torch2.11_h200_broken.sqlite.gz").read_bytes()))
    steps = stepscope.open(file, cache=False).compile(by="step").rows.to_dicts()
    assert [(r["label"], r["regions"], r["graphs"], r["breaks"]) for r in steps] == [
        (f"step {i}", 7, 9, 4) for i in (3, 4, 5)
    ]
    texts = """(SELECT start, end, globalTid AS tid, coalesce(text, value) AS name
                FROM NVTX_EVENTS LEFT JOIN StringIds s ON s.id = textId)"""
    query = f"""
        SELECT sum(k.end - k.start) FROM CUPTI_ACTIVITY_KIND_KERNEL k
        JOIN (SELECT min(start) AS start, globalTid AS tid, correlationId AS id FROM CUPTI_ACTIVITY_KIND_RUNTIME
              GROUP BY correlationId) c ON c.id = k.correlationId
        WHERE EXISTS (SELECT 1 FROM {texts} n WHERE n.tid = c.tid AND n.start <= c.start AND c.start < n.end
                      AND (n.name LIKE '## Call CompiledFxGraph%' OR n.name LIKE 'CompiledFunction%'))"""
    with closing(sqlite3.connect(file)) as db:
        (compiled_ns,) = db.execute(query).fetchone()
    assert sum(r["compiled_ns"] for r in steps) == compiled_ns


def test_compiled_and_eager_on_the_gpu(shared):
    file = shared / "traces/h200/train/compiled.pt.trace.json.gz"
    found = stepscope.open(file, cache=False).compile(by="step").rows.to_dicts()
    trace = events(file)
    launches = {e["args"]["correlation"]: e for e in trace if e["cat"] in ("cuda_runtime", "cuda_driver")}
    graphs = [e for e in trace if e["cat"] == "user_annotation" and e["name"].startswith("## Call")]
    graphs += [e for e in trace if e["cat"] == "cpu_op" and e["name"].startswith("CompiledFunction")]
    for row in found:
        step = next(e for e in trace if e["name"] == row["label"] and e["cat"] == "user_annotation")
        total = 0.0
        for e in trace:
            at = (
                launches.get(e["args"].get("correlation"))
                if e["cat"] in ("kernel", "gpu_memcpy", "gpu_memset")
                else None
            )
            if at is None or not step["ts"] <= at["ts"] < step["ts"] + step["dur"]:
                continue
            if any(g["tid"] == at["tid"] and g["ts"] <= at["ts"] < g["ts"] + g["dur"] for g in graphs):
                total += e["dur"]
        assert row["compiled_ns"] == pytest.approx(1000 * total, abs=1)
        assert (row["regions"], row["graphs"], row["breaks"], row["compiles"]) == (1, 2, 0, 0)
        assert row["idle_ns"] == sum(row[f"idle_{k}_ns"] for k in ("compile", "graph", "between", "eager", "other"))
    eager = stepscope.open(shared / "traces/h200/train/eager.pt.trace.json.gz", cache=False).compile()
    assert eager.rows["verdict"].to_list() == ["not compiled"]  # though torch's own code calls graph_break()


# -- logs --------------------------------------------------------------------------------------------------------------


def test_a_real_log_and_a_comparison():
    found = api.analyse(None, "compile", log=LOG, against=CLEAN)
    assert found.summary["graph_breaks"] == 10 == LOG.read_text().count("user code at /home/user/model.py:")
    assert found.summary["recompiles"] == 9 == LOG.read_text().count("] Recompiling function")
    assert found.summary["statement"] == "graph breaks went from 0 to 10; recompiles went from 0 to 9"
    first = found.rows.to_dicts()[0]
    assert first == {
        "kind": "graph_break",
        "reason": "Call to `torch._dynamo.graph_break()`",
        "location": "/home/user/model.py:17",
        "function": None,
        "n": 8,
        "against_n": 0,
        "change": 8,
    }
    assert any("TORCH_LOGS" in n for n in found.notes)  # the other log is empty: said, not taken for proof
    assert all(found.rows["reason"])


def test_a_real_log_of_another_version():
    found = api.analyse(None, "compile", log=DATA / "torch2.11_broken.log")
    assert (found.summary["graph_breaks"], found.summary["recompiles"]) == (5, 2)
    assert [(r["reason"], r["location"], r["n"]) for r in found.rows.to_dicts()[:2]] == [
        ("Call to `torch._dynamo.graph_break()`", "/home/user/model.py:14", 4),
        ("Unsupported Tensor.item() call with capture_scalar_outputs=False", "/home/user/model.py:25", 1),
    ]


TODAY = "V0812 15:05:52.194000 1848694 torch/_dynamo/symbolic_convert.py:556] [4/0] [__graph_breaks] "
OLD = "[2024-02-06 10:32:24,334] [0/0] torch._dynamo.symbolic_convert.__graph_breaks: [DEBUG] "
FORMATS = {
    "2.2": [OLD + 'Graph break: call_function print from user code at:', OLD + '  File "/x/a.py", line 3, in main',
            OLD + "    f(x)", OLD + '  File "/x/b.py", line 7, in f', OLD + "    print(x)"],
    "2.4": [TODAY + "Graph break: from user code at:", TODAY + '  File "/x/b.py", line 7, in f', TODAY + "    print(x)",
            TODAY + "Traceback (most recent call last):", TODAY + '  File "/v/torch/_dynamo/exc.py", line 9, in f',
            TODAY + "torch._dynamo.exc.Unsupported: call_function print"],
    "2.4 skip": [TODAY + "Graph break: skip: from user code at:", TODAY + '  File "/x/b.py", line 7, in f',
                 TODAY + "Traceback (most recent call last):",
                 TODAY + "torch._dynamo.exc.Unsupported: call_function print"],
    "2.5": [TODAY + "Graph break in user code at /x/b.py:7", TODAY + "Reason: call_function print",
            TODAY + "User code traceback:", TODAY + '  File "/x/a.py", line 3, in main'],
    "2.7": [TODAY + "Graph break in user code at /x/b.py:7", TODAY + "Graph Break Reason: call_function print",
            TODAY + "  Explanation: Dynamo does not know print"],
    "2.13": [TODAY + "Graph break in user code at /x/b.py:7",
             TODAY + "Graph Break Reason: Encountered graph break when attempting to trace CALL:", TODAY.rstrip(),
             TODAY + "call_function print", TODAY + "  Explanation: none"],
    "bare": ["Graph break in user code at /x/b.py:7\n", "Reason: call_function print\n"],
}  # fmt: skip


@pytest.mark.parametrize("version", FORMATS)
def test_every_format_of_a_break(version):
    (event,) = parse(FORMATS[version])
    assert (event.kind, event.location, event.reason) == ("graph_break", "/x/b.py:7", "call_function print")


def test_ranks_that_write_into_one_file_are_kept_apart():
    lines = [[f"[rank{r}]:{text}" for text in FORMATS["2.13"]] for r in (0, 1)]
    events = parse([line for pair in zip(*lines, strict=True) for line in pair])
    assert [(e.location, e.reason) for e in events] == [("/x/b.py:7", "call_function print")] * 2


def test_recompiles_limits_and_torchs_advice():
    prefix = "V0920 13:54:44.535000 3904 torch/_dynamo/guards.py:4760] [0/1] [__recompiles] "
    warning = "W0920 13:54:44.535000 3904 torch/_dynamo/convert_frame.py:1676] [0/8] "
    events = parse(
        [
            prefix + "Recompiling function f in /x/a.py:4",
            prefix + "    triggered by the following guard failure(s):",
            prefix + "    - 0/0: tensor 'O' dtype mismatch. expected BFloat16, actual Float",
            prefix + "    - 0/1: another",
            warning + "torch._dynamo hit config.recompile_limit (8)",
            warning + "   function: 'f' (/x/a.py:4)",
            warning + "Graph break: from user code at:",  # advice about .item(), logged beside the break itself
        ]
    )
    assert [(e.kind, e.reason, e.location, e.function) for e in events] == [
        ("recompile", "tensor 'O' dtype mismatch. expected BFloat16, actual Float", "/x/a.py:4", "f"),
        ("recompile_limit", "recompile_limit (8)", "/x/a.py:4", "f"),
    ]


def test_the_command_line_needs_a_profile_or_a_log(capsys, tmp_path):
    assert run(["compile", "--log", str(LOG), "--against", str(CLEAN), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["summary"]["graph_breaks"] == 10
    assert run(["compile"]) == 2 and "--log" in capsys.readouterr().err
    assert run(["compile", "--log", str(tmp_path / "none.log")]) == 2
    assert run(["compile", "--against", str(LOG)]) == 2
    assert run(["overlap"]) == 2
    with pytest.raises(BadInput):
        api.analyse(None, "overlap")
    trace = DATA / "torch2.13_broken.pt.trace.json.gz"
    both = stepscope.open(trace, cache=False).compile(log=LOG)
    assert both.rows["regions"].to_list() == [7] and both.summary["log"]["graph_breaks"] == 10
    assert "reason" in stepscope.open(trace, cache=False).compile(log=LOG, by="reason").rows.columns


@pytest.mark.parametrize(
    ("gate", "says"),
    [("breaks<=0", r"breaks: \d+, must be <= 0"), ("recompiles<=99,breaks>=1", None), ("breaks<0", "not a condition")],
)
def test_the_gate(gate, says):
    if says is None:
        api.analyse(None, "compile", log=LOG, gate=gate)
        return
    with pytest.raises(BadInput if "<0" in gate else GateFailed, match=says):
        api.analyse(None, "compile", log=LOG, gate=gate)


def test_a_gate_on_what_nothing_says():
    with pytest.raises(CannotAnswer, match="--gate compiled: nothing says how many; give a profile"):
        api.analyse(None, "compile", log=LOG, gate="compiled>=80")


def test_the_log_beside_a_capture_is_found(tmp_path):
    (tmp_path / "compile").mkdir()
    (tmp_path / "compile" / "rank0.log").write_bytes(LOG.read_bytes())
    found = api.analyse(None, "compile", log=tmp_path)
    assert found.rows.equals(api.analyse(None, "compile", log=LOG).rows)
    with pytest.raises(BadInput, match=r"no compile/rank0\.log in it"):
        api.analyse(None, "compile", log=tmp_path / "compile")


def mode(profile: Any) -> tuple[str | None, ...]:
    summary = compile(profile, W).summary
    return tuple(summary.get(key) for key in ("mode", "mode_from", "fullgraph"))


def test_the_mode_as_far_as_a_trace_tells():
    """A break rules fullgraph out; CUDA graphs and templates come of some modes only."""
    assert mode(make(**BROKEN)) == ("unknown", None, "no")
    whole = {**BROKEN, "host": [region(0, 100, "0/0"), graph(10, 20)]}
    assert mode(make(**whole)) == ("unknown", None, None)
    launched = [call(12, 13, 1, name="cudaGraphLaunch"), *BROKEN["calls"][1:]]
    replayed = [{**BROKEN["ops"][0], "graph_node": 7}, *BROKEN["ops"][1:]]
    graphed = {**whole, "calls": launched, "ops": replayed}
    assert mode(make(**graphed)) == ("reduce-overhead or max-autotune", "trace", None)
    tuned = [{**replayed[0], "name": "triton_tem_fused_addmm_3"}, *replayed[1:]]
    assert mode(make(**{**graphed, "ops": tuned})) == ("max-autotune", "trace", None)
    plain = [{**BROKEN["ops"][0], "name": "triton_tem_fused_addmm_3"}, *BROKEN["ops"][1:]]
    assert mode(make(**{**whole, "ops": plain}))[0] == "max-autotune-no-cudagraphs"
    elsewhere = {**graphed, "calls": [call(112, 113, 1, name="cudaGraphLaunch"), *BROKEN["calls"][1:]]}
    assert mode(make(**elsewhere))[0] == "unknown"  # a graph of the program's own
    eager = {**BROKEN, "host": [host(0, 9, "aten::mm", kind="cpu_op")]}
    assert mode(make(**eager)) == (None, None, None)  # nothing is compiled: there is no mode


def test_the_mode_as_capture_run_heard_it(tmp_path):
    trace = DATA / "torch2.11_h200_whole.pt.trace.json.gz"
    (tmp_path / trace.name).write_bytes(trace.read_bytes())
    assert api.open(tmp_path, cache=False).compile().summary["mode"] == "unknown"
    asked = [
        {"backend": "inductor", "mode": "reduce-overhead", "dynamic": False, "fullgraph": True},
        {"backend": "inductor", "mode": "default", "dynamic": None, "fullgraph": True},
    ]
    manifest.write(tmp_path, {"scenario": {}, "captured": {"compiled_with": asked}})
    summary = api.open(tmp_path, cache=False).compile().summary
    assert (summary["mode"], summary["mode_from"]) == ("reduce-overhead, default", "manifest")
    assert (summary["backend"], summary["dynamic"], summary["fullgraph"]) == ("inductor", "no, automatic", "yes")
