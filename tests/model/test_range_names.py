"""Names of ranges in sentences: short, recognizable, on one line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake import call, make, nvtx, op
from stepscope import api
from stepscope.model.range_names import MOST, bare_name, short_range
from stepscope.render import render

_SHAPES = ", sizes = [" + "[], " * 90 + "[]], input_op_ids = [" + "(226837,0), " * 90 + "(0,-1)]"


@pytest.mark.parametrize(
    ("text", "short"),
    [
        ("aten::stack, op_id = 226928" + _SHAPES, "aten::stack"),
        ("autograd::engine: MulBackward0, seq = 12", "autograd::engine: MulBackward0"),
        ("aten::mm, seq = 4, op_id = 7, sizes = [[4, 8], [8, 2]]", "aten::mm"),
        (
            "## Call CompiledFxGraph fq34bfn2qlhyv6fwfdglutkaofwbvbdhppru5le57ajtqt4e2qtt ##",
            "Call CompiledFxGraph fq34b…",
        ),
        ("step 12", "step 12"),
        ("loss = a, then b = c", "loss = a, then b = c"),  # no suffix of torch's
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<long>>(int)",
            "vectorized_elementwise_kernel<FillFunctor>",
        ),
        ("two\nlines", "two lines"),
    ],
)
def test_what_a_sentence_has(text, short):
    assert short_range(text) == short


def test_the_middle_goes():
    text = "dataset.load_and_tokenize_everything_from_the_network_file_system/shard_0001"
    short = short_range(text)
    assert len(short) <= MOST and short.startswith("dataset.load_and") and short.endswith("shard_0001") and "…" in short


@given(st.text(max_size=400))
def test_never_longer_than_told(text):
    assert len(short_range(text)) <= MOST
    assert "\n" not in short_range(text)
    assert short_range(short_range(text)) == short_range(text) or len(text) > MOST
    bare_name(text)


def test_a_window_whose_label_fills_the_screen():
    """The line above a table is short; JSON has the whole text."""
    label = "train_step: aten::stack, op_id = 1" + _SHAPES
    profile = make(ops=[op(10, 30, call=1)], calls=[call(1, 2, 1)], ranges=[nvtx(0, 9, label)])
    result = api.analyse(profile, "breakdown", anchor="train_step")
    assert max(map(len, render(result, "table").decode().splitlines())) <= 100
    assert "op_id" not in render(result, "table").decode()
    assert "input_op_ids" in render(result, "json").decode()
