"""The tables of the model, column by column. docs/model.md is generated from this file.

A *source* delivers tables keyed by `proc`, the index of a process within that source, with name ids of its own. The
profile turns `proc` into `rank`, merges names, and adds the derived columns. A table has up to two parts: `core`,
which nearly every question needs, and `detail`, which is read only when asked for.
"""

from __future__ import annotations

import polars as pl

from stepscope.model.columns import (
    ALLOC_ACTION,
    API,
    BLOCK_STATE,
    COPY_KIND,
    DEPENDENCY_KIND,
    HOST_KIND,
    MEM_KIND,
    OFF_CPU_STATE,
    OP_KIND,
    RANGE_KIND,
    RECORD_KIND,
    ROLE,
    SAMPLE_KIND,
    SYNC_KIND,
    Column,
    Dtype,
    Part,
    Table,
)

#: Bumped whenever a column's meaning changes: old cache entries are then never read.
MODEL_VERSION = 7

#: No message or copy is larger (16 TiB), and sums of sizes up to it do not overflow.
_MOST_BYTES = 1 << 44
#: No job has more ranks.
MOST_RANKS = 1 << 20


def _id(name: str, doc: str, part: Part = "core", *, nullable: bool = False) -> Column:
    return Column(name, pl.UInt32, doc + " (id in the string table)", part, name_id=True, nullable=nullable)


def _detail(name: str, dtype: Dtype, doc: str) -> Column:
    return Column(name, dtype, doc, "detail", nullable=True)


def _size(name: str, doc: str) -> Column:
    return Column(name, pl.Int32, doc, "detail", launch=True, nullable=True, least=0)


def _detail_id(name: str, doc: str) -> Column:
    return _id(name, doc, "detail", nullable=True)


def _bytes(doc: str, part: Part = "core") -> Column:
    return Column("bytes", pl.Int64, doc, part, nullable=True, least=0, most=_MOST_BYTES)


def _correlation(doc: str) -> Column:
    return Column("correlation", pl.Int64, doc, nullable=True)


def _member(name: str, doc: str, least: int = 0) -> Column:
    """A rank of a communicator, or how many there are."""
    return Column(name, pl.Int32, doc, nullable=True, least=least, most=MOST_RANKS)


_RANK = Column("rank", pl.Int32, "rank of the process")
_START = Column("start_ns", pl.Int64, "start, nanoseconds on the clock of the source")
_END = Column("end_ns", pl.Int64, "end (half open), nanoseconds on the clock of the source")
_TID = Column("tid", pl.Int32, "thread of the host; -1 where the source does not say", instead=-1)

