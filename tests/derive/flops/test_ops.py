"""FLOPs of every op, counted by hand: a product of [m, k] and [k, n] is 2·m·k·n."""

from __future__ import annotations

import json
import re
import subprocess

import pytest

from stepscope.derive.flops.count import Arguments, Count, Unclear
from stepscope.derive.flops.ops import OPS, count

BF16, FP8, FP4 = "c10::BFloat16", "c10::Float8_e4m3fn", "c10::Float4_e2m1fn_x2"


def counted(name: str, *shapes: list[int], values: dict[int, str] | None = None, type_: str = BF16) -> Count | None:
    """The op with arguments of these shapes, and values at their places."""
    written = ["" for _ in range(max([len(shapes), *(i + 1 for i in values or {})]))]
    for index, value in (values or {}).items():
        written[index] = value
    types = [type_ if shape else "" for shape in shapes]
    return count(name, Arguments.parsed(json.dumps(list(shapes)), json.dumps(types), json.dumps(written)))


@pytest.mark.parametrize(
    ("name", "shapes", "flops"),
    [
        ("aten::mm", [[3, 5], [5, 7]], 2 * 3 * 5 * 7),
        ("aten::addmm", [[7], [3, 5], [5, 7], [], []], 210),
        ("aten::_addmm_activation", [[7], [3, 5], [5, 7]], 210),
        ("aten::bmm", [[4, 3, 5], [4, 5, 7]], 4 * 210),
        ("aten::baddbmm", [[4, 3, 7], [4, 3, 5], [4, 5, 7]], 4 * 210),
        ("aten::addbmm", [[3, 7], [4, 3, 5], [4, 5, 7]], 4 * 210),
        ("aten::mv", [[3, 5], [5]], 2 * 3 * 5),
        ("aten::addmv", [[3], [3, 5], [5]], 2 * 3 * 5),
        ("aten::linear", [[2, 3, 5], [7, 5], [7]], 2 * 210),
        ("aten::_int_mm", [[3, 5], [5, 7]], 210),
        ("aten::_scaled_mm", [[16, 32], [32, 64], [], []], 2 * 16 * 32 * 64),
        ("fbgemm::f8f8bf16_rowwise", [[16, 32], [64, 32]], 2 * 16 * 32 * 64),
        # 100 tokens of 5 experts, forward; the gradient of the input; that of the weights; a batch.
        ("aten::_grouped_mm", [[100, 32], [5, 32, 64], [5]], 2 * 100 * 32 * 64),
        ("aten::_scaled_grouped_mm", [[100, 64], [5, 64, 32], [100], [5, 32], [5]], 2 * 100 * 64 * 32),
        ("aten::_grouped_mm", [[32, 100], [100, 64], [5]], 2 * 32 * 100 * 64),
        ("aten::_grouped_mm", [[5, 16, 32], [32, 100], [5]], 2 * 16 * 32 * 100),
        ("aten::_grouped_mm", [[5, 16, 32], [5, 32, 64]], 5 * 2 * 16 * 32 * 64),
    ],
)
def test_products(name, shapes, flops):
    found = counted(name, *shapes)
    assert (found.asked, found.causal, found.again) == (flops, flops, 0)


def test_four_bits_lie_two_in_an_element():
    assert counted("aten::_scaled_mm", [16, 16], [16, 64], type_=FP4).asked == 2 * 16 * 32 * 64
    assert counted("aten::_scaled_mm", [16, 32], [32, 64], type_=FP8).asked == 2 * 16 * 32 * 64


#: Of each attention op: arguments before the query, how its shapes lie, where a mask is said, and how.
FORWARD = {
    "aten::_scaled_dot_product_flash_attention": (0, "heads", 4, "True"),
    "aten::_scaled_dot_product_flash_attention_for_cpu": (0, "heads", 4, "True"),
    "aten::_scaled_dot_product_efficient_attention": (0, "heads", 6, "True"),
    "aten::_scaled_dot_product_cudnn_attention": (0, "heads", 6, "True"),
    "aten::_cudnn_attention_forward": (0, "heads", 10, "True"),
    "aten::_flash_attention_forward": (0, "length", 8, "True"),
    "aten::_efficient_attention_forward": (0, "length", 9, "1"),
    "flash_attn::_flash_attn_forward": (0, "length", 5, "True"),
}
BACKWARD = {
    "aten::_scaled_dot_product_flash_attention_backward": (1, "heads", 11, "True"),
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": (1, "heads", 7, "True"),
    "aten::_scaled_dot_product_efficient_attention_backward": (1, "heads", 11, "True"),
    "aten::_scaled_dot_product_cudnn_attention_backward": (1, "heads", 14, "True"),
    "aten::_cudnn_attention_backward": (1, "heads", 14, "True"),
    "aten::_flash_attention_backward": (1, "length", 11, "True"),
    "aten::_efficient_attention_backward": (1, "length", 14, "1"),
    "flash_attn::_flash_attn_backward": (1, "length", 11, "True"),
}


