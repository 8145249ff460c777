"""Roles of kernels by their public names: what each does is known from the library that has it."""

from __future__ import annotations

import pytest

from stepscope.derive.work.extents import extent
from stepscope.derive.work.roles import Role, kernel

_V = "void at::native::vectorized_elementwise_kernel<(int)"
_COPY = "at::native::direct_copy_kernel_cuda(at::TensorIteratorBase &)::[lambda() (instance 3)]::operator ()() const"
_LIST = "void at::native::<unnamed>::multi_tensor_apply_kernel<at::native::<unnamed>::TensorListMetadata<(int)"

ROLES = {
    "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT": (Role.PRODUCT, "bf16"),
    "nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_TNT": (Role.PRODUCT, "fp16"),
    "ampere_sgemm_128x64_nn": (Role.PRODUCT, "fp32"),
    "cutlass_80_tensorop_s1688gemm_128x128_32x3_nt_align4": (Role.PRODUCT, "tf32"),
    "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_nn": (Role.PRODUCT, "bf16"),
    "volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn": (Role.PRODUCT, "fp16"),
    "sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x64x32_warpgroupsize1x1x1": (Role.PRODUCT, "tf32"),
    "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize64x64x8_stage3_warpsize2x2x1_ffma": (Role.PRODUCT, "fp32"),
    "sm90_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n_tilesize128x128x128": (Role.PRODUCT, "fp8"),
    "Cijk_Ailk_Bljk_HHS_BH_MT64x64x64_MI16x16x16x1_SN": (Role.PRODUCT, "fp16"),
    "sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x64": (Role.CONVOLUTION, "bf16"),
    "void implicit_convolve_sgemm<float, float, 1024, 5, 5, 3, 3, 3, 1, true, false, true>(int)": (
        Role.CONVOLUTION,
        "fp32",
    ),
    "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64_4x1x1": (Role.ATTENTION, "fp16"),
    "void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<64, 128, 128, 8, "
    "cutlass::bfloat16_t>>(Flash_bwd_params)": (Role.ATTENTION, "bf16"),
    "fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<>::Params)": (
        Role.ATTENTION,
        "bf16",
    ),
    "void <unnamed>::softmax_warp_forward<float, float, float, (int)11, (bool)0, (bool)0>(T2 *)": (Role.SOFTMAX, None),
    "void <unnamed>::softmax_warp_forward<float, float, float, (int)10, (bool)1, (bool)0>(T2 *)": (Role.LOSS, None),
    "void at::native::<unnamed>::cunn_SoftMaxForward<(int)8, c10::BFloat16, float, c10::BFloat16, "
    "at::native::<unnamed>::LogSoftMaxForwardEpilogue>(T4 *)": (Role.LOSS, None),
    "void at::native::<unnamed>::cunn_SoftMaxForward<(int)4, float, float, float, "
    "at::native::<unnamed>::SoftMaxForwardEpilogue>(T4 *)": (Role.SOFTMAX, None),
    "void at::native::<unnamed>::vectorized_layer_norm_kernel<float, float, (bool)0>(int)": (Role.NORM, None),
    "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int, 512, true, 1, true>(cudnnTensorStruct)": (
        Role.NORM,
        None,
    ),
    f"{_V}8, at::native::bfloat16_copy_kernel_cuda(at::TensorIteratorBase &)::[lambda(float) (instance 1)], "
    "std::array<char *, (unsigned long)2>>(int, T2, T3)": (Role.CAST, None),
    f"void at::native::unrolled_elementwise_kernel<{_COPY}::[lambda(float) (instance 1)], std::array<char *, "
    "(unsigned long)2>, (int)4, TrivialOffsetCalculator<(int)1, unsigned int>, TrivialOffsetCalculator<(int)1, "
    "unsigned int>, at::native::memory::LoadWithCast<(int)1>, at::native::memory::StoreWithCast<(int)1>>(int)": (
        Role.CAST,
        None,
    ),
    f"void at::native::elementwise_kernel<(int)128, (int)4, void at::native::gpu_kernel_impl_nocast<{_COPY}::[lambda("
    "c10::BFloat16) (instance 1)]>(at::TensorIteratorBase &, const T1 &)::[lambda(int) (instance 1)]>(int, T3)": (
        Role.COPY,
        None,
    ),
    f"{_V}4, at::native::FillFunctor<float>, std::array<char *, (unsigned long)1>>(int, T2, T3)": (Role.FILL, None),
    "void cudnn::engines_precompiled::nchwToNhwcKernel<__nv_bfloat16, __nv_bfloat16, float, (bool)0>(int)": (
        Role.LAYOUT,
        None,
    ),
    "void at::native::(anonymous namespace)::fused_dropout_kernel_vec<float, float, unsigned int, 1, 4, bool>(int)": (
        Role.RANDOM,
        None,
    ),
    f"{_LIST}4>, at::native::<unnamed>::FusedAdamMathFunctor<float, (int)4, (at::native::ADAM_MODE)1, (bool)0>>(T1)": (
        Role.OPTIMIZER,
        None,
    ),
    f"{_LIST}1>, at::native::<unnamed>::ZeroFunctor<float>>(T1)": (Role.FILL, None),
    "void at::native::(anonymous namespace)::indexSelectLargeIndex<float, long, unsigned int, 2, 2, -2, true>(int)": (
        Role.INDEX,
        None,
    ),
    "void at::native::(anonymous namespace)::compute_grad_weight<float, long>(long const*)": (Role.EMBEDDING, None),
    "void at_cuda_detail::cub::DeviceRadixSortOnesweepKernel<int>(int)": (Role.SORT, None),
    "triton_red_fused_native_layer_norm_backward_transpose_view_12": (Role.FUSED, None),
    "triton_tem_fused_addmm_3": (Role.PRODUCT, None),
    "void transformer_engine::cast_transpose_fused_kernel<float>(int)": (Role.LAYOUT, None),
    "void cuApplyLayerNorm<float, float, float>(float*)": (Role.NORM, None),
    "batched_transpose_32x32_half.kd": (Role.LAYOUT, None),
    "bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_swiGlu_dynBatch_sm100f": (Role.PRODUCT, "fp8"),
    "bmm_E2m1_E2m1E2m1_Fp32_t128x16x256_dynBatch_sm100f": (Role.PRODUCT, "fp4"),
    "kernel_unified_attention_2d": (Role.ATTENTION, None),
    # Cut short: no more than `ck_tile::kentry` can be made readable.
    "_ZN7ck_tile6kentryILi2ENS_38FmhaBatchPrefillWithPagedKVCacheKernelINS_40BlockFmhaBatch": (Role.ATTENTION, None),
    "_ZN7ck_tile6kentryILi1ENS_12Rmsnorm2dFwdINS_27Rmsnorm2dFwdPipelineOnePassINS_27Rmsno": (Role.NORM, None),
    "void rotary_embedding_kernel<c10::BFloat16, true>(long const*)": (Role.ELEMENTWISE, None),
    "void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16, unsigned char>(__nv_bfloat16 const*)": (Role.INDEX, None),
    "void (anonymous namespace)::store_kvcache<2048l, 4, false, long>(StoreKVCacheParams)": (Role.INDEX, None),
    "void vllm::scaled_fp8_quant_kernel_strided<c10::BFloat16, c10::Float8_e4m3fn>(int)": (Role.CAST, None),
    "somebody_elses_kernel": (Role.OTHER, None),
}


