"""A script that runs one torch op or collective again, with the shapes and types that a trace has, and times it.

The op is the outermost of torch's own around the launch (`aten::linear`, not the library's call in it), so that it
exists on every device. Values of tensors are not in a trace: they are drawn at random, and what is an index lies within
the table that it looks into. Tensors are contiguous: their strides may not have been.
"""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from stepscope.derive.flops.count import Arguments
from stepscope.errors import CannotAnswer
from stepscope.model.capturing import capture_with
from stepscope.model.units import about

#: Types of tensors, as torch's profiler writes them, and torch's names for them.
_TYPES = {
    "float": "float32",
    "double": "float64",
    "c10::half": "float16",
    "c10::bfloat16": "bfloat16",
    "long int": "int64",
    "long": "int64",
    "int": "int32",
    "short int": "int16",
    "unsigned char": "uint8",
    "signed char": "int8",
    "bool": "bool",
    "c10::complex<float>": "complex64",
    "c10::complex<double>": "complex128",
    "c10::float8_e4m3fn": "float8_e4m3fn",
    "c10::float8_e5m2": "float8_e5m2",
}
_OF_PRECISION = {"bf16": "bfloat16", "fp16": "float16", "fp64": "float64", "tf32": "float32", "fp32": "float32"}
_NUMBERS = {"int64", "int32", "int16", "uint8", "int8"}
_NO_VALUES = "the values of its arguments were not recorded"
_SHAPES = capture_with("shapes") + "; of nsys only ops whose arguments are tensors can be run again"


class Roof(Struct, frozen=True):
    """What bounds a run of it: nanoseconds, and why, in words."""

    ns: float
    why: str


class Traced(Struct, frozen=True):
    """An op of a trace: what it was called with, how often and how long the GPU ran for it."""

    name: str
    kernel: str
    runs: int
    median_ns: int
    gpu: str | None = None
    shapes: str | None = None
    types: str | None = None
    values: str | None = None
    #: in which numbers it computes, where its arguments do not say
    precision: str | None = None
    roof: Roof | None = None


def script_of_op(op: Traced, trace: str) -> str:
    """The script for one of torch's ops."""
    arguments, assumed = _arguments(op)
    namespace, _, name = op.name.partition("::")
    lines = [
        *_head(op, trace, assumed),
        "import time",
        "",
        "import torch",
        "",
        'device = "cuda" if torch.cuda.is_available() else "cpu"',
        *_tensors(arguments),
        "args = [",
        *(f"    {argument}," for argument in arguments),
        "]",
        "",
        "",
        "def run():  # the overload that takes these arguments",
        f"    for op in (getattr(torch.ops.{namespace}.{name}, o) for o in torch.ops.{namespace}.{name}.overloads()):",
        "        parts = op._schema.arguments",
        "        plain = [a for p, a in zip(parts, args) if not p.kwarg_only]",
        "        named = {p.name: a for p, a in zip(parts, args) if p.kwarg_only and a is not None}",
        "        if len(parts) == len(args):",
        "            try:",
        "                op(*plain, **named)",
        "                return lambda: op(*plain, **named)",
        "            except (RuntimeError, TypeError, ValueError, NotImplementedError) as error:",
        '                print(f"{op}: {str(error).splitlines()[0]}")',
        f'    raise SystemExit("this torch cannot run {op.name} with these arguments on " + device)',
        "",
        "",
        "run = run()",
        *_timing(),
    ]
    return "\n".join([*lines, *_said(op)]) + "\n"


