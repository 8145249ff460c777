"""Events decoded by their category: fields that it does not have are not looked for, and flows are skipped.

A chunk in which every event is of a category and phase that stands here is decoded this way. Any other (old categories,
metadata, damage) is left to the general decoder, which takes everything.
"""

from __future__ import annotations

import functools
import math
import operator
from typing import Any, Literal

import msgspec
from msgspec import Struct, structs

from stepscope.sources.kineto.categories import Kind
from stepscope.sources.kineto.events import Args

_CALL_ARGS = ("external", "correlation", "rank")
_KERNEL_ARGS = (
    *("external", "device", "context", "stream", "correlation", "registers", "shared", "grid", "block", "occupancy"),
    *(
        "graph_node",
        "op_id",
        "waits",
        "name",
        "autograd_phase",
        "stack",
        "collective",
        "in_elements",
        "out_elements",
        "group_size",
        "dtype",
        "group",
    ),
    *("group_desc", "group_ranks", "comm_seq", "group_start", "group_stride", "own_rank", "src_rank", "dst_rank"),
    "rank",
)


class _Complete(Struct, gc=False):
    """A complete event; fields in the order in which Kineto writes them."""

    ph: Literal["X"]
    name: str = ""
    pid: Any = None
    tid: Any = None
    ts: float = math.nan
    dur: float = math.nan


def _args_of(name: str, fields: tuple[str, ...]) -> type[Struct]:
    """`Args` with some of its fields; the others are what they are where an event lacks them."""
    all_of_them = structs.fields(Args)
    kept = [
        (f.name, f.type, msgspec.field(name=f.encode_name, default=f.default)) for f in all_of_them if f.name in fields
    ]
    absent = {f.name: f.default for f in all_of_them if f.name not in fields}
    return msgspec.defstruct(name, kept, gc=False, namespace=absent)


def _lasting(category: str, args: type[Struct] = Args) -> type[Struct]:
    fields = [("args", args | None, None)]
    return msgspec.defstruct(category, fields, bases=(_Complete,), tag_field="cat", tag=category, gc=False)


def _ignored(category: str, phases: Any) -> type[Struct]:
    return msgspec.defstruct(category, [("ph", phases)], tag_field="cat", tag=category, gc=False)


_CallArgs, _KernelArgs = _args_of("CallArgs", _CALL_ARGS), _args_of("KernelArgs", _KERNEL_ARGS)
#: Kind of an event by its type.
KINDS: dict[type, int] = {
    _lasting("kernel", _KernelArgs): Kind.KERNEL,
    _lasting("gpu_memcpy"): Kind.MEMCPY,
    _lasting("gpu_memset"): Kind.MEMSET,
    _lasting("cuda_runtime", _CallArgs): Kind.RUNTIME,
    _lasting("cuda_driver", _CallArgs): Kind.DRIVER,
    _lasting("user_annotation"): Kind.RANGE,
    _lasting("cpu_op"): Kind.CPU_OP,
    _lasting("python_function"): Kind.PYTHON,
    _lasting("cuda_sync"): Kind.SYNC,
    _lasting("cuda_event"): Kind.EVENT_RECORD,
    _ignored("gpu_user_annotation", Literal["X"]): Kind.IGNORED,
    **{_ignored(flow, Literal["s", "t", "f"]): Kind.IGNORED for flow in ("ac2g", "fwdbwd", "async_cpu_to_gpu")},
}
DECODER: msgspec.json.Decoder[list[Any]] = msgspec.json.Decoder(list[functools.reduce(operator.or_, KINDS)])  # type: ignore[misc]