@pytest.mark.parametrize("name", ROLES)
def test_role_and_precision(name: str) -> None:
    said = kernel(name)
    assert (said.role, said.precision) == ROLES[name]


def test_what_names_say_of_the_pass_and_of_alignment() -> None:
    assert kernel("sm80_xmma_wgrad_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nhwc").backward
    assert not kernel("nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT").backward
    assert kernel("cutlass_80_tensorop_s1688gemm_128x128_16x4_nn_align1").alignment == 1
    assert not kernel("void gemv2T_kernel_val<int, float>(int)").matrix


def test_extents_are_those_of_pytorch() -> None:
    """Elements of a block: CUDALoops.cuh, PersistentSoftmax.cuh and MultiTensorApply.cuh say how many."""
    softmax = extent("void <unnamed>::softmax_warp_forward<float, float, float, (int)11, (bool)0, (bool)0>(T2 *)")
    assert (softmax.per_row, softmax.bytes) == (2048, 8)
    short = extent(
        "void (anonymous namespace)::softmax_warp_backward<c10::Half, c10::Half, float, 7, true, false>(int)"
    )
    assert (short.per_row, short.bytes) == (256, 6)
    blocked = extent(
        "void at::native::elementwise_kernel<(int)128, (int)4, void at::native::gpu_kernel_impl_nocast<at::native::"
        "<unnamed>::masked_fill_kernel(at::TensorIterator &, const c10::Scalar &)::[lambda() (instance 1)]::operator "
        "()() const::[lambda(c10::BFloat16, bool) (instance 1)]>(at::TensorIteratorBase &, const T1 &)::[lambda(int) "
        "(instance 1)]>(int, T3)"
    )
    assert (blocked.per_block, blocked.bytes) == (512, 5)
    adam = extent(f"{_LIST}4>, at::native::<unnamed>::FusedAdamMathFunctor<float, (int)4, (bool)0>>(T1)")
    assert (adam.per_block, adam.bytes) == (65536, 28)
    product = extent(
        f"{_V}4, at::native::BinaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float>>, "
        "std::array<char *, (unsigned long)3>>(int, T2, T3)"
    )
    assert (product.per_thread, product.bytes, product.unsure) == (8, 12, True)
    long = extent(
        "void (anonymous namespace)::cunn_SoftMaxForward<8, c10::BFloat16, float, c10::BFloat16, Epilogue>(int)"
    )
    assert (long.per_block, long.per_row, long.bytes) == (0, 0, 4)  # a block for each row, whatever its length
    back = extent("void <unnamed>::cunn_SoftMaxBackwardSmem<(int)4, c10::Half, float, float, Epilogue>(T2 *)")
    assert back.bytes == 2 + 2 * 4
    assert extent("ampere_sgemm_128x64_nn") == extent("unknown")