OPS = Table(
    "ops",
    "GPU activities: kernels, copies, memsets, and whole CUDA graphs where only those were recorded.",
    (
        _RANK,
        Column("kind", OP_KIND, "what it is"),
        _id("name", "full (demangled) kernel name; `[memcpy HtoD]`, `[memset]`, `[graph N]` for the others"),
        Column("device", pl.Int32, "CUDA ordinal of the device within the process", instead=0),
        Column("stream", pl.Int32, "stream id within the process; -1 where there is none", instead=-1),
        _START,
        _END,
        _correlation("links to the launching call of the same rank; null where the trace has none"),
        _bytes("bytes moved, for copies and memsets; null for kernels"),
        Column("copy_kind", COPY_KIND, "direction of a copy; `none` for everything else", instead="none"),
        Column("role", ROLE, "compute, comm (by the taxonomy; peer copies too) or copy", derived=True),
        Column(
            "launch",
            pl.UInt32,
            "row, within the rank's calls, of the call that launched it; null where unknown",
            derived=True,
        ),
        _detail("context", pl.Int32, "CUDA context id"),
        _detail_id("short_name", "kernel name without templates and arguments, as the source gives it"),
        _detail_id("mangled_name", "mangled kernel name, where the source has it"),
        *(_size(f"grid_{axis}", "grid size") for axis in "xyz"),
        *(_size(f"block_{axis}", "block size") for axis in "xyz"),
        _size("registers", "registers per thread"),
        _size("smem_static", "static shared memory, bytes"),
        _size("smem_dynamic", "dynamic shared memory, bytes"),
        _detail("src_kind", MEM_KIND, "memory a copy reads; for a memset, the memory it sets"),
        _detail("dst_kind", MEM_KIND, "memory a copy writes"),
        _detail("src_device", pl.Int32, "device a peer copy reads from"),
        _detail("dst_device", pl.Int32, "device a peer copy writes to"),
        _detail("graph_node", pl.Int64, "CUDA graph node; null outside graphs"),
        _detail("external_id", pl.Int64, "torch's id of the host op that launched it (Kineto)"),
        _detail("occupancy_pct", pl.Float64, "estimated achieved occupancy (Kineto)"),
        _detail("green_context", pl.Int32, "CUDA green context; null outside one"),
        _detail_id("device_name", "name of the device"),
        _detail("copy_code", pl.Int16, "nsys's number of a copy's direction"),
        _detail("src_code", pl.Int16, "nsys's number of the memory a copy reads, or a memset sets"),
        _detail("dst_code", pl.Int16, "nsys's number of the memory a copy writes"),
        _detail("row", pl.Int64, "number of the record in the source's own table"),
        _detail(
            "op_id", pl.Int64, "its number within the rank, as `dependencies` refers to it; null where nothing does"
        ),
    ),
)

CALLS = Table(
    "calls",
    "Host-side CUDA (HIP) API calls.",
    (
        _RANK,
        _TID,
        _id("name", "API name without version suffix: `cudaLaunchKernel`, not `cudaLaunchKernel_v7000`"),
        _START,
        _END,
        _correlation("links to the ops it launched"),
        _id("raw_name", "API name as recorded; null where the source has only `name`", nullable=True),
        _detail("api", API, "runtime or driver API"),
        _detail("return_value", pl.Int32, "status the call returned"),
        _detail("callchain", pl.Int64, "native call stack: `chain` of `stacks`"),
        _detail("python_chain", pl.Int64, "Python call stack: `chain` of `stacks`"),
        _detail("external_id", pl.Int64, "torch's id of the enclosing host op (Kineto)"),
        _detail_id("thread_name", "name of the calling thread"),
        _detail("thread_priority", pl.Int32, "scheduling priority of the calling thread"),
        _detail("row", pl.Int64, "number of the record in the source's own table"),
    ),
)

RANGES = Table(
    "ranges",
    "NVTX ranges and torch annotations, on the host's timeline. Rows that start before the capture are dropped.",
    (
        _RANK,
        _TID,
        _id("name", "the text of the range"),
        _START,
        _END,
        Column("kind", RANGE_KIND, "push/pop (nests per thread), start/end (may cross threads), or a mark (no length)"),
        _id("domain", "NVTX domain; null for the default one", nullable=True),
        Column("closed", pl.Boolean, "false where the capture ended before the range did", instead=True),
        Column(
            "domain_recorded",
            pl.Boolean,
            "the trace itself names the domain; else `domain` is inferred",
            nullable=True,
        ),
        Column("end_tid", pl.Int32, "thread that ended the range, where it is another one", nullable=True),
        Column("parent", pl.UInt32, "row, within the rank's ranges, of the range it lies in", derived=True),
        Column("depth", pl.UInt16, "number of ranges it lies in, same thread", derived=True),
        _detail("registered", pl.Boolean, "the text was a registered string"),
        _detail("color", pl.UInt32, "ARGB colour"),
        _detail("category", pl.Int64, "NVTX category"),
        _detail("domain_id", pl.Int64, "domain number within the process"),
        _detail("nsys_type", pl.Int32, "nsys event type (59 push/pop, 60 start/end, 34 mark)"),
        _detail("row", pl.Int64, "number of the record in the source's own table"),
    ),
)