def script_of_collective(op: Traced, trace: str, call: tuple[str, str], elements: int, dtype: str, ranks: int) -> str:
    """The script for a collective; `call` is what makes the buffers, and what is run."""
    buffers, called = call
    lines = [
        *_head(op, trace, f" Run it on {ranks} ranks: torchrun --nproc-per-node={ranks} FILE."),
        "import os",
        "import time",
        "",
        "import torch",
        "import torch.distributed as dist",
        "",
        'device = "cuda" if torch.cuda.is_available() else "cpu"',
        'if device == "cuda":',
        '    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))',
        'alone = {} if "RANK" in os.environ else {"store": dist.HashStore(), "rank": 0, "world_size": 1}',
        'dist.init_process_group("nccl" if device == "cuda" else "gloo", **alone)',
        f"n, elements, dtype = dist.get_world_size(), {elements}, torch.{dtype}",
        *buffers.splitlines(),
        "",
        "",
        "def run():",
        f"    {called}",
        *_timing(everywhere=True),
    ]
    size = f'print(f"ranks: {{n}} (in the trace {ranks}), {{elements}} elements of {{dtype}}")'
    end = [f"    {line}" for line in [size, *_said(op)]]
    return "\n".join([*lines, "if dist.get_rank() == 0:", *end, "dist.destroy_process_group()"]) + "\n"


def _head(op: Traced, trace: str, more: str) -> list[str]:
    kernel = f" (kernel {op.kernel[:60]})" if op.kernel else ""
    return [
        f'"""Runs {op.name} again as in {trace}{kernel}.',
        "",
        f"Made by stepscope source --script.{more}",
        '"""',
        "",
    ]


def _timing(*, everywhere: bool = False) -> list[str]:
    """Some calls to warm up, then twenty, and the time of one.

    Launching a short kernel takes longer than the kernel does. So the GPU first sleeps while the host launches all
    runs: what its own events time is the kernels, one after the other, as in a trace.
    """
    return [
        "",
        "",
        'if device == "cpu":',
        '    print("no GPU here: on the CPU, in float32, whose time says nothing of a GPU\'s")',
        'wait = torch.cuda.synchronize if device == "cuda" else lambda: None',
        "for count in (3, 20):  # the first to warm up",
        *(["    dist.all_reduce(torch.zeros(1, device=device))  # all begin together"] if everywhere else []),
        "    wait()",
        '    if device == "cuda":  # the GPU sleeps for some 10 ms, while all runs are launched',
        "        torch.cuda._sleep(20_000_000)",
        "        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))",
        "        first.record()",
        "    began = time.perf_counter()",
        "    for _ in range(count):",
        "        run()",
        "    launched = time.perf_counter() - began",
        '    if device == "cuda":',
        "        last.record()",
        "    wait()",
        "us = host = 1e6 * launched / count",
        'if device == "cuda":',
        "    us = 1e3 * first.elapsed_time(last) / count",
    ]


def _said(op: Traced) -> list[str]:
    """What a run takes, beside the trace and the roof; the roof of a GPU is none of the CPU's."""
    where = f" on {op.gpu}" if op.gpu else ""
    lines = [
        f'print(f"{{us:.1f}} us a run; in the trace {about(op.median_ns)}{where} (median of {op.runs})")',
        'if device == "cuda" and host > us:',
        '    print(f"calling it takes the host {host:.1f} us: longer than it runs")',
    ]
    if op.roof is None:
        return [*lines, 'print("its roof is not known")']
    return [
        *lines,
        f'share = f" ({{100 * {op.roof.ns / 1e3:.3f} / us:.0f}} % of it)" if device == "cuda" else ""',
        f'print(f"roof: {op.roof.ns / 1e3:.1f} us, {op.roof.why}{{share}}")',
        f'if device == "cuda" and us < {op.roof.ns / 1e3:.3f}:',
        '    print("faster than that: run again and again, its data stays in the cache of the GPU")',
    ]


def _tensors(arguments: list[str]) -> list[str]:
    """The functions that the arguments call, as far as they do."""
    text, lines = " ".join(arguments), []
    if "floats(" in text:
        lines += [
            "",
            "",
            "def floats(dtype, *shape):",
            '    return torch.randn(shape, device=device).to(dtype if device == "cuda" else torch.float32)',
        ]
    if "numbers(" in text:
        lines += [
            "",
            "",
            "def numbers(dtype, below, *shape):",
            "    return torch.randint(0, below, shape, device=device).to(dtype)",
        ]
    return [*lines, "", ""] if lines else lines


