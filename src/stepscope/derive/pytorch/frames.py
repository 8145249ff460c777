"""What a stack frame is: the user's code, or a library's; and what a stack says of the op and the pass.

Kineto writes `file(line): function`, with the file as `sys.path` shortens it, so a library's begins with its package;
nsys gives whole paths. Modules that are neither torch's nor the standard library's count as the user's: `transformers`
says better where one is than `torch/nn/modules/linear.py` does.
"""

from __future__ import annotations

import re
import sys

import polars as pl
from msgspec import Struct

from stepscope.intervals.arrays import I64, Mask

#: Up to here a path says where things are installed, not what they are.
_INSTALLED = r"^.*/(?:site|dist)-packages/|^.*/lib/python3(?:\.\d+)?/"
#: A torch that was built from source lies where it was built: /opt/pytorch/torch/nn/functional.py.
_BUILT = r"^.*/(torch/(?:nn|optim|autograd|utils|distributed|cuda|amp|_\w+)(?:/|\.py))"
_TORCH = r"^(?:torch|torchgen|functorch|triton|torch_tensorrt)/|^/?\S*torchinductor_"
#: What `capture run` wraps a program's optimizers and modules in; cut paths too (examples/moe_reference/scrub.py).
_OURS = r"(?:^|/)stepscope/(?:hooks|annotate|integrations|…)/"
_STDLIB = "|".join(sorted(re.escape(m) for m in sys.stdlib_module_names if not m.startswith("__")))
_LIBRARY = rf"{_TORCH}|{_OURS}|^(?:{_STDLIB})(?:/|\.py\b)|^<|^nn\.Module: |^$"
#: An nn.Module called as one: a frame of Kineto's beside the function's own.
MODULE = r"^nn\.Module: (.+)$"
#: torch's optimizers, and what wraps them.
OPTIMIZER = r"^torch/optim/|^torch/_dynamo/.*optim"
#: Modules of native frames that belong to no user.
_NATIVE_LIBRARY = (
    r"(?i)libcupti|libcuda|libcudart|libcublas|libcudnn|libnccl|libtorch|libc10|libtriton|nsys|ToolsInjection"
    r"|/libc[.-]|/libpthread|/ld-|libstdc\+\+|libgcc|libm\.so|/python[\d.]*$|libpython|\[vdso\]|\[kernel|^\[|^$"
)
_OP = r"^at::_ops::(\w+?)::call\b"
_NODE = r"^torch::autograd::(?:generated::)?(\w+?(?:Backward\d*|AccumulateGrad))::apply\b"
_ENGINE = r"^torch::autograd::Engine::evaluate_function\b"


PHASES = ("forward", "backward", "optimizer", "other")
FORWARD, BACKWARD, OPTIMIZE, OTHER = range(len(PHASES))


class Callers(Struct, frozen=True):
    """For each op asked about, who launched it; null where the trace does not say."""

    frame: pl.Series  # the innermost frame of the user's code (of any code, with `full`): `file(line): function`
    module: pl.Series  # the innermost nn.Module
    op: pl.Series  # the outermost torch op, or the backward node
    phase: I64
    credited: Mask  # backward, by the forward op that made it
    stack: pl.Series | None  # all frames, outermost first, joined by `;`
    inferred: Mask  # the frame is of stacks that were taken near the launch, not at it


def relative(files: pl.Series) -> pl.Series:
    """Paths without the place where packages are installed."""
    return files.str.replace(_INSTALLED, "").str.replace(_BUILT, "$1")


def is_user(frames: pl.Series) -> Mask:
    """Whether `file(line): function` (or a relative file) is the user's code."""
    return (~frames.str.contains(_LIBRARY)).fill_null(False).to_numpy()


def is_user_native(modules: pl.Series) -> Mask:
    return (~modules.str.contains(_NATIVE_LIBRARY)).fill_null(False).to_numpy()


def native_op(symbols: pl.Series) -> pl.Series:
    """The torch op or autograd node that a C++ symbol is, as torch.profiler calls it; null for others."""
    op = symbols.str.extract(_OP)
    return pl.select(pl.coalesce(symbols.str.extract(_NODE), "aten::" + op)).to_series()


def is_engine(symbols: pl.Series) -> Mask:
    """Whether the autograd engine is running a backward node here."""
    return symbols.str.contains(_ENGINE).fill_null(False).to_numpy()
