"""How much a launch works on, by the templates in a kernel's name: elements of a block, and bytes of an element.

PyTorch's kernels say in their names how many elements a thread takes, which functor runs, and on which types. A name
that does not say has no extent: `sizes` then knows no more than that memory is not faster than it is.
"""

from __future__ import annotations

import re
from functools import cache

from msgspec import Struct

from stepscope.derive.work.roles import kernel
from stepscope.derive.work.rules import Role
from stepscope.model.demangle import demangle
from stepscope.model.first_match import first_of

#: nsys writes `(int)4`, `(unsigned long)2`; others `4`, `2ul`.
_NUMBER = r"(?:\([a-z ]+\))?(\d{1,9})(?:ul)?"
_VECTORIZED = re.compile(rf"vectorized_elementwise_kernel<{_NUMBER},")
_UNROLLED = re.compile(r"unrolled_elementwise_kernel<")
_PER_THREAD = re.compile(rf"[Aa]rray<char ?\*, ?{_NUMBER}>, ?{_NUMBER}")
_BLOCKED = re.compile(
    rf"(?:elementwise_kernel|elementwise_kernel_manual_unroll|index_elementwise_kernel"
    rf"|_scatter_gather_elementwise_kernel)<{_NUMBER}, ?{_NUMBER}"
)
_WARP_SOFTMAX = re.compile(rf"softmax_warp_(forward|backward)<([^,<>]+), ?([^,<>]+), ?[^,<>]+, ?{_NUMBER}")
#: A softmax over long rows has a block for each row: its grid does not say how long they are, its types what it moves.
_LONG_SOFTMAX = re.compile(rf"cunn_SoftMax(Forward|Backward)\w*<(?:{_NUMBER}, ?)?([^,<>]+), ?[^,<>]+, ?([^,<>]+),")
_ARRAY = re.compile(rf"[Aa]rray<char ?\*, ?{_NUMBER}>")
_LAYOUT = re.compile(r"(?:nchwToNhwc|nhwcToNchw)Kernel<([^,<>]+), ?([^,<>]+)")
_FOREACH = re.compile(rf"(?<=\w)Functor<([^,<>]+), ?{_NUMBER}, ?{_NUMBER}, ?{_NUMBER}>")
_FUSED_STEP = re.compile(rf"Fused(?:Adam|Sgd|Adagrad)MathFunctor<([^,<>]+), ?{_NUMBER}")
_NORM = re.compile(r"LpNormFunctor<([^,<>]+)")
_FUNCTOR3 = re.compile(r"\bBinaryFunctor<([^,<>]+), ?([^,<>]+), ?([^,<>]+)")
_FUNCTOR2 = re.compile(r"\b[AB]UnaryFunctor<([^,<>]+), ?([^,<>]+), ?([^,<>]+)")
_LAMBDA = re.compile(r"\[?\{?'?lambda'?\(([^()]*)\)")
#: Looking back, not `\w+`: that would read a long word again from each of its letters.
_FUNCTOR = re.compile(r"(?<=\w)Functor\w*<([^,<>]+)>")
#: A chunk of a tensor that one block of `multi_tensor_apply` takes.
_CHUNK = 65536
_TILE = 32 * 32
_BYTES = (
    (1, re.compile(r"float8|fp8|bool|char|int8|uint8", re.IGNORECASE)),
    (2, re.compile(r"bfloat16|half|short|int16", re.IGNORECASE)),
    (16, re.compile(r"complex<double>")),
    (8, re.compile(r"complex<float>|double|long|int64")),
    (4, re.compile(r"float|\bint\b|int32|unsigned")),
)


class Extent(Struct, frozen=True):
    """`per_block` elements of a block, or `per_thread` of each of its threads, or `per_row` of each row of threads; 0
    where the name does not say. `bytes`: read and written per element."""

    per_block: int = 0
    per_thread: int = 0
    per_row: int = 0
    bytes: float = 0.0
    #: vectors of four elements or less: versions of PyTorch differ in how many a thread takes (`sizes`)
    unsure: bool = False


@cache
def extent(name: str) -> Extent:
    """What the name says of sizes."""
    text = demangle(name)
    if match := _WARP_SOFTMAX.search(text):
        return _softmax(match)
    if match := _LONG_SOFTMAX.search(text):
        forward = match[1] == "Forward"
        return Extent(bytes=_size(match[3]) + (1 if forward else 2) * _size(match[4]))
    if match := _LAYOUT.search(text):
        return Extent(per_block=_TILE, bytes=_size(match[1]) + _size(match[2]))
    if "multi_tensor_apply" in text:
        return Extent(per_block=_CHUNK, bytes=_of_list(text))
    moved = _moved(text)
    if match := _VECTORIZED.search(text):
        width = int(match[1])
        return Extent(per_thread=max(width, 8), bytes=moved, unsure=width <= 4)
    if _UNROLLED.search(text):
        per_thread = _PER_THREAD.search(text)
        return Extent(per_thread=int(per_thread[2]) if per_thread else 4, bytes=moved)
    if match := _BLOCKED.search(text):
        return Extent(per_block=int(match[1]) * int(match[2]), bytes=moved)
    return Extent()


def _softmax(match: re.Match[str]) -> Extent:
    """A row of threads is a warp: it takes one row of the tensor, or two short ones, up to the next power of two."""
    log2 = int(match[4])
    rows = 2 if log2 <= 7 else 1
    tensors = 2 if match[1] == "forward" else 3
    size = _size(match[2])
    return Extent(per_row=rows << log2, bytes=_size(match[3]) + (tensors - 1) * size)


def _of_list(text: str) -> float:
    """A step of an optimizer reads a parameter, its gradient and its states, and writes all but the gradient."""
    if match := _FUSED_STEP.search(text):
        return _size(match[1]) * (2 * int(match[2]) - 1)
    if match := _NORM.search(text):
        return float(_size(match[1]))
    if match := _FOREACH.search(text):
        return _size(match[1]) * (int(match[3]) + 1)
    return 0.0


def _moved(text: str) -> float:
    """Bytes per element of an elementwise kernel: of what its functor takes and gives."""
    role = kernel(text).role
    if role is Role.CAST:
        return 6.0 if "loat8" not in text else 3.0
    if role is Role.FILL:
        match = _FUNCTOR.search(text)
        return float(_size(match[1]) if match else 4)
    if match := _FUNCTOR3.search(text):
        return float(sum(_size(part) for part in match.groups()))
    if match := _FUNCTOR2.search(text):
        return float(_size(match[1]) + _size(match[3]))
    # The lambda of a launcher takes an index: an `int`, and nothing else.
    taken = [args.split(",") for args in _LAMBDA.findall(text) if args.strip() != "int" and _size(args)]
    if taken:
        return float(sum(_size(part) for part in taken[-1]) + _size(taken[-1][0]))
    tensors = _ARRAY.search(text)
    typed = _FUNCTOR.search(text)
    size = _size(typed[1]) if typed else 4
    return float(size * (int(tensors[1]) if tensors else 3 if "Functor_add" in text else 2))


def _size(type_: str) -> int:
    return first_of(type_, _BYTES) or 0
