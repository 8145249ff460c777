"""All reports and rules by name, with the names they had before."""

from __future__ import annotations

from functools import cache

from stepscope.errors import BadInput, meant_of
from stepscope.nsys.reports import cuda, host, kernexec, nvtx, nvtxkern, projection, rules
from stepscope.nsys.reports.spec import Args, Report

#: Shown where no report is named. nsys lists more: those of graphics APIs have no place here.
DEFAULT_REPORTS = (
    *("nvtx_sum", "osrt_sum", "cuda_api_sum", "cuda_gpu_kern_sum", "cuda_gpu_mem_time_sum", "cuda_gpu_mem_size_sum"),
    *("openmp_sum", "um_sum", "um_total_sum", "um_cpu_page_faults_sum", "openacc_sum"),
)

ALIASES = {
    "apigpusum": "cuda_api_gpu_sum",
    "cudaapisum": "cuda_api_sum",
    "cudaapitrace": "cuda_api_trace",
    "gpukerngbsum": "cuda_gpu_kern_gb_sum",
    "gpukernsum": "cuda_gpu_kern_sum",
    "gpumemsizesum": "cuda_gpu_mem_size_sum",
    "gpumemtimesum": "cuda_gpu_mem_time_sum",
    "gpusum": "cuda_gpu_sum",
    "gputrace": "cuda_gpu_trace",
    "kernexecsum": "cuda_kern_exec_sum",
    "kernexectrace": "cuda_kern_exec_trace",
    "nvtxgpuproj": "nvtx_gpu_proj_trace",
    "nvtxkernsum": "nvtx_kern_sum",
    "nvtxppsum": "nvtx_pushpop_sum",
    "nvtxpptrace": "nvtx_pushpop_trace",
    "nvtxsesum": "nvtx_startend_sum",
    "nvtxsssum": "nvtx_startend_sum",
    "nvtxsum": "nvtx_sum",
    "openaccsum": "openacc_sum",
    "openmpevtsum": "openmp_sum",
    "osrtsum": "osrt_sum",
    "umcpupagefaults": "um_cpu_page_faults_sum",
    "unifiedmemory": "um_sum",
    "unifiedmemorytotals": "um_total_sum",
    "cuda-async-memcpy": "cuda_memcpy_async",
    "cuda-sync-memcpy": "cuda_memcpy_sync",
    "cuda-sync-memset": "cuda_memset_sync",
    "cuda-sync-api": "cuda_api_sync",
    "gpu-starv": "gpu_gaps",
    "gpu-starvation": "gpu_gaps",
    "gpu-low-util": "gpu_time_util",
    "gpu-low-utilization": "gpu_time_util",
}


@cache
def reports() -> dict[str, Report]:
    modules = (cuda, kernexec, nvtx, projection, nvtxkern, host)
    return {r.name: r for module in modules for r in module.REPORTS}


@cache
def all_rules() -> dict[str, Report]:
    return {r.name: r for r in rules.RULES}


def find(text: str, among: dict[str, Report], what: str = "report") -> tuple[Report, Args]:
    """`name[:argument…]`: the report and its arguments, unstated ones with their defaults."""
    name, *arguments = text.split(":")
    full_name = ALIASES.get(name, name)
    if full_name not in among:
        raise BadInput(f"no {what} {name!r}", meant_of(full_name, among))
    report = among[full_name]
    return report, report.parse(arguments)