def _arguments(op: Traced) -> tuple[list[str], str]:
    """Each argument as an expression; and what had to be assumed."""
    args = Arguments.parsed(op.shapes, op.types, op.values)
    if not args.shapes:
        raise CannotAnswer(f"the trace has no shapes of {op.name}: nothing says what to run", _SHAPES)
    typed = bool(args.types)
    guessed = _OF_PRECISION.get(op.precision or "", "float32")
    usual = next((_TYPES[t.lower()] for t in args.types if isinstance(t, str) and t.lower() in _TYPES), guessed)
    below = _table(op.name, args)
    made, assumed = [], set() if typed else {f"{usual} is assumed: types were not recorded"}
    for at, shape in enumerate(args.shapes):
        kind, value = args.type(at), args.value(at)
        if kind == "TensorList" or _nested(shape):
            if not shape or not _nested(shape):
                raise CannotAnswer(f"the trace does not say which tensors {op.name} takes", _SHAPES)
            made.append("[" + ", ".join(_tensor(one, usual, below) for one in shape) + "]")
            assumed |= {f"{usual} is assumed for tensors of a list"}
        elif kind.lower() in _TYPES or (not typed and isinstance(shape, list) and shape):
            made.append(_tensor(shape, _TYPES.get(kind.lower(), usual), below))
        elif value is not None:
            made.append(_literal(value))
        elif kind in ("", "None") and typed:
            made.append("None")
        else:
            raise CannotAnswer(f"{op.name}: {_NO_VALUES}", _SHAPES)
    return made, "".join(f" {text}." for text in sorted(assumed))


def _nested(shape: Any) -> bool:
    return isinstance(shape, list) and bool(shape) and all(isinstance(one, list) for one in shape)


def _tensor(shape: list[int], dtype: str, below: int) -> str:
    sizes = "".join(f", {n}" for n in shape)
    if dtype == "bool":
        return f"numbers(torch.bool, 2{sizes})"
    return f"numbers(torch.{dtype}, {below}{sizes})" if dtype in _NUMBERS else f"floats(torch.{dtype}{sizes})"


def _table(name: str, args: Arguments) -> int:
    """What indices must lie below: the rows of an embedding's table, the classes of a loss, else the least size."""
    tensors = [s for s in args.shapes if isinstance(s, list) and s and all(isinstance(n, int) for n in s)]
    if not tensors:
        return 2
    if name.endswith("::embedding"):
        return max(int(tensors[0][0]), 1)
    if "nll_loss" in name or "cross_entropy" in name:
        return max(int(tensors[0][1 if len(tensors[0]) > 1 else 0]), 1)
    return max(min(math.prod(s[:1]) for s in tensors), 1)


def _literal(value: str) -> str:
    """A value as Python writes it."""
    try:
        return repr(ast.literal_eval(value))
    except (ValueError, SyntaxError, RecursionError):
        return f'float("{value}")' if value.strip("+-") in ("inf", "nan") else json.dumps(value.strip('"'))


#: By operation: what makes its buffers of `elements` on each rank, and what is run.
COLLECTIVES: Mapping[str, tuple[str, str]] = {
    "all_reduce": ("data = torch.ones(elements, dtype=dtype, device=device)", "dist.all_reduce(data)"),
    "broadcast": ("data = torch.ones(elements, dtype=dtype, device=device)", "dist.broadcast(data, 0)"),
    "reduce": ("data = torch.ones(elements, dtype=dtype, device=device)", "dist.reduce(data, 0)"),
    "all_gather": (
        "part = torch.ones(elements // n, dtype=dtype, device=device)\n"
        "data = torch.ones(elements // n * n, dtype=dtype, device=device)",
        "dist.all_gather_into_tensor(data, part)",
    ),
    "reduce_scatter": (
        "part = torch.ones(elements // n, dtype=dtype, device=device)\n"
        "data = torch.ones(elements // n * n, dtype=dtype, device=device)",
        "dist.reduce_scatter_tensor(part, data)",
    ),
    "all_to_all": (
        "data = torch.ones(elements // n * n, dtype=dtype, device=device)\nreceived = torch.empty_like(data)",
        "dist.all_to_all_single(received, data)",
    ),
}
