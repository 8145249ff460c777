"""`source --script`: the script that is written runs, on the CPU where there is no GPU, and says what the trace had."""

from __future__ import annotations

import ast
import json
import os
import subprocess
from pathlib import Path

import pytest

from stepscope import api
from stepscope.analyses.source.rerun import COLLECTIVES, Roof, Traced, script_of_collective, script_of_op
from stepscope.errors import BadInput, CannotAnswer

TRACE = Path(__file__).parents[1] / "data/pftrace/gpu.json.gz"


def written(trace: Path, asked: str, folder: Path) -> tuple[str, str]:
    """The script and the sentence about it."""
    file = folder / "rerun.py"
    result = api.open(trace, cache=False).source(by="op", whole=True, script=asked, script_to=file)
    assert result.summary["script"] == str(file)
    return file.read_text(), result.summary["statement"]


def arguments(script: str) -> list[str]:
    """The arguments, as written."""
    tree = ast.parse(script)
    values = [n.value for n in tree.body if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "args"]
    assert isinstance(values[0], ast.List)
    return [ast.unparse(element) for element in values[0].elts]


def test_arguments_are_those_of_the_trace() -> None:
    """By hand, from a record of torch.profiler: tensors with type and shape, values, and what was left out."""
    op = Traced(
        "aten::layer_norm", "layer_norm_kernel", 4, 12_000, "NVIDIA H200",
        shapes="[[8, 512, 1024], [], [1024], [], [], []]",
        types='["c10::BFloat16", "ScalarList", "c10::BFloat16", "", "Scalar", "Scalar"]',
        values='["", "[1024]", "", "", "1.0000000000000001e-05", "True"]',
        roof=Roof(3500.0, "16.8 MB at 4800 GB/s of H200"),
    )  # fmt: skip
    script = script_of_op(op, "run.json")
    assert arguments(script) == [
        "floats(torch.bfloat16, 8, 512, 1024)",
        "[1024]",
        "floats(torch.bfloat16, 1024)",
        "None",
        "1e-05",
        "True",
    ]
    assert "torch.ops.aten.layer_norm" in script and "in the trace 12 µs on NVIDIA H200 (median of 4)" in script
    assert "roof: 3.5 us, 16.8 MB at 4800 GB/s of H200" in script


@pytest.mark.parametrize(
    ("name", "shapes", "types", "values", "wanted"),
    (
        ("aten::embedding", "[[900, 64], [4, 7]]", '["float", "long int"]', None, "numbers(torch.int64, 900, 4, 7)"),
        ("aten::nll_loss", "[[32, 10], [32]]", '["float", "long int"]', None, "numbers(torch.int64, 10, 32)"),
        ("aten::cat", "[[[2, 3], [2, 4]], []]", '["TensorList", "Scalar"]', '["", "1"]', "1"),
        ("aten::where", "[[5], [5]]", '["bool", "float"]', None, "floats(torch.float32, 5)"),
        ("aten::mul", "[[5], []]", '["float", "double"]', None, "floats(torch.float64)"),
    ),
)
def test_kinds_of_arguments(name: str, shapes: str, types: str, values: str | None, wanted: str) -> None:
    script = script_of_op(Traced(name, "", 1, 1, shapes=shapes, types=types, values=values), "t")
    assert arguments(script)[-1] == wanted


@pytest.mark.parametrize(
    ("shapes", "types", "says"),
    (
        (None, None, "no shapes"),
        ("[[], []]", '["TensorList", ""]', "which tensors"),
        ("[[8, 3, 9, 9], []]", '["float", "GenericList"]', "values of its arguments"),
    ),
)
def test_what_the_trace_does_not_say_is_refused(shapes: str | None, types: str | None, says: str) -> None:
    with pytest.raises(CannotAnswer, match=says):
        script_of_op(Traced("aten::conv2d", "", 1, 1, shapes=shapes, types=types), "t")


def test_the_outermost_op_of_a_kernel_is_run(tmp_path: Path) -> None:
    """A layer of 16 by 16 of a batch of 4: `aten::linear`, not the `aten::addmm` in it."""
    script, said = written(TRACE, "gemm", tmp_path)
    assert " runs aten::linear, which launched " in said and "torch.ops.aten.linear" in script
    assert arguments(script) == [f"floats(torch.float32, {sizes})" for sizes in ("4, 16", "16, 16", "16")]
    assert said.endswith(f"python {tmp_path / 'rerun.py'}.")


def test_nothing_matches_and_nothing_is_overwritten(tmp_path: Path) -> None:
    with pytest.raises(CannotAnswer, match="no GPU op of the window matches"):
        written(TRACE, "no such kernel", tmp_path)
    assert not (tmp_path / "rerun.py").exists()
    with pytest.raises(BadInput, match="not a regular expression"):
        written(TRACE, "(", tmp_path)
    trace = tmp_path / "rerun.py"
    trace.write_bytes(TRACE.read_bytes())
    with pytest.raises(BadInput, match="is one of the inputs"):
        written(trace, "gemm", tmp_path)
    assert trace.read_bytes() == TRACE.read_bytes()