SYNCS = Table(
    "syncs",
    "Synchronization: event records, waits of streams for events, and waits of the host. Times are the host call's.",
    (
        _RANK,
        Column("kind", SYNC_KIND, "by the name of the API call where it is known, never by nsys's number"),
        Column(
            "stream",
            pl.Int32,
            "the waiting stream, or the one waited for, or recorded on; -1 for a whole context",
            instead=-1,
        ),
        _START,
        _END,
        Column("event", pl.Int64, "id shared by a record and the waits for it, within the rank", nullable=True),
        _correlation("the host call"),
    ),
)

COUNTERS = Table(
    "counters",
    "Sampled counters: GPU metrics, memory, power.",
    (
        _RANK,
        Column("device", pl.Int32, "device of the counter; null for the host", nullable=True),
        _id("name", "name of the metric"),
        Column("start_ns", pl.Int64, "time of the sample"),
        Column("value", pl.Float64, "its value"),
    ),
    keys=("start_ns",),
)

HOST = Table(
    "host",
    "What the host did besides CUDA calls and ranges: torch ops, Python functions, calls of the OS and of libraries.",
    (
        _RANK,
        _TID,
        Column(
            "kind",
            HOST_KIND,
            "cpu_op (torch), python (function), osrt (OS runtime), gil, compile, gc; libraries: mpi, cublas, …; other",
        ),
        _id("name", "name of the op, function or call"),
        _START,
        _END,
        _detail("external_id", pl.Int64, "torch's id that the CUDA calls it makes carry too"),
        _detail("sequence", pl.Int64, "autograd sequence number: forward and backward share it"),
        _detail("fwd_tid", pl.Int64, "thread of the forward op, on backward ops"),
        _detail("python_id", pl.Int64, "id of a Python frame"),
        _detail("python_parent", pl.Int64, "id of the Python frame that called it"),
        _detail_id("shapes", "input shapes as recorded"),
        _detail_id("types", "input types as recorded"),
        _detail_id("inputs", "values of inputs that are not tensors, as recorded"),
        _detail("callchain", pl.Int64, "call chain of the source's stack table"),
    ),
)

COMMS = Table(
    "comms",
    "Communication calls with what the framework or NCCL said about them: communicator, bytes, peer.",
    (
        _RANK,
        Column("tid", pl.Int32, "thread of the host; null where the record sits on the kernel", nullable=True),
        _START,
        _END,
        _correlation("of the kernel, where the record sits on the kernel (Kineto); else null"),
        _id("op", "operation as the source names it: `ncclAllReduce`, `allreduce`, `all_to_allv`"),
        _id("communicator", "communicator or group id, the same text on all its ranks; null if unknown", nullable=True),
        _bytes("message size as the source states it (see docs/model.md: sources differ)"),
        _member("peer", "peer (send, recv) or root (broadcast, reduce), as communicator rank"),
        _member("comm_rank", "own rank in the communicator"),
        _member("comm_size", "ranks in the communicator", least=1),
        _id("members", "global ranks of the communicator, as written: `[0, 1]`", nullable=True),
        _id("group_name", "what the framework calls the group: `ep`, `default_pg`", nullable=True),
        Column(
            "depth",
            pl.Int32,
            "nesting of ncclGroupStart around it: above 0, the outermost group end launches",
            instead=0,
            least=0,
        ),
        _detail("in_elements", pl.Int64, "input elements (Kineto)"),
        _detail("out_elements", pl.Int64, "output elements (Kineto)"),
        _detail_id("dtype", "element type"),
        _detail_id("reduction", "reduction operation"),
        _detail("sequence", pl.Int64, "the framework's own sequence number, where given"),
    ),
)

