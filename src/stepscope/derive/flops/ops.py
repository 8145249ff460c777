"""Torch ops and their FLOPs, from the shapes of their arguments: the one place that knows which ops are work.

Products, convolutions and attention, as MFU counts them; element-wise work, norms and softmax are not counted. An op
here may lie within another (`aten::linear` calls `aten::addmm`): the innermost counts, whose types are those that were
computed with. `torch.utils.flop_counter` counts the same, and is the reference of the tests.

Attention is forward two products, backward four, and the scores once more; where the arguments of each of its ops stand
is data. What a causal mask hides is counted exactly to a diagonal that is half visible: half of all where queries and
keys are as many.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

from stepscope.derive.flops.count import ATTENTION, CONVOLUTION, GROUPED, PRODUCT, Arguments, Count, Shape, Unclear


@dataclass(frozen=True)
class Attention:
    """An op: where its query stands (key and value follow), and what says that a mask is causal.

    `heads_first`: shapes are [batch, heads, length, width], else [batch, length, heads, width]. `lengths` is an
    argument that is only given where sequences of different lengths are packed. `ends`: the mask ends with the last key
    (as in FlashAttention), not begins with the first (as in torch).
    """

    query: int
    causal: int
    heads_first: bool = True
    lengths: int | None = None
    ends: bool = False
    backward: bool = False

    def __call__(self, args: Arguments) -> Count:
        if self.lengths is not None and args.given(self.lengths):
            raise Unclear("the lengths of packed sequences are not recorded")
        query, key, value = (args.shape(self.query + i, 4) for i in range(3))
        head, length = (1, 2) if self.heads_first else (2, 1)
        heads, all_pairs = query[0] * query[head], 2 * query[length] * key[length]
        seen = _seen_twice(query[length], key[length], self.ends) if self._masked(args) else all_pairs
        # Pairs are twice as many as there are, so that half of them is whole; and so a product's two FLOPs are one.
        scores, values = heads * query[-1], heads * value[-1]
        if not self.backward:
            return Count(ATTENTION, all_pairs * (scores + values), seen * (scores + values), pass_="forward")
        both = 2 * (scores + values)
        return Count(ATTENTION, all_pairs * both, seen * both, all_pairs * scores, seen * scores, "backward")

    def _masked(self, args: Arguments) -> bool:
        """A flag, or the number of a kind of mask: 0 is none."""
        causal = args.value(self.causal)
        return causal is not None and causal not in ("False", "0")


def _seen_twice(queries: int, keys: int, ends: bool) -> int:
    """Twice the pairs that a causal mask leaves, the diagonal counted half."""
    least = min(queries, keys)
    beyond = (keys - least) * queries if ends else (queries - least) * keys
    return least * least + 2 * beyond


def _unpacked(_: Arguments) -> Count:
    raise Unclear("the lengths of packed sequences are not recorded")


_SDPA = "aten::_scaled_dot_product_"
#: Positions by the signatures of torch 2.1 to 2.13 (native_functions.yaml) and flash-attn 2.7.
ATTENTION_OPS: dict[str, Callable[[Arguments], Count]] = {
    f"{_SDPA}flash_attention": Attention(0, 4),
    f"{_SDPA}flash_attention_for_cpu": Attention(0, 4),
    f"{_SDPA}efficient_attention": Attention(0, 6),
    f"{_SDPA}cudnn_attention": Attention(0, 6),
    f"{_SDPA}fused_attention_overrideable": Attention(0, 5),
    "aten::_flash_attention_forward": Attention(0, 8, heads_first=False, lengths=3),
    "aten::_efficient_attention_forward": Attention(0, 9, heads_first=False, lengths=4),
    "aten::_cudnn_attention_forward": Attention(0, 10, lengths=4),
    f"{_SDPA}flash_attention_backward": Attention(1, 11, backward=True),
    f"{_SDPA}flash_attention_for_cpu_backward": Attention(1, 7, backward=True),
    f"{_SDPA}efficient_attention_backward": Attention(1, 11, backward=True),
    f"{_SDPA}cudnn_attention_backward": Attention(1, 14, backward=True),
    f"{_SDPA}fused_attention_overrideable_backward": Attention(1, 13, backward=True),
    "aten::_flash_attention_backward": Attention(1, 11, heads_first=False, lengths=6, backward=True),
    "aten::_efficient_attention_backward": Attention(1, 14, heads_first=False, lengths=6, backward=True),
    "aten::_cudnn_attention_backward": Attention(1, 14, lengths=9, backward=True),
    "flash_attn::_flash_attn_forward": Attention(0, 5, heads_first=False, ends=True),
    "flash_attn::_flash_attn_backward": Attention(1, 11, heads_first=False, ends=True, backward=True),
    "flash_attn::_flash_attn_varlen_forward": _unpacked,
    "flash_attn::_flash_attn_varlen_backward": _unpacked,
}


Counter = Callable[[Arguments], Count]


def count(name: str, arguments: Arguments) -> Count | None:
    """The FLOPs of an op; None for one that is not such work. `Unclear` where its arguments do not say."""
    counter = OPS.get(name) or (_template if _TEMPLATE.match(name) else None)
    return counter(arguments) if counter else None


def is_work(name: str) -> bool:
    """Whether an op of this name has FLOPs that count."""
    return name in OPS or _TEMPLATE.match(name) is not None


def _product(a: int, b: int) -> Counter:
    """[…, m, k] times […, k, n]; vectors too. `a` and `b` are their places among the arguments."""

    def counter(args: Arguments) -> Count:
        left, right = args.shape(a, 1, 2, 3), args.shape(b, 1, 2, 3)
        inner = right[-2] if len(right) > 1 else right[0]
        if left[-1] != inner:
            raise Unclear("inner dimensions differ")
        return _flops(PRODUCT, math.prod(left) * (right[-1] if len(right) > 1 else 1) * _packed(args, a))

    return counter


def _linear(x: int, weight: int) -> Counter:
    """[…, k] times the transpose of [n, k]."""

    def counter(args: Arguments) -> Count:
        left, right = args.shape(x), args.shape(weight, 1, 2)
        if left[-1] != right[-1]:
            raise Unclear("inner dimensions differ")
        return _flops(PRODUCT, math.prod(left) * (right[0] if len(right) > 1 else 1) * _packed(args, x))

    return counter


def _grouped(args: Arguments) -> Count:
    """Groups of rows (or columns) of one matrix, each with a matrix of its own: every row is in one group."""
    left, right = args.shape(0, 2, 3), args.shape(1, 2, 3)
    if left[-1] != right[-2]:
        raise Unclear("inner dimensions differ")
    # [rows, k] x [groups, k, n] · [groups, m, k] x [k, columns] · [m, rows] x [rows, n] · a batch of products
    return _flops(GROUPED, math.prod(left) // (left[0] if len(left) > len(right) else 1) * right[-1] * _packed(args, 0))


def _convolution(args: Arguments) -> Count:
    """(input, weight, bias, stride, padding, dilation, transposed, …): each place of the output (transposed: of the
    input) meets every weight once."""
    image, weight, transposed = args.shape(0, 3, 4, 5), args.shape(1, 3, 4, 5), args.flag(6)
    spatial = len(weight) - 2
    if len(image) != len(weight):
        raise Unclear("image and weight have different dimensions")
    stride, padding, dilation = (_each(args.numbers(at), spatial) for at in (3, 4, 5))
    if transposed is None or stride is None or padding is None or dilation is None:
        raise Unclear("stride, padding and dilation were not recorded")
    places = image[2:]
    if not transposed:
        kernel = zip(image[2:], weight[2:], stride, padding, dilation, strict=True)
        places = [(n + 2 * p - d * (k - 1) - 1) // max(s, 1) + 1 for n, k, s, p, d in kernel]
    if min(places) < 0 or min(stride) < 1:
        raise Unclear("stride, padding or dilation cannot be")
    return _flops(CONVOLUTION, image[0] * math.prod(places) * math.prod(weight), "forward")


def _convolution_backward(args: Arguments) -> Count:
    """(grad of output, input, weight, bias sizes, …, output mask): as much again for each gradient that is wanted."""
    output, image, weight, transposed = args.shape(0, 3, 4, 5), args.shape(1), args.shape(2), args.flag(7)
    wanted = re.findall(r"True|False", args.value(10) or "")
    if transposed is None or len(wanted) != 3:
        raise Unclear("which gradients were wanted was not recorded")
    once = image[0] * math.prod((image if transposed else output)[2:]) * math.prod(weight)
    return _flops(CONVOLUTION, once * wanted[:2].count("True"), "backward")


def _each(numbers: list[int] | None, dimensions: int) -> Shape | None:
    """One number for all dimensions, or one for each."""
    if numbers is None or len(numbers) not in (1, dimensions):
        return None
    return numbers * (dimensions // len(numbers))


#: Products that Inductor made a kernel of, with what surrounds them.
_TEMPLATE = re.compile(r"^triton_tem_fused_\w*?(addmm|baddbmm|bmm|mm)(_|$)")


def _template(args: Arguments) -> Count:
    """(a, b, …, result) of a Triton template: a and b may be stored either way round, so m·k·n is found from the sizes
    of all three: (m·k)(k·n)(m·n) is its square. What does not come out is not guessed at."""
    tensors = [args.shape(i) for i in range(len(args.shapes)) if args.given(i)]
    if len(tensors) < 3:
        raise Unclear("a shape is missing")
    a, b, result = tensors[0], tensors[1], tensors[-1]
    if not len(a) == len(b) == len(result) or len(a) not in (2, 3) or (len(a) == 3 and a[0] != b[0]):
        raise Unclear("its arguments are not those of one product")
    batch = a[0] if len(a) == 3 else 1
    sides = [set(shape[-2:]) for shape in (a, b, result)]
    volume = math.prod(math.prod(shape[-2:]) for shape in (a, b, result))
    root = math.isqrt(volume)
    if root * root != volume or not (sides[0] & sides[1] and sides[0] & sides[2] and sides[1] & sides[2]):
        raise Unclear("its arguments are not those of one product")
    return _flops(PRODUCT, batch * root)


def _packed(args: Arguments, index: int) -> int:
    """Numbers of four bits lie two in an element."""
    return 2 if "x2" in args.type(index) and "loat4" in args.type(index) else 1


def _flops(kind: str, fused: int, pass_: str | None = None) -> Count:
    """So many multiplications with an addition each."""
    return Count(kind, 2 * fused, 2 * fused, pass_=pass_)


OPS: dict[str, Counter] = {
    "aten::mm": _product(0, 1),
    "aten::bmm": _product(0, 1),
    "aten::mv": _product(0, 1),
    "aten::_int_mm": _product(0, 1),
    "aten::_scaled_mm": _product(0, 1),
    "aten::_scaled_mm_v2": _product(0, 1),
    "aten::addmm": _product(1, 2),
    "aten::_addmm_activation": _product(1, 2),
    "aten::addmv": _product(1, 2),
    "aten::baddbmm": _product(1, 2),
    "aten::addbmm": _product(1, 2),
    "aten::linear": _linear(0, 1),
    "aten::mkldnn_linear": _linear(0, 1),
    "mkldnn::_linear_pointwise": _linear(0, 1),
    "fbgemm::f8f8bf16": _linear(0, 1),
    "fbgemm::f8f8bf16_rowwise": _linear(0, 1),
    "fbgemm::f8f8bf16_blockwise": _linear(0, 1),
    "aten::_grouped_mm": _grouped,
    "aten::_scaled_grouped_mm": _grouped,
    "aten::_scaled_grouped_mm_v2": _grouped,
    "aten::convolution": _convolution,
    "aten::_convolution": _convolution,
    "aten::convolution_overrideable": _convolution,
    "aten::convolution_backward": _convolution_backward,
    **ATTENTION_OPS,
}