@pytest.mark.parametrize("kind", COLLECTIVES)
def test_scripts_of_collectives_are_python(kind: str) -> None:
    script = script_of_collective(Traced(kind, "", 1, 1), "t", COLLECTIVES[kind], 64, "float32", 2)
    ast.parse(script)
    assert "torchrun --nproc-per-node=2" in script


def go(python: str, *words: str) -> str:
    """What it printed."""
    env = {**{k: v for k, v in os.environ.items() if k != "PYTHONPATH"}, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([python, *words], capture_output=True, text=True, check=False, timeout=300, env=env)
    assert done.returncode == 0, done.stderr
    assert "no GPU here: on the CPU" in done.stdout and " us a run" in done.stdout
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("trace", "asked", "name"),
    (
        ("h200/train/eager.pt.trace.json.gz", "^aten::mm$", "aten::mm"),
        ("h200/train/eager.pt.trace.json.gz", "^aten::linear$", "aten::linear"),
        ("h200/train/eager.pt.trace.json.gz", "^aten::layer_norm$", "aten::layer_norm"),
        ("h200/train/eager.pt.trace.json.gz", "^aten::gelu_backward$", "aten::gelu_backward"),
        ("h200/train/eager.pt.trace.json.gz", "dot_product_attention$", "aten::scaled_dot_product_attention"),
        ("public/tl_mi300_resnet_ckpt.json.gz", "^aten::conv2d$", "aten::conv2d"),
    ),
)
def test_ops_of_real_traces_run(
    shared: Path, torch_python: str, tmp_path: Path, trace: str, asked: str, name: str
) -> None:
    script, said = written(shared / "traces" / trace, asked, tmp_path)
    assert f" runs {name}," in said
    printed = go(torch_python, str(tmp_path / "rerun.py"))
    assert "roof: " in printed and "in the trace " in printed and " us, " in printed
    assert len(script.splitlines()) < 75


@pytest.mark.slow
def test_a_collective_of_a_real_trace_runs_on_two_ranks(shared: Path, torch_python: str, tmp_path: Path) -> None:
    """`a100_nccl_metadata_world2`: an all-reduce of 8,196,000 bytes of float32, by gloo here."""
    trace = shared / "traces/public/a100_nccl_metadata_world2.json.gz"
    _, said = written(trace, "AllReduce", tmp_path)
    assert " runs all_reduce of 8,196,000 bytes among 2 ranks again" in said
    words = ("-m", "torch.distributed.run", "--nproc-per-node=2", "--master-port=29673", f"--log-dir={tmp_path}")
    printed = go(torch_python, *words, str(tmp_path / "rerun.py"))
    assert "ranks: 2 (in the trace 2), 2049000 elements of torch.float32" in printed
    assert "8.196 MB over the links of A100" in printed


def test_what_copies_only_where_it_must_is_not_run_but_the_copy_in_it(tmp_path: Path) -> None:
    """`contiguous` of a tensor that is made anew, contiguous, launches nothing: its time would say nothing."""
    shapes = {"Input Dims": [[8, 64], []], "Input type": ["float", "Scalar"], "Concrete Inputs": ["", "0"]}
    copy = {"Input Dims": [[8, 64], [8, 64], []], "Input type": ["float", "float", "Scalar"]}
    nested = [("contiguous", 10, 90, shapes), ("clone", 20, 70, shapes), ("copy_", 30, 50, copy)]
    events = [
        {"ph": "X", "cat": "cpu_op", "name": f"aten::{name}", "pid": 1, "tid": 1, "ts": at, "dur": dur, "args": args}
        for name, at, dur, args in nested
    ]
    shared = {"ph": "X", "pid": 1, "tid": 1}
    events.append(
        shared | {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 40, "dur": 5, "args": {"correlation": 7}}
    )
    gpu = {"correlation": 7, "stream": 7, "device": 0}
    events.append(
        {"ph": "X", "cat": "kernel", "name": "copy_kernel", "pid": 0, "tid": 7, "ts": 60, "dur": 9, "args": gpu}
    )
    file = tmp_path / "trace.json"
    properties = [{"id": 0, "name": "NVIDIA H200"}]
    file.write_text(json.dumps({"schemaVersion": 1, "deviceProperties": properties, "traceEvents": events}))
    script, _ = written(file, "copy_kernel", tmp_path)
    assert script.startswith('"""Runs aten::clone again')
    with pytest.raises(CannotAnswer, match="launches nothing on tensors made anew") as refused:
        written(file, "aten::contiguous", tmp_path / "again")
    assert refused.value.hint == "name what it calls: aten::clone"
