"""Tables of the model beside the timeline: measured kernels, memory, samples, dependencies."""

from __future__ import annotations

import polars as pl

from stepscope.model.columns import (
    ALLOC_ACTION,
    BLOCK_STATE,
    DEPENDENCY_KIND,
    OFF_CPU_STATE,
    SAMPLE_KIND,
    Column,
    Table,
)
from stepscope.model.fields import (
    END,
    MOST_BYTES,
    RANK,
    START,
    TID,
    detail,
    detail_id,
    in_bytes,
    name_id,
    size,
)

_SOURCE = Column("source", pl.Int32, "which of the profile's sources it came from", derived=True)

_KERNEL = Column("kernel", pl.Int64, "which measured kernel of the source: its place in the report", least=0)

MEASURED = Table(
    "measured",
    "Kernels that Nsight Compute measured, one row per launch, in the order of the report. They are of no timeline.",
    (
        _SOURCE,
        _KERNEL,
        name_id("name", "full kernel name, as the report spells it"),
        Column("pid", pl.Int64, "process that launched it; null where the report does not say", nullable=True),
        Column("device", pl.Int32, "CUDA ordinal of the device", instead=0),
        Column("context", pl.Int32, "CUDA context id", nullable=True),
        Column("stream", pl.Int32, "stream id within the process; -1 where there is none", instead=-1),
        *(Column(f"grid_{axis}", pl.Int32, "grid size", nullable=True) for axis in "xyz"),
        *(Column(f"block_{axis}", pl.Int32, "block size", nullable=True) for axis in "xyz"),
        Column("dur_ns", pl.Int64, "how long it took while it was measured", nullable=True, least=0),
        name_id("gpu", "name of the device", nullable=True),
        name_id("cc", "compute capability: `9.0`", nullable=True),
        name_id("nvtx", "ranges around its launch, outermost first, joined by `/`", nullable=True),
        detail_id("mangled_name", "mangled kernel name, where the source has it"),
        size("registers", "registers per thread"),
        size("smem_static", "static shared memory, bytes"),
        size("smem_dynamic", "dynamic shared memory, bytes"),
    ),
    keys=("kernel",),
    ranked=False,
)

METRICS = Table(
    "metrics",
    "What Nsight Compute measured or derived of a kernel, in long form. Units are without prefixes: byte, not Mbyte.",
    (
        _SOURCE,
        _KERNEL,
        name_id(
            "name", "name of the metric: `dram__bytes_read.sum`; a label of the details page that has no known name"
        ),
        name_id("unit", "unit without prefixes; times are in ns, rates per second (`/s`)", nullable=True),
        Column("value", pl.Float64, "its value; null for a text", nullable=True),
        name_id("text", "its value where that is a text", nullable=True),
    ),
    keys=("kernel",),
    ranked=False,
)

ADVICE = Table(
    "advice",
    "What the rules of Nsight Compute say of a kernel.",
    (
        _SOURCE,
        _KERNEL,
        name_id("rule", "name of the rule: `SOLBottleneck`"),
        name_id("section", "section it belongs to", nullable=True),
        name_id("kind", "OPT (something to gain), INF, WRN or ERR", nullable=True),
        name_id("text", "what it says"),
        Column("speedup_pct", pl.Float64, "speed-up that it estimates; null where it gives none", nullable=True),
        name_id("speedup_of", "`global`, of the kernel, or `local`, of the part that it is about", nullable=True),
    ),
    keys=("kernel",),
    ranked=False,
)

