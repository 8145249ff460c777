"""Names of a file may be as long as it likes: they are read once, not again from each of their letters."""

from __future__ import annotations

import time

import pytest

from stepscope.derive.work.extents import extent
from stepscope.derive.work.roles import kernel
from stepscope.findings.detectors import experts_one_by_one, odd_shapes
from stepscope.model.kernel_names import shorten

LONG = 400_000


@pytest.mark.parametrize("letter", ["x", "_", " ", "7"])
@pytest.mark.parametrize("reads", [extent, kernel, shorten, experts_one_by_one._like], ids=lambda f: f.__name__)
def test_a_name_of_one_long_word_is_read_once(reads, letter):
    """Once is milliseconds; from each of its letters, minutes."""
    start = time.process_time()
    reads(f"void elementwise_kernel<4, {letter * LONG}>")
    reads(letter * LONG)
    assert time.process_time() - start < 5


@pytest.mark.parametrize(
    ("name", "bytes_"),
    [
        ("void vectorized_elementwise_kernel<4, FillFunctor<float>, Array<char*, 1>>(int)", 4),
        ("void vectorized_elementwise_kernel<4, CUDAFunctor_add<double>, Array<char*, 3>>(int)", 24),
        ("void vectorized_elementwise_kernel<4, SiluFunctorOnSelf<half>, Array<char*, 2>>(int)", 4),
    ],
)
def test_a_functor_is_still_found_within_its_name(name, bytes_):
    assert extent(name).bytes == bytes_


def test_a_number_of_thousands_of_digits_says_nothing():
    digits = "7" * 5_000
    assert extent(f"void elementwise_kernel<{digits}, {digits}, FillFunctor<float>>(int)") == extent("nothing")
    assert kernel(f"cutlass_80_tensorop_f16_align{digits}_gemm") == kernel("cutlass_80_tensorop_f16_gemm")
    assert odd_shapes._tile(f"sm90_gemm_{digits}x{digits}_") == 0
