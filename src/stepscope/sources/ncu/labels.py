"""The labels of ncu's details page as names of metrics, so that both pages answer the same questions.

The page prints a metric by the label that its section gives it, and the same label may be another metric in another
section. Only those that a question asks for are listed; the others keep their label. `tests/sources/ncu` compares
them with the raw page of the same report.
"""

from __future__ import annotations

_PEAK = "avg.pct_of_peak_sustained_elapsed"

#: By section and label.
METRIC_OF = {
    ("GPU Speed Of Light Throughput", label): metric
    for label, metric in {
        "DRAM Frequency": "dram__cycles_elapsed.avg.per_second",
        "SM Frequency": "gpc__cycles_elapsed.avg.per_second",
        "Elapsed Cycles": "gpc__cycles_elapsed.max",
        "Memory Throughput": f"gpu__compute_memory_throughput.{_PEAK}",
        "DRAM Throughput": f"gpu__dram_throughput.{_PEAK}",
        "Duration": "gpu__time_duration.sum",
        "L1/TEX Cache Throughput": "l1tex__throughput.avg.pct_of_peak_sustained_active",
        "L2 Cache Throughput": f"lts__throughput.{_PEAK}",
        "SM Active Cycles": "sm__cycles_active.avg",
        "Compute (SM) Throughput": f"sm__throughput.{_PEAK}",
    }.items()
} | {
    ("Memory Workload Analysis", "Memory Throughput"): "dram__bytes.sum.per_second",
    ("Memory Workload Analysis", "L1/TEX Hit Rate"): "l1tex__t_sector_hit_rate.pct",
    ("Memory Workload Analysis", "L2 Hit Rate"): "lts__t_sector_hit_rate.pct",
    ("Scheduler Statistics", "Issued Warp Per Scheduler"): "smsp__issue_active.avg.per_cycle_active",
    ("Scheduler Statistics", "Active Warps Per Scheduler"): "smsp__warps_active.avg.per_cycle_active",
    ("Scheduler Statistics", "Eligible Warps Per Scheduler"): "smsp__warps_eligible.avg.per_cycle_active",
    ("Warp State Statistics", "Warp Cycles Per Issued Instruction"): "smsp__average_warp_latency_per_inst_issued.ratio",
    ("Instruction Statistics", "Executed Instructions"): "smsp__inst_executed.sum",
    ("Launch Statistics", "Registers Per Thread"): "launch__registers_per_thread",
    ("Launch Statistics", "Dynamic Shared Memory Per Block"): "launch__shared_mem_per_block_dynamic",
    ("Launch Statistics", "Static Shared Memory Per Block"): "launch__shared_mem_per_block_static",
    ("Launch Statistics", "# SMs"): "launch__sm_count",
    ("Launch Statistics", "Threads"): "launch__thread_count",
    ("Launch Statistics", "Waves Per SM"): "launch__waves_per_multiprocessor",
    ("Occupancy", "Theoretical Occupancy"): "sm__maximum_warps_per_active_cycle_pct",
    ("Occupancy", "Achieved Occupancy"): "sm__warps_active.avg.pct_of_peak_sustained_active",
}