RECORDS = Table(
    "records",
    "What only the reports in nsys's manner ask for, of every process in the source, ranks or not (`pid` tells).",
    (
        Column("rank", pl.Int32, "rank of the process; the source's first one for a process that is not a rank"),
        Column("kind", RECORD_KIND, "which trace it is from"),
        _id("name", "name of the call, event or overhead", nullable=True),
        _START,
        _END,
        Column("pid", pl.Int64, "process", instead=0),
        _TID,
        Column("event_class", pl.Int32, "nsys's class of the event", nullable=True),
        Column("row", pl.Int64, "number of the record in the source's own table", instead=0),
        _detail_id("file", "source file (OpenACC)"),
        _detail("line", pl.Int64, "line in the source file (OpenACC)"),
        _detail("tag", pl.Int64, "message tag (MPI)"),
        _detail("mpi_rank", pl.Int64, "own rank (MPI)"),
        _detail("peer", pl.Int64, "rank of the partner (MPI)"),
        _detail("root", pl.Int64, "root rank (MPI collectives)"),
        _bytes("bytes sent", "detail"),
        _detail("recv_bytes", pl.Int64, "bytes received (MPI collectives)"),
        _detail("address", pl.Int64, "virtual address (unified memory)"),
        _detail("count", pl.Int64, "page faults in the record (unified memory)"),
    ),
)

STACKS = Table(
    "stacks",
    "Call stacks, frame by frame: of CUDA calls (nsys: `--cudabacktrace`, `--python-backtrace=cuda`), of Python "
    "samples (`--python-sampling`), of allocations.",
    (
        _RANK,
        Column(
            "chain",
            pl.Int64,
            "which stack, as `calls`, `samples` and `allocations` refer to it; negative for nsys's Python",
        ),
        Column("depth", pl.Int32, "place in it: 0 is the innermost frame"),
        _id("name", "function or symbol"),
        _id("file", "Python file, or the module (library) of a symbol", nullable=True),
        Column("line", pl.Int32, "line in the Python file; null for native frames", nullable=True),
    ),
    keys=("chain", "depth"),
)

TIMERS = Table(
    "timers",
    "Block timers of a log: how long the program itself says that a block took.",
    (
        _RANK,
        Column("row", pl.Int64, "order in the log"),
        _id("name", "the block"),
        Column("k", pl.Int64, "chunk that it worked on; null where the log does not say", nullable=True),
        Column("dur_ns", pl.Int64, "how long it took", least=0),
        Column(
            "synchronized",
            pl.Boolean,
            "the timer waited for the GPU: a share of time, never a throughput",
            instead=False,
        ),
        _id("under", "resolution and configuration that it was timed under, where the log says them", nullable=True),
    ),
    keys=("row",),
)

_SOURCE = Column("source", pl.Int32, "which of the profile's sources it came from", derived=True)
_KERNEL = Column("kernel", pl.Int64, "which measured kernel of the source: its place in the report", least=0)

MEASURED = Table(
    "measured",
    "Kernels that Nsight Compute measured, one row per launch, in the order of the report. They are of no timeline.",
    (
        _SOURCE,
        _KERNEL,
        _id("name", "full kernel name, as the report spells it"),
        Column("pid", pl.Int64, "process that launched it; null where the report does not say", nullable=True),
        Column("device", pl.Int32, "CUDA ordinal of the device", instead=0),
        Column("context", pl.Int32, "CUDA context id", nullable=True),
        Column("stream", pl.Int32, "stream id within the process; -1 where there is none", instead=-1),
        *(Column(f"grid_{axis}", pl.Int32, "grid size", nullable=True) for axis in "xyz"),
        *(Column(f"block_{axis}", pl.Int32, "block size", nullable=True) for axis in "xyz"),
        Column("dur_ns", pl.Int64, "how long it took while it was measured", nullable=True, least=0),
        _id("gpu", "name of the device", nullable=True),
        _id("cc", "compute capability: `9.0`", nullable=True),
        _id("nvtx", "ranges around its launch, outermost first, joined by `/`", nullable=True),
        _detail_id("mangled_name", "mangled kernel name, where the source has it"),
        _size("registers", "registers per thread"),
        _size("smem_static", "static shared memory, bytes"),
        _size("smem_dynamic", "dynamic shared memory, bytes"),
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
        _id("name", "name of the metric: `dram__bytes_read.sum`; a label of the details page that has no known name"),
        _id("unit", "unit without prefixes; times are in ns, rates per second (`/s`)", nullable=True),
        Column("value", pl.Float64, "its value; null for a text", nullable=True),
        _id("text", "its value where that is a text", nullable=True),
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
        _id("rule", "name of the rule: `SOLBottleneck`"),
        _id("section", "section it belongs to", nullable=True),
        _id("kind", "OPT (something to gain), INF, WRN or ERR", nullable=True),
        _id("text", "what it says"),
        Column("speedup_pct", pl.Float64, "speed-up that it estimates; null where it gives none", nullable=True),
        _id("speedup_of", "`global`, of the kernel, or `local`, of the part that it is about", nullable=True),
    ),
    keys=("kernel",),
    ranked=False,
)