def attention(name: str, causal: bool) -> Count:
    """Batch 2, 4 heads of 16 for queries and keys, 2 of them shared; 8 of values; 6 queries and as many keys."""
    at, order, place, yes = (FORWARD | BACKWARD)[name]
    shapes = [[2, 4, 6, 16], [2, 2, 6, 16], [2, 2, 6, 8]]
    if order == "length":
        shapes = [[b, s, h, d] for b, h, s, d in shapes]
    return counted(name, *[[2, 4, 6, 8]] * at, *shapes, values={place: yes if causal else "False"})


@pytest.mark.parametrize("name", FORWARD)
def test_attention(name):
    scores, values = 2 * 2 * 4 * 6 * 6 * 16, 2 * 2 * 4 * 6 * 6 * 8
    plain, masked = attention(name, False), attention(name, True)
    assert plain.asked == plain.causal == masked.asked == scores + values
    assert masked.causal == (scores + values) // 2
    assert plain.again == masked.again == 0


@pytest.mark.parametrize("name", BACKWARD)
def test_attention_backward(name):
    """Gradients of scores, values, queries and keys: two products of each width; and the scores once more."""
    scores, values = 2 * 2 * 4 * 6 * 6 * 16, 2 * 2 * 4 * 6 * 6 * 8
    plain, masked = attention(name, False), attention(name, True)
    assert plain.asked == plain.causal == masked.asked == 2 * (scores + values)
    assert plain.again == masked.again == scores
    assert masked.causal == scores + values and masked.again_causal == scores // 2


def test_more_keys_than_queries():
    """Torch's mask begins with the first key, FlashAttention's ends with the last: of 4 queries and 10 keys a query
    sees 1 to 4 keys, or 7 to 10; the diagonal counts half."""
    query, key = [1, 1, 4, 1], [1, 1, 10, 1]
    torch = counted("aten::_scaled_dot_product_flash_attention", query, key, key, values={4: "True"})
    flash = counted("flash_attn::_flash_attn_forward", [1, 4, 1, 1], [1, 10, 1, 1], [1, 10, 1, 1], values={5: "True"})
    seen = sum(range(1, 5)) - 4 / 2, sum(range(7, 11)) - 4 / 2
    assert (torch.causal, flash.causal) == tuple(4 * pairs for pairs in seen)
    assert torch.asked == flash.asked == 4 * 40


CONV = {3: "[2, 2]", 4: "[1, 1]", 5: "[1, 1]", 6: "False", 7: "[0, 0]", 8: "1"}


def test_convolutions():
    """17 x 19 with a kernel of 3, a stride of 2 and a border of 1 gives 9 x 10 places; each meets 8 x 3 x 9 weights."""
    assert counted("aten::convolution", [2, 3, 17, 19], [8, 3, 3, 3], values=CONV).asked == 2 * 2 * 90 * 8 * 27
    # Four groups, dilated by 2: 9 x 10 gives 5 x 6; a weight of [8, 2, 3, 3].
    grouped = CONV | {3: "[1, 1]", 4: "[0, 0]", 5: "[2, 2]", 8: "4"}
    assert counted("aten::convolution", [2, 8, 9, 10], [8, 2, 3, 3], values=grouped).asked == 2 * 2 * 30 * 8 * 18
    # Transposed: every place of the input meets every weight.
    transposed = CONV | {6: "True"}
    assert counted("aten::convolution", [2, 8, 5, 6], [8, 4, 4, 4], values=transposed).asked == 2 * 2 * 30 * 8 * 64
    one = {3: "[1]", 4: "[2]", 5: "[1]", 6: "False"}
    assert counted("aten::_convolution", [2, 4, 168], [2, 4, 5], values=one).asked == 2 * 2 * 168 * 2 * 20


