"""FLOPs of attention: forward two products, backward four, and the scores once more.

Where the arguments of each op stand is data. What a causal mask hides is counted exactly to a diagonal that is half
visible: half of all where queries and keys are as many.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from stepscope.derive.flops.count import ATTENTION, Arguments, Count, Unclear


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
