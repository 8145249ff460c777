"""Short names, families, tensor cores, demangling: by example, and over every name in the real traces."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepscope.errors import BadInput
from stepscope.model import demangle, taxonomy
from stepscope.model.kernel_names import short_names, shorten

_LAMBDA = "{lambda()#3}::operator()() const::{lambda()#12}::operator()() const::{lambda(c10::BFloat16)#1}"
_COPY = f"at::native::gpu_kernel_impl_nocast<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{_LAMBDA}>"

SHORT = {
    "saxpy(double *, double *, int)": "saxpy",
    "attn_fwd": "attn_fwd",
    "[memcpy HtoD]": "[memcpy HtoD]",
    "[graph 4]": "[graph 4]",
    "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<(unsigned long)4096>)": "ncclDevKernel_SendRecv",
    "void (anonymous namespace)::softmax_warp_forward<float, float, 10, true>(float*, int)": "softmax_warp_forward",
    "void at::native::vectorized_elementwise_kernel<(int)4, at::native::FillFunctor<long>, std::array<char *, "
    "(unsigned long)1>>(int, T2, T3)": "vectorized_elementwise_kernel<FillFunctor>",
    "void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl<at::native::BinaryFunctor<float, float, "
    "float, at::native::binary_internal::MulFunctor<float> > >(at::TensorIteratorBase&)::{lambda(int)#1}>(int)": (
        "elementwise_kernel<MulFunctor>"
    ),
    f"void at::native::elementwise_kernel<128, 4, {_COPY}(at::TensorIteratorBase&)::{{lambda(int)#1}}>(int)": (
        "elementwise_kernel<direct_copy_kernel_cuda>"
    ),
    "void at::native::<unnamed>::multi_tensor_apply_kernel<at::native::<unnamed>::TensorListMetadata<(int)1>, "
    "at::native::<unnamed>::BinaryOpScalarFunctor<c10::BFloat16, (int)1>, std::multiplies<float>, float>(T1, T2)": (
        "multi_tensor_apply_kernel<BinaryOpScalarFunctor, multiplies>"
    ),
    "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x32_8x5_nn_align1>(cutlass_80_simt_sgemm_128x32_8x5_nn_align1::"
    "Params)": "cutlass_80_simt_sgemm_128x32_8x5_nn_align1",
    "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, 7>(cublasGemvParams<int>)": "gemvx::kernel",
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x": (
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64"
    ),
    "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIlEESt5arrayIPcLm1EEEEviT0_T1_": (
        "vectorized_elementwise_kernel<FillFunctor>"
    ),
}


@pytest.mark.parametrize(("full", "short"), SHORT.items(), ids=list(SHORT.values()))
def test_short_names(full: str, short: str):
    assert shorten(full) == short


@given(st.text(alphabet="<>()[]{}:,_ abK0'&*-~", max_size=40))
def test_no_text_breaks_the_shortener(text: str):
    assert isinstance(shorten(text), str)
    assert isinstance(demangle.demangle("_Z" + text), str)
    assert demangle.qualified("_Z" + text) is None or demangle.qualified("_Z" + text)


def test_nulls_stay():
    assert short_names(pl.Series(["f(int)", None])).to_list() == ["f", None]


def test_a_name_that_no_runtime_reads_still_says_what_it_is(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(demangle, "_runtime", lambda: None)
    read = demangle.demangle.__wrapped__
    assert read("_ZN2at6native3fooILi4EEEvT_") == "at::native::foo"
    assert read("_ZN19cutlass_cudnn_train6KernelINS_4conv6kernel4GemmILi3EEEEEvT_") == (
        "cutlass_cudnn_train::Kernel<conv::kernel::Gemm>"
    )
    assert read("_Z5saxpyPfS_i") == "saxpy"
    assert read("_ZN99cut") == "_ZN99cut" and read("_Z") == "_Z" and read("plain") == "plain"


FAMILIES = {
    "nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_NTN": ("gemm", True),
    "ampere_sgemm_128x64_tn": ("gemm", False),
    "Cijk_Alik_Bljk_B_BS_BH_MT128x224x64_MI16x16x1_SN": ("gemm", True),
    "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_64x64_16x6_nn_align4>(P)": ("gemm", True),
    "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, cutlass::bfloat16_t>>(P)": ("attention", True),
    "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7": ("attention", True),
    "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float>(int)": ("norm", None),
    "triton_per_fused_add_native_layer_norm_view_1": ("norm", None),
    "triton_poi_fused_gelu_view_2": ("elementwise", None),
    "triton_red_fused_sum_view_0": ("reduction", None),
    "void split_embedding_backward_codegen_adagrad_unweighted_kernel_cta_per_row_1<float>(int)": ("embedding", None),
    "void at::native::multi_tensor_apply_kernel<FusedAdamMathFunctor<float>>(T1)": ("optimizer", None),
    "void fbgemm_gpu::_compute_FP8_quantize_cuda_kernel<float>(float*)": ("elementwise", None),
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(int)": ("communication", None),
    "void deep_ep::internode::dispatch<false>(int)": ("communication", None),
    "_ZN7deep_ep9intranode8dispatchILi8EEEvv": ("communication", None),
    "sm80_xmma_wgrad_implicit_gemm_indexed_tf32f32_g1_tensor16x8x8_execute_kernel": ("convolution", True),
    "[memcpy HtoD]": ("copy", None),
    "my_kernel": ("other", None),
}


def test_families_and_tensor_cores():
    names = pl.Series(list(FAMILIES))
    rules = taxonomy.default()
    found = dict(zip(names, zip(rules.family(names), rules.tensor_core(names), strict=True), strict=True))
    assert found == FAMILIES


def test_a_users_rules_come_first(tmp_path: Path):
    file = tmp_path / "mine.toml"
    file.write_text("""
[[family]]
name = "router"
pattern = 'topk_gate'
[[tensor_core]]
uses = "yes"
pattern = 'my_kernel'
[[comm]]
pattern = 'my_kernel'
""")
    rules = taxonomy.load(file)
    names = pl.Series(["topk_gate<4>", "my_kernel", "softmax_warp_forward"])
    assert rules.family(names).to_list() == ["router", "communication", "softmax"]
    assert rules.tensor_core(names).to_list() == [None, True, None]


@pytest.mark.parametrize(
    "text",
    [
        "[[family]]\npattern='x'",
        "[[tensor_core]]\npattern='x'\nuses='maybe'",
        "[[family]]\nname='x'\npattern='('",
        "family=3",
    ],
)
def test_bad_rules_are_refused(tmp_path: Path, text: str):
    file = tmp_path / "bad.toml"
    file.write_text(text)
    with pytest.raises(BadInput, match=r"bad\.toml"):
        taxonomy.load(file)


def test_mangled_and_demangled_names_of_real_kernels_shorten_alike(shared: Path):
    query = (
        "select distinct m.value, d.value from CUPTI_ACTIVITY_KIND_KERNEL k "
        "join StringIds m on m.id = k.mangledName join StringIds d on d.id = k.demangledName"
    )
    compared = 0
    for path in shared.glob("traces/*/**/*.sqlite"):
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
            try:
                pairs = db.execute(query).fetchall()
            except sqlite3.OperationalError:
                continue
        db.close()
        for mangled, full in pairs:
            assert shorten(mangled) == shorten(full)
            compared += mangled.startswith("_Z")
    assert compared > 100
