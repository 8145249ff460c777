"""Names as profilers show them: calls, kernels, and the streams of a process."""

from __future__ import annotations

#: The kernels of a process, by stream: PyTorch's default stream, and one stream per purpose as c10d makes them.
COMPUTE, COPIES, P2P, EP, DP, CP, SHARD, P2P_IN, P2P_BACK, P2P_BACK_IN = range(10)
STREAM_IDS = (7, 13, 17, 21, 25, 29, 33, 37, 41, 45)

LAUNCH, LAUNCH_EX = "cudaLaunchKernel", "cuLaunchKernelEx"
MEMCPY_ASYNC = "cudaMemcpyAsync"
EVENT_RECORD, STREAM_WAIT = "cudaEventRecord", "cudaStreamWaitEvent"
STREAM_SYNC, DEVICE_SYNC = "cudaStreamSynchronize", "cudaDeviceSynchronize"
MALLOC, FREE = "cudaMalloc", "cudaFree"

_ARGS = "(ncclDevKernelArgsStorage<(unsigned long)4096>)"
SEND_RECV = f"ncclDevKernel_SendRecv{_ARGS}"

#: Collective -> (NVTX range of NCCL, kernel).
COLLECTIVES = {
    "all_reduce": ("ncclAllReduce", f"ncclDevKernel_AllReduce_Sum_bf16_RING_LL{_ARGS}"),
    "all_gather": ("ncclAllGather", f"ncclDevKernel_AllGather_RING_LL{_ARGS}"),
    "reduce_scatter": ("ncclReduceScatter", f"ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL{_ARGS}"),
    "all_to_all": ("ncclAlltoAll", SEND_RECV),
}

MEMCPY_HTOD, MEMCPY_DTOH = "[memcpy HtoD]", "[memcpy DtoH]"

_ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<(int)8, at::native::{}>(int, T2, T3)"
GEMM_QKV = "nvjet_sm90_tst_256x128_64x4_2x1_v_bz_coopA_TNT"
GEMM_OUT = "nvjet_sm90_tst_192x128_64x5_1x2_h_bz_coopB_TNT"
GEMM_DGRAD = "nvjet_sm90_tst_192x128_64x5_1x2_h_bz_coopB_NNT"
GEMM_WGRAD = "nvjet_sm90_tst_256x128_64x4_2x1_v_bz_coopA_NTT"
GEMM_ROUTER = "nvjet_sm90_tst_64x64_64x16_1x4_h_bz_splitK_TNT"
GROUPED_GEMM = "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<GroupProblemShape<T2>>>(T1::Params)"
FLASH_FWD = "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<(int)128, (int)128, (int)64>>(Flash_fwd_params)"
FLASH_BWD = "void flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits>(Flash_bwd_params)"
RMS_NORM = "void at::native::rms_norm_kernel<c10::BFloat16, float>(int, float, const T1 *, const T1 *, T2 *, T1 *)"
RMS_NORM_BWD = (
    "void at::native::rms_norm_backward_kernel<c10::BFloat16, float>(int, const T1 *, const T1 *, const T2 *, T1 *)"
)
ROPE = "triton_poi_fused_rope_0"
ADD = _ELEMENTWISE.format("CUDAFunctor_add<c10::BFloat16>")
MUL = _ELEMENTWISE.format("BinaryFunctor<c10::BFloat16, c10::BFloat16, c10::BFloat16, MulFunctor<float>>")
SILU = "triton_poi_fused_mul_silu_0"
TOPK = "void at::native::sbtopk::gatherTopK<c10::BFloat16, unsigned int, (int)2, (bool)0>(T1, T2)"
SOFTMAX = "void at::native::softmax_warp_forward<c10::BFloat16, float, (int)6, (bool)0>(T2 *, const T1 *, int)"
PERMUTE = "void at::native::vectorized_gather_kernel<(int)16, long>(char *, char *, T2 *, int, long)"
EMBEDDING = "void at::native::indexSelectLargeIndex<c10::BFloat16, long, unsigned int, (int)2>(T1, T2, T3)"
EMBEDDING_BWD = (
    "void at::native::embedding_backward_feature_kernel<c10::BFloat16, float, long>(const T3 *, const T1 *, T1 *)"
)
CROSS_ENTROPY = "void at::native::cunn_SoftMaxForward<(int)8, c10::BFloat16, float, float>(T3 *, const T2 *, int)"
CROSS_ENTROPY_BWD = "void at::native::cunn_SoftMaxBackward<(int)8, c10::BFloat16, float, float>(T2 *, const T3 *, int)"
REDUCE = (
    "void at::native::reduce_kernel<(int)512, (int)1, at::native::ReduceOp<float, at::native::NormTwoOps<float>>>(T3)"
)
ADAMW = "void at::native::multi_tensor_apply_kernel<FusedOptimizerTensorListMetadata<(int)4>, AdamMathFunctor>(T1, T2)"
SCALE = (
    "void at::native::multi_tensor_apply_kernel<TensorListMetadata<(int)1>, BinaryOpScalarTensorFunctor<float>>(T1, T2)"
)
