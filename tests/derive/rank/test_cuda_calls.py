"""What CUDA and HIP calls do: names as NVIDIA and AMD document them, waits as measured on an H200."""

from __future__ import annotations

import polars as pl
import pytest

from fake import call, make, op
from stepscope.derive.host.idle_causes import ALLOC, API, SYNC, call_causes
from stepscope.derive.host.waits import host_waits
from stepscope.derive.rank.cuda_calls import Family, families_of_names
from stepscope.derive.rank.data import ranks_of

NAMES = {
    Family.LAUNCH: "cudaLaunchKernel cudaLaunchKernelExC cudaLaunchCooperativeKernel cuLaunchKernel cuLaunchKernelEx "
    "cuLaunchCooperativeKernel cudaLaunch cuLaunchGrid hipLaunchKernel hipExtLaunchKernel hipModuleLaunchKernel "
    "hipExtModuleLaunchKernel cudaLaunchKernel_v7000 cudaLaunchKernel_ptsz cudaLaunchKernel_ptsz_v7000",
    Family.GRAPH_LAUNCH: "cudaGraphLaunch cuGraphLaunch hipGraphLaunch cudaGraphLaunch_v10000 cuGraphLaunch_ptsz",
    Family.DEVICE_SYNC: "cudaDeviceSynchronize cuCtxSynchronize cudaThreadSynchronize hipDeviceSynchronize "
    "cudaDeviceSynchronize_v3020",
    Family.STREAM_SYNC: "cudaStreamSynchronize cuStreamSynchronize hipStreamSynchronize cudaStreamSynchronize_ptsz",
    Family.EVENT_SYNC: "cudaEventSynchronize cuEventSynchronize hipEventSynchronize",
    Family.BLOCKING_COPY: "cudaMemcpy cudaMemcpy2D cudaMemcpy3D cudaMemcpyToSymbol cudaMemcpyFromSymbol "
    "cudaMemcpy2DToArray cuMemcpy cuMemcpyHtoD cuMemcpyDtoH cuMemcpyHtoD_v2 cuMemcpy2D cuMemcpyHtoA hipMemcpy "
    "hipMemcpyWithStream hipMemcpyDtoH cudaMemcpy_v3020",
    Family.ALLOC: "cudaMalloc cudaMallocAsync cudaMallocManaged cudaMallocHost cudaHostAlloc cudaHostRegister "
    "cuMemAlloc_v2 cuMemAllocHost cuMemHostAlloc cuMemHostRegister cudaFreeAsync cuMemFreeAsync cuMemCreate cuMemMap "
    "cuMemUnmap cuMemSetAccess cuMemAddressReserve cudaMemPoolTrimTo hipMalloc hipHostMalloc hipExtMallocWithFlags",
    Family.FREE: "cudaFree cudaFreeHost cudaFreeArray cudaHostUnregister cuMemFree cuMemFree_v2 cuMemFreeHost "
    "cuMemHostUnregister hipFree hipHostFree",
    Family.LOAD: "cuModuleLoadData cuModuleLoadDataEx cuModuleUnload cuModuleGetFunction cuLibraryLoadData "
    "cuLibraryGetKernel cuKernelGetFunction cuLinkCreate cudaGraphInstantiate cuGraphInstantiateWithFlags "
    "cudaGraphExecUpdate hipModuleLoad",
    Family.EVENT_RECORD: "cudaEventRecord cudaEventRecordWithFlags cuEventRecord hipEventRecord",
    Family.STREAM_WAIT: "cudaStreamWaitEvent cuStreamWaitEvent hipStreamWaitEvent cuStreamWaitValue32_v2",
    Family.CAPTURE: "cudaStreamBeginCapture cuStreamBeginCaptureToGraph cudaStreamEndCapture hipStreamEndCapture",
    Family.OTHER: "cudaMemcpyAsync cudaMemcpy2DAsync cuMemcpyHtoDAsync_v2 cudaMemcpyPeer cuMemcpyPeer cuMemcpyDtoD_v2 "
    "cudaMemset cudaMemsetAsync cuMemsetD8 cuMemsetD32_v2 hipMemcpyAsync cudaLaunchHostFunc cudaEventQuery "
    "cudaStreamQuery cudaStreamIsCapturing cudaThreadExchangeStreamCaptureMode cudaGraphCreate cudaMemGetInfo "
    "cuMemGetAllocationGranularity cudaPeekAtLastError cuGetProcAddress cudaEventDestroy cudaGraphAddMemcpyNode "
    "cudaMemPoolSetAttribute read",
}


@pytest.mark.parametrize("family", Family, ids=lambda f: f.name)
def test_every_name_has_its_family(family: Family):
    names = NAMES[family].split()
    judged = [Family(f) for f in families_of_names(pl.Series(names)).tolist()]
    assert dict(zip(names, judged, strict=True)) == dict.fromkeys(names, family)


@pytest.mark.parametrize(
    ("name", "cause", "waits"),
    [
        ("cudaDeviceSynchronize", SYNC, True),
        ("cudaThreadSynchronize", SYNC, True),
        ("cudaFree", ALLOC, True),
        ("cudaFreeHost", ALLOC, True),
        ("cudaHostUnregister", ALLOC, True),
        ("cudaHostAlloc", ALLOC, False),
        ("cudaMalloc", ALLOC, False),
        ("cudaMemset", API, False),
        ("cuMemcpyDtoD", API, False),
    ],
)
def test_a_call_while_a_kernel_runs(name: str, cause: int, waits: bool):
    """Measured: 100 ms of a kernel on another stream hold these up, and those not."""
    profile = make(
        ops=[op(10, 100_000, call=1), op(130_000, 140_000, call=3)],
        calls=[call(5, 8, 1), call(20, 100_020, 2, name), call(120_000, 120_005, 3)],
    )
    (data,) = ranks_of(profile)
    assert call_causes(data)[1] == cause
    held = host_waits(data)
    assert list(zip(held.call.tolist(), held.op.tolist(), strict=True)) == ([(1, 0)] if waits else [])


def test_a_hip_copy_with_a_stream_waits_for_itself():
    profile = make(
        ops=[op(10, 500, call=1), op(510, 560, "[memcpy DtoH]", call=2, kind="memcpy", copy_kind="DtoH")],
        calls=[call(5, 8, 1, "hipLaunchKernel"), call(20, 570, 2, "hipMemcpyWithStream")],
    )
    (data,) = ranks_of(profile)
    held = host_waits(data)
    assert (held.call.tolist(), held.op.tolist()) == ([1], [1])