@pytest.mark.parametrize(
    ("mask", "times"), [("[True, True, True]", 2), ("[False, True, False]", 1), ("[False, False, True]", 0)]
)
def test_convolutions_backward(mask, times):
    shapes = [[2, 8, 9, 10], [2, 3, 17, 19], [8, 3, 3, 3]]
    found = counted("aten::convolution_backward", *shapes, values={7: "False", 10: mask})
    assert found.asked == times * 2 * 2 * 90 * 8 * 27
    shapes = [[2, 4, 12, 14], [2, 8, 5, 6], [8, 4, 4, 4]]
    found = counted("aten::convolution_backward", *shapes, values={7: "True", 10: mask})
    assert found.asked == times * 2 * 2 * 30 * 8 * 64


@pytest.mark.parametrize(
    "shapes",
    [
        [[64, 32], [32, 128], [64, 128]],
        [[64, 32], [128, 32], [64, 128]],  # the weight as it is stored
        [[64, 32], [32, 128], [128], [64, 128]],  # with a bias
    ],
)
def test_templates_of_inductor(shapes):
    assert counted("triton_tem_fused_addmm_relu_3", *shapes).asked == 2 * 64 * 32 * 128


def test_what_does_not_tell_is_not_guessed():
    for name, shapes, why in [
        ("aten::mm", [[3, 5], [6, 7]], "inner dimensions"),
        ("aten::mm", [[3, 5], []], "a shape is missing"),
        ("aten::convolution", [[2, 3, 17, 19], [8, 3, 3, 3]], "stride"),
        ("aten::convolution_backward", [[2, 8, 9, 10], [2, 3, 17, 19], [8, 3, 3, 3]], "gradients"),
        ("flash_attn::_flash_attn_varlen_forward", [[100, 4, 16]] * 3, "lengths"),
        ("aten::_flash_attention_forward", [[100, 4, 16]] * 3 + [[9], [9]], "lengths"),
        ("triton_tem_fused_mm_0", [[64, 32], [48, 128], [64, 128]], "one product"),
        ("triton_tem_fused_mm_0", [[64, 32], [32, 128]], "missing"),
    ]:
        with pytest.raises(Unclear, match=why):
            counted(name, *shapes)
    assert counted("aten::add", [3, 5], [3, 5]) is None and counted("triton_poi_fused_add_mm_1", [3, 5]) is None


@pytest.mark.parametrize("change", [{3: "[0, 0]"}, {5: "[90, 90]"}, {4: "[-9, -9]"}, {3: "[1, 1, 1]"}, {3: "2"}])
def test_convolutions_that_cannot_be(change):
    with pytest.raises(Unclear):
        counted("aten::convolution", [2, 3, 17, 19], [8, 3, 3, 3], values=CONV | change)
    with pytest.raises(Unclear):
        counted("aten::convolution", [3, 17, 19], [8, 3, 3, 3], values=CONV)


def test_broken_texts():
    for shapes in ("[", "7", '["a"]', "[[1, -2], [3, 4]]", "[" * 100_000, None):
        with pytest.raises(Unclear):
            count("aten::mm", Arguments.parsed(shapes, None, "{"))


SCHEMAS = """
import json, sys, torch
found = {}
for name in json.load(sys.stdin):
    op = getattr(torch.ops.aten, name.removeprefix("aten::"), None)
    if op is not None:
        found[name] = [a.name for a in op.default._schema.arguments]
print(json.dumps(found))
"""


@pytest.mark.slow
def test_places_are_those_of_torch(torch_python):
    """The places of arguments, by torch's own schemas."""
    names = [name for name in FORWARD | BACKWARD if name.startswith("aten::")]
    done = subprocess.run(
        [torch_python, "-c", SCHEMAS], input=json.dumps(names), capture_output=True, text=True, check=True
    )
    schemas = json.loads(done.stdout.splitlines()[-1])
    assert len(schemas) == len(names)
    for name, arguments in schemas.items():
        op = OPS[name]
        assert arguments[op.query] == "query" and arguments[op.query + 1 : op.query + 3] == ["key", "value"]
        assert re.search("causal|mask_type", arguments[op.causal]), name
        if op.lengths is not None:
            assert re.match("cu_seqlens_q|cum_seq_q", arguments[op.lengths]), name
