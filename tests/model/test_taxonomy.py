"""Names as profilers record them: communication, and compute that only looks like it."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from stepscope.errors import BadInput
from stepscope.model import taxonomy

COMM = {
    "nccl": [
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "ncclDevKernel_AllReduce_Sum_f32_TREE_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)",
        "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
        "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)",
        "ncclKernel_Broadcast_RING_LL_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)",
        "ncclSymDevKernel_AllReduce_AGxLLMC_R_sum_bf16(ncclSymDevArgs)",
        "ncclDevKernel_Generic(ncclDevComm*, channelMasks, ncclWork*)",
        "ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)",
        "void ncclAllReduceRingLLKernel_sum_f32(ncclColl)",
        "_Z21ncclDevKernel_SendRecv24ncclDevKernelArgsStorageILm4096EE",
        "mscclKernel_Sum_float_LL",
    ],
    "nvshmem": [
        "nvshmemi_transfer_rma_put_threadgroup",
        "void barrier_on_stream_kernel_nvshmem(int)",
        "nvshmemx_barrier_all_on_stream_kernel",
        "rocshmem::rocshmem_barrier_all_kernel()",
    ],
    "deep_ep": [
        "void deep_ep::intranode::dispatch<8, 768, 8192>(int4*, float*, int*, long*, float*)",
        "void deep_ep::intranode::combine<__nv_bfloat16, 8, 768, 4096>(__nv_bfloat16*, float*)",
        "void deep_ep::intranode::notify_dispatch<8>(int const*, int*, int const*)",
        "void deep_ep::intranode::cached_notify_combine<2>(void**, int*, int, int, int)",
        "void deep_ep::intranode::cached_notify_dispatch<8>(int const*, int, void**)",
        "void deep_ep::intranode::barrier<8>(int**, int)",
        "void deep_ep::internode::dispatch<false, 2, false, 4096>(int4*)",
        "void deep_ep::internode::cached_notify<true, 4>(int)",
        "void deep_ep::internode_ll::dispatch<true, false, 7168>(void*, float*)",
        "void deep_ep::internode_ll::combine<true, 7168, 9>(void*)",
        "void primus_turbo::deep_ep::intranode::dispatch<8, 1024>(int4*)",
        "void dpsk::ep::internode::combine<false, 8, __nv_bfloat16, 8, 2, 16, 24>(int4*, float*, bool const*)",
        "void dpsk::ep::internode::cached_notify<false>(int, int, int, int, int*)",
        "void dpsk::ep::internode::dispatch<false, 8, true, 8>(int4*, float*, long*)",
        "void dpsk::ep::internode::notify_dispatch<false, 8>(int const*, long*, int)",
        "void hybrid_ep::dispatch_kernel<unsigned short>(hybrid_ep::dispatch_kernel_param_t)",
    ],
    "mori": [
        "void mori::moe::EpDispatchIntraNodeKernel<hip_bfloat16>(mori::moe::EpDispatchCombineArgs<hip_bfloat16>)",
        "EpCombineInterNodeV1Kernel_bf16",
    ],
    "pplx": [
        "void a2a_dispatch_send_kernel<true, 16, 8>(unsigned long, unsigned long)",
        "void a2a_combine_recv_kernel<16, 8>(unsigned long)",
    ],
    "custom all-reduce": [
        "void quickreduce::allreduce_prototype_twoshot<quickreduce::AllReduceTwoshot<half>>(half const*)",
        "void allreduce_prototype<AllReduceOneshot<half, 8>>(half const*, half*, int)",
        "void aiter::allgather_lastdim<bf16, 8>(aiter::RankData*)",
        "void (anonymous namespace)::multimem_all_gather_kernel<16>(char*)",
        "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*, vllm::RankSignals)",
        "void sglang::cross_device_reduce_2stage<__half, 4>(sglang::RankData*)",
        "void aiter::reduce_scatter_cross_device_store<bf16, 8>(aiter::RankData*)",
        "void aiter::allreduce_fusion_kernel_1stage<bf16, 8>(aiter::RankData*)",
        "void (anonymous namespace)::one_shot_all_reduce_kernel<c10::BFloat16, 16, 8>(unsigned int**)",
        "void (anonymous namespace)::two_shot_all_reduce_kernel<c10::BFloat16, 16, 8>(unsigned int**)",
        "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*)",
        "void (anonymous namespace)::multimem_one_shot_all_reduce_kernel<float, 16>(float*)",
        "void tensorrt_llm::kernels::oneShotAllReduceKernel<half, 8, false>(tensorrt_llm::kernels::AllReduceParams)",
        "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<2, half, 8>()",
        "void flashinfer::trtllm_mnnvl_allreduce::twoshotAllreduceKernel<8, float>(float*)",
    ],
    "tensorrt-llm": [
        "void tensorrt_llm::kernels::lamport_style_norm_kernel<half, 8>(tensorrt_llm::kernels::Params)",
        "void tensorrt_llm::kernels::moeAllToAllKernel<true>(tensorrt_llm::kernels::MoeCommWorkspace)",
        "void tensorrt_llm::kernels::moe_alltoall::moeA2ADispatchKernel<8, false>(int const*)",
        "moeA2ACombineKernel<__nv_bfloat16, 8>(void*)",
    ],
    "symmetric memory": [
        "c10d::symmetric_memory::barrier_kernel(unsigned int**, int, int, int, unsigned long)",
        "put_signal_kernel(unsigned int**, int, int, int, int, unsigned long)",
        "wait_signal_kernel(unsigned int**, int, int, int, int, unsigned long)",
    ],
    "userbuffers": [
        "void userbuffers_fp16_sum_inplace_gpu_rr_rs_oop<8>(int, int, int)",
        "kuserbuffers_pushrecv(int, int, int*, int*, int)",
    ],
}

#: Compute that goes with communication.
HELPERS = [
    "void deep_ep::layout::get_dispatch_layout<256, 32, 8>(long const*, int*, int*, int*, bool*, int, int)",
    "void dpsk::ep::cuda::get_dispatch_layout<256, 32, 8>(long const*, int*, int*, int*, bool*, int, int)",
    "void deep_ep::internode_ll::clean_low_latency_buffer<32>(int*, int)",
]

COMPUTE = [
    *HELPERS,
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MaxOps<float> > >(float)",
    "void at::native::_scatter_gather_elementwise_kernel<128, 4, at::native::foo>(int)",
    "void at::native::vectorized_gather_kernel<(int)16, long long>(char *, char *)",
    "void cublasLt::splitKreduce_kernel<32, 16, int, float, float>(cublasLt::cublasSplitKParams<float>)",
    "void cub::DeviceReduceKernel<cub::DeviceReducePolicy<float> >(float*)",
    "void cub::DeviceReduceByKeyKernel<cub::DispatchReduceByKey<long*, long*> >(long*)",
    "nvjet_tst_128x256_64x4_2x1_v_bz_coopA_TNT",
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel",
    "void cutlass::device_kernel<flash::FlashAttnFwdSm90<flash::CollectiveMainloopFwdSm90<2> > >(flash::Params)",
    "void deep_gemm::fp8_gemm_kernel<7168u, 4096u>(__nv_bfloat16*)",
    "void persistent_gemm_asyncCluster<128>(Params)",
    "void attention_funcCluster<64>(float*)",
    "triton_red_fused_native_layer_norm_0",
    "triton_poi_fused_add_all_gather_into_tensor_wait_tensor_2",
    "void tensorrt_llm::kernels::finalizeMoeRoutingKernel<half, 1>(half const*)",
    "void vllm::moe::topkGating<8, 64, 4>(float const*)",
    "void vllm::moe::moe_align_block_size_kernel<int>(int*)",
    "void moe_permute_kernel<__nv_bfloat16>(__nv_bfloat16 const*)",
    "Cijk_Alik_Bljk_BBS_BH_Bias_HAS_SAV_UserArgs_MT256x128x64",
    "void aiter::local_device_load_rmsnorm_naive<bf16, 8>(bf16*)",
    "grid_barrier_kernel(int*)",
    "fused_moe_kernel",
    "[memcpy HtoD]",
]


@pytest.mark.parametrize(("library", "name"), [(k, n) for k, names in COMM.items() for n in names])
def test_communication(library: str, name: str) -> None:
    assert taxonomy.load().library(pl.Series([name])).to_list() == [library]


@pytest.mark.parametrize("name", COMPUTE)
def test_compute(name: str) -> None:
    assert taxonomy.load().library(pl.Series([name])).to_list() == [None]


def test_helpers() -> None:
    helper = taxonomy.load().is_helper
    assert helper(pl.Series(HELPERS)).all()
    assert not helper(pl.Series([name for name in COMPUTE if name not in HELPERS])).any()
    assert not helper(pl.Series([name for names in COMM.values() for name in names])).any()


def test_built_in_patterns_are_valid() -> None:
    rules = taxonomy.load()
    for rule in rules.comm + rules.families + rules.tensor_cores + rules.helpers:
        pl.Series(["x"]).str.contains(rule.pattern)


def test_series_of_names() -> None:
    names = pl.Series("name", [COMPUTE[0], COMM["nccl"][0], None])
    assert taxonomy.load().is_comm(names).to_list() == [False, True, False]
    assert taxonomy.load().is_comm(pl.Series([], dtype=pl.String)).to_list() == []


def test_own_rules_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "own.toml"
    path.write_text(
        "[[comm]]\npattern = '^my_ring'\nlibrary = 'mine'\n"
        "[[comm]]\npattern = 'AllReduce_Sum'\n[[helper]]\npattern = '^my_'\n"
    )
    names = pl.Series(["my_ring_kernel", COMM["nccl"][0], COMM["nccl"][2], "gemm"])
    expected = ["mine", "custom", "nccl", None]
    assert taxonomy.load(path).library(names).to_list() == expected
    assert taxonomy.load(path).is_helper(pl.Series(["my_layout", "my_ring", "gemm"])).to_list() == [True, False, False]
    monkeypatch.setenv("STEPSCOPE_TAXONOMY", str(path))
    assert taxonomy.load().library(names).to_list() == expected


@pytest.mark.parametrize(
    "text",
    ["[[comm]]\nlibrary = 'x'\n", "[[comm]]\npattern = '('\n", "not toml", "comm = [1]", "comm = 1", "comm = 'x'"],
)
def test_bad_rules_name_the_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "own.toml"
    path.write_text(text)
    with pytest.raises(BadInput, match=r"own\.toml"):
        taxonomy.load(path)


def test_missing_rules(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"none\.toml"):
        taxonomy.load(tmp_path / "none.toml")