ALLOCATIONS = Table(
    "allocations",
    "What PyTorch's CUDA allocator did: blocks given out and taken back, segments asked of CUDA and returned to it.",
    (
        _RANK,
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
        _bytes("bytes asked for, where the block may be larger (snapshots); the size of the block (Kineto)"),
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
        _RANK,
        Column("device", pl.Int32, "CUDA ordinal of the device within the process", instead=0),
        Column("address", pl.Int64, "address of the block"),
        _bytes("its size"),
        Column("requested_bytes", pl.Int64, "what was asked for, where it lives", nullable=True, least=0),
        Column("state", BLOCK_STATE, "allocated; pending: given back, but a stream may still use it; free"),
        Column("segment", pl.Int64, "address of the segment that it is part of"),
        Column("segment_bytes", pl.Int64, "size of that segment", least=0, most=_MOST_BYTES),
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
        _RANK,
        _TID,
        Column("start_ns", pl.Int64, "time of the sample"),
        Column("kind", SAMPLE_KIND, "native (`--sample`) or python (`--python-sampling`)"),
        _id("name", "the innermost function"),
        _id("file", "its module (library), or its Python file", nullable=True),
        Column("line", pl.Int32, "line in the Python file; null for native samples", nullable=True),
        _detail("chain", pl.Int64, "the whole stack of a Python sample: `chain` of `stacks`"),
    ),
    keys=("start_ns",),
)

OFF_CPU = Table(
    "off_cpu",
    "Stretches in which a thread was on no CPU, by the scheduler's own events.",
    (
        _RANK,
        _TID,
        _START,
        _END,
        Column("state", OFF_CPU_STATE, "waiting (for something), runnable (another had the CPU), unknown"),
        _id("reason", "what it waited for, where the system says: `Mutex`, `DelayExecution`", nullable=True),
    ),
)

DEPENDENCIES = Table(
    "dependencies",
    "Which op had to wait for which, where the source itself says so: nodes of CUDA graphs (torch's .pftrace).",
    (
        _RANK,
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

_ALL = (
    OPS, CALLS, RANGES, SYNCS, COUNTERS, HOST, COMMS, RECORDS, STACKS, TIMERS, MEASURED, METRICS, ADVICE, ALLOCATIONS,
    BLOCKS, SAMPLES, OFF_CPU, DEPENDENCIES,
)  # fmt: skip
TABLES: dict[str, Table] = {t.name: t for t in _ALL}

#: One row per process of a source; the profile's `ranks` table is made of these.
PROCESSES: dict[str, Dtype] = {
    "proc": pl.Int32,
    "pid": pl.Int64,
    "host": pl.String,
    "device": pl.Int32,
    "gpu": pl.String,
    "gpu_id": pl.Int64,
    "rank": pl.Int32,
    "rank_from": pl.String,
    "setup": pl.String,
    "world_size": pl.Int32,
    "devices": pl.String,  # `0,1,2,3`: the GPUs of a process that computes on several
}


def empty(table: str, part: Part = "core") -> pl.DataFrame:
    """The table with no rows: what a source returns for what it does not have."""
    return pl.DataFrame(schema=TABLES[table].part(part))