ALLOCATIONS = Table(
    "allocations",
    "What PyTorch's CUDA allocator did: blocks given out and taken back, segments asked of CUDA and returned to it.",
    (
        RANK,
        Column("row", pl.Int64, "order of the events"),
        Column("start_ns", pl.Int64, "time; null where the snapshot has none", nullable=True),
        Column(
            "action",
            ALLOC_ACTION,
            "a block: alloc, free_requested (a stream may still use it), free; a segment; oom: out of memory",
            instead="unknown",
        ),
        Column("device", pl.Int32, "CUDA ordinal of the device within the process", instead=0),
        Column("stream", pl.Int64, "stream of the block or segment, as the allocator numbers it", nullable=True),
        Column("address", pl.Int64, "address of the block or segment", nullable=True),
        in_bytes("bytes asked for, where the block may be larger (snapshots); the size of the block (Kineto)"),
        Column("chain", pl.Int64, "where in the program: `chain` of `stacks` (snapshots)", nullable=True),
        Column("tid", pl.Int32, "thread of the host (Kineto)", nullable=True),
        Column("allocated_bytes", pl.Int64, "what the allocator had given out afterwards (Kineto)", nullable=True),
        Column("reserved_bytes", pl.Int64, "what it had of CUDA afterwards (Kineto)", nullable=True),
        Column("free_bytes", pl.Int64, "free on the device when memory ran out (oom)", nullable=True),
    ),
    keys=("row",),
)

BLOCKS = Table(
    "blocks",
    "The allocator's segments at the end, block by block: what lives there, and what is free (snapshots).",
    (
        RANK,
        Column("device", pl.Int32, "CUDA ordinal of the device within the process", instead=0),
        Column("address", pl.Int64, "address of the block"),
        in_bytes("its size"),
        Column("requested_bytes", pl.Int64, "what was asked for, where it lives", nullable=True, least=0),
        Column("state", BLOCK_STATE, "allocated; pending: given back, but a stream may still use it; free"),
        Column("segment", pl.Int64, "address of the segment that it is part of"),
        Column("segment_bytes", pl.Int64, "size of that segment", least=0, most=MOST_BYTES),
        Column("stream", pl.Int64, "stream of the segment", nullable=True),
        Column("small", pl.Boolean, "the segment is of the pool for blocks up to 1 MiB", instead=False),
        Column("expandable", pl.Boolean, "an expandable segment, which grows and shrinks by pages", instead=False),
        Column("chain", pl.Int64, "who allocated it: `chain` of `stacks`, where recorded", nullable=True),
    ),
    keys=("device", "address"),
)

SAMPLES = Table(
    "samples",
    "What threads ran when the profiler looked: the C++ function by CPU sampling, the Python one by Python sampling.",
    (
        RANK,
        TID,
        Column("start_ns", pl.Int64, "time of the sample"),
        Column("kind", SAMPLE_KIND, "native (`--sample`) or python (`--python-sampling`)"),
        name_id("name", "the innermost function"),
        name_id("file", "its module (library), or its Python file", nullable=True),
        Column("line", pl.Int32, "line in the Python file; null for native samples", nullable=True),
        detail("chain", pl.Int64, "the whole stack of a Python sample: `chain` of `stacks`"),
    ),
    keys=("start_ns",),
)

OFF_CPU = Table(
    "off_cpu",
    "Stretches in which a thread was on no CPU, by the scheduler's own events.",
    (
        RANK,
        TID,
        START,
        END,
        Column("state", OFF_CPU_STATE, "waiting (for something), runnable (another had the CPU), unknown"),
        name_id("reason", "what it waited for, where the system says: `Mutex`, `DelayExecution`", nullable=True),
    ),
)

DEPENDENCIES = Table(
    "dependencies",
    "Which op had to wait for which, where the source itself says so: nodes of CUDA graphs (torch's .pftrace).",
    (
        RANK,
        Column("start_ns", pl.Int64, "start of the op that waited"),
        Column("op_id", pl.Int64, "the op that waited, as `ops` has it"),
        Column("after_id", pl.Int64, "the op that had to be over first: its `op_id`"),
        Column(
            "kind",
            DEPENDENCY_KIND,
            "graph: both are nodes of one launch of a CUDA graph, whose streams do not order them; other: beside what "
            "its stream orders",
            instead="other",
        ),
    ),
    keys=("start_ns", "op_id", "after_id"),
)
