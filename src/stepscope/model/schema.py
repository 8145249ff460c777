"""The tables of the model, column by column. docs/model.md is generated from this file.

A *source* delivers tables keyed by `proc`, the index of a process within that source, with name ids of its own. The
profile turns `proc` into `rank`, merges names, and adds the derived columns. A table has up to two parts: `core`,
which nearly every question needs, and `detail`, which is read only when asked for.
"""

from __future__ import annotations

import polars as pl

from stepscope.model.columns import (
    API,
    COPY_KIND,
    HOST_KIND,
    MEM_KIND,
    OP_KIND,
    RANGE_KIND,
    RECORD_KIND,
    ROLE,
    SYNC_KIND,
    Column,
    Dtype,
    Part,
    Table,
)
from stepscope.model.fields import (
    END,
    RANK,
    START,
    TID,
    correlation,
    detail,
    detail_id,
    in_bytes,
    member,
    name_id,
    size,
)
from stepscope.model.more_tables import ADVICE, ALLOCATIONS, BLOCKS, DEPENDENCIES, MEASURED, METRICS, OFF_CPU, SAMPLES

#: Bumped whenever a column's meaning changes: old cache entries are then never read.
MODEL_VERSION = 7


OPS = Table(
    "ops",
    "GPU activities: kernels, copies, memsets, and whole CUDA graphs where only those were recorded.",
    (
        RANK,
        Column("kind", OP_KIND, "what it is"),
        name_id("name", "full (demangled) kernel name; `[memcpy HtoD]`, `[memset]`, `[graph N]` for the others"),
        Column("device", pl.Int32, "CUDA ordinal of the device within the process", instead=0),
        Column("stream", pl.Int32, "stream id within the process; -1 where there is none", instead=-1),
        START,
        END,
        correlation("links to the launching call of the same rank; null where the trace has none"),
        in_bytes("bytes moved, for copies and memsets; null for kernels"),
        Column("copy_kind", COPY_KIND, "direction of a copy; `none` for everything else", instead="none"),
        Column("role", ROLE, "compute, comm (by the taxonomy; peer copies too) or copy", derived=True),
        Column(
            "launch",
            pl.UInt32,
            "row, within the rank's calls, of the call that launched it; null where unknown",
            derived=True,
        ),
        detail("context", pl.Int32, "CUDA context id"),
        detail_id("short_name", "kernel name without templates and arguments, as the source gives it"),
        detail_id("mangled_name", "mangled kernel name, where the source has it"),
        *(size(f"grid_{axis}", "grid size") for axis in "xyz"),
        *(size(f"block_{axis}", "block size") for axis in "xyz"),
        size("registers", "registers per thread"),
        size("smem_static", "static shared memory, bytes"),
        size("smem_dynamic", "dynamic shared memory, bytes"),
        detail("src_kind", MEM_KIND, "memory a copy reads; for a memset, the memory it sets"),
        detail("dst_kind", MEM_KIND, "memory a copy writes"),
        detail("src_device", pl.Int32, "device a peer copy reads from"),
        detail("dst_device", pl.Int32, "device a peer copy writes to"),
        detail("graph_node", pl.Int64, "CUDA graph node; null outside graphs"),
        detail_id("annotation", "what the program called it when it captured the graph (torch.cuda.graph_annotations)"),
        detail_id("annotation_phase", "the pass that it said: `backward`; null for forward, and where nothing is said"),
        detail_id(
            "annotation_stack", "where it was launched then: `file:line:function`, innermost first, line by line"
        ),
        detail("external_id", pl.Int64, "torch's id of the host op that launched it (Kineto)"),
        detail("occupancy_pct", pl.Float64, "estimated achieved occupancy (Kineto)"),
        detail("green_context", pl.Int32, "CUDA green context; null outside one"),
        detail_id("device_name", "name of the device"),
        detail("copy_code", pl.Int16, "nsys's number of a copy's direction"),
        detail("src_code", pl.Int16, "nsys's number of the memory a copy reads, or a memset sets"),
        detail("dst_code", pl.Int16, "nsys's number of the memory a copy writes"),
        detail("row", pl.Int64, "number of the record in the source's own table"),
        detail(
            "op_id", pl.Int64, "its number within the rank, as `dependencies` refers to it; null where nothing does"
        ),
    ),
)

CALLS = Table(
    "calls",
    "Host-side CUDA (HIP) API calls.",
    (
        RANK,
        TID,
        name_id("name", "API name without version suffix: `cudaLaunchKernel`, not `cudaLaunchKernel_v7000`"),
        START,
        END,
        correlation("links to the ops it launched"),
        name_id("raw_name", "API name as recorded; null where the source has only `name`", nullable=True),
        detail("api", API, "runtime or driver API"),
        detail("return_value", pl.Int32, "status the call returned"),
        detail("callchain", pl.Int64, "native call stack: `chain` of `stacks`"),
        detail("python_chain", pl.Int64, "Python call stack: `chain` of `stacks`"),
        detail("external_id", pl.Int64, "torch's id of the enclosing host op (Kineto)"),
        detail_id("thread_name", "name of the calling thread"),
        detail("thread_priority", pl.Int32, "scheduling priority of the calling thread"),
        detail("row", pl.Int64, "number of the record in the source's own table"),
    ),
)

RANGES = Table(
    "ranges",
    "NVTX ranges and torch annotations, on the host's timeline. Rows that start before the capture are dropped.",
    (
        RANK,
        TID,
        name_id("name", "the text of the range"),
        START,
        END,
        Column("kind", RANGE_KIND, "push/pop (nests per thread), start/end (may cross threads), or a mark (no length)"),
        name_id("domain", "NVTX domain; null for the default one", nullable=True),
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
        detail("registered", pl.Boolean, "the text was a registered string"),
        detail("color", pl.UInt32, "ARGB colour"),
        detail("category", pl.Int64, "NVTX category"),
        detail("domain_id", pl.Int64, "domain number within the process"),
        detail("nsys_type", pl.Int32, "nsys event type (59 push/pop, 60 start/end, 34 mark)"),
        detail("row", pl.Int64, "number of the record in the source's own table"),
    ),
)

SYNCS = Table(
    "syncs",
    "Synchronization: event records, waits of streams for events, and waits of the host. Times are the host call's.",
    (
        RANK,
        Column("kind", SYNC_KIND, "by the name of the API call where it is known, never by nsys's number"),
        Column(
            "stream",
            pl.Int32,
            "the waiting stream, or the one waited for, or recorded on; -1 for a whole context",
            instead=-1,
        ),
        START,
        END,
        Column("event", pl.Int64, "id shared by a record and the waits for it, within the rank", nullable=True),
        correlation("the host call"),
    ),
)

COUNTERS = Table(
    "counters",
    "Sampled counters: GPU metrics, memory, power.",
    (
        RANK,
        Column("device", pl.Int32, "device of the counter; null for the host", nullable=True),
        name_id("name", "name of the metric"),
        Column("start_ns", pl.Int64, "time of the sample"),
        Column("value", pl.Float64, "its value"),
    ),
    keys=("start_ns",),
)

HOST = Table(
    "host",
    "What the host did besides CUDA calls and ranges: torch ops, Python functions, calls of the OS and of libraries.",
    (
        RANK,
        TID,
        Column(
            "kind",
            HOST_KIND,
            "cpu_op (torch), python (function), osrt (OS runtime), gil, compile, gc; libraries: mpi, cublas, …; other",
        ),
        name_id("name", "name of the op, function or call"),
        START,
        END,
        detail("external_id", pl.Int64, "torch's id that the CUDA calls it makes carry too"),
        detail("sequence", pl.Int64, "autograd sequence number: forward and backward share it"),
        detail("fwd_tid", pl.Int64, "thread of the forward op, on backward ops"),
        detail("python_id", pl.Int64, "id of a Python frame"),
        detail("python_parent", pl.Int64, "id of the Python frame that called it"),
        detail_id("shapes", "input shapes as recorded"),
        detail_id("types", "input types as recorded"),
        detail_id("inputs", "values of inputs that are not tensors, as recorded"),
        detail("callchain", pl.Int64, "call chain of the source's stack table"),
    ),
)

COMMS = Table(
    "comms",
    "Communication calls with what the framework or NCCL said about them: communicator, bytes, peer.",
    (
        RANK,
        Column("tid", pl.Int32, "thread of the host; null where the record sits on the kernel", nullable=True),
        START,
        END,
        correlation("of the kernel, where the record sits on the kernel (Kineto); else null"),
        name_id("op", "operation as the source names it: `ncclAllReduce`, `allreduce`, `all_to_allv`"),
        name_id(
            "communicator", "communicator or group id, the same text on all its ranks; null if unknown", nullable=True
        ),
        in_bytes("message size as the source states it (see docs/model.md: sources differ)"),
        member("peer", "peer (send, recv) or root (broadcast, reduce), as communicator rank"),
        member("comm_rank", "own rank in the communicator"),
        member("comm_size", "ranks in the communicator", least=1),
        name_id("members", "global ranks of the communicator, as written: `[0, 1]`", nullable=True),
        name_id("group_name", "what the framework calls the group: `ep`, `default_pg`", nullable=True),
        Column(
            "depth",
            pl.Int32,
            "nesting of ncclGroupStart around it: above 0, the outermost group end launches",
            instead=0,
            least=0,
        ),
        detail("in_elements", pl.Int64, "input elements (Kineto)"),
        detail("out_elements", pl.Int64, "output elements (Kineto)"),
        detail_id("dtype", "element type"),
        detail_id("reduction", "reduction operation"),
        detail("sequence", pl.Int64, "the framework's own sequence number, where given"),
    ),
)

RECORDS = Table(
    "records",
    "What only the reports in nsys's manner ask for, of every process in the source, ranks or not (`pid` tells).",
    (
        Column("rank", pl.Int32, "rank of the process; the source's first one for a process that is not a rank"),
        Column("kind", RECORD_KIND, "which trace it is from"),
        name_id("name", "name of the call, event or overhead", nullable=True),
        START,
        END,
        Column("pid", pl.Int64, "process", instead=0),
        TID,
        Column("event_class", pl.Int32, "nsys's class of the event", nullable=True),
        Column("row", pl.Int64, "number of the record in the source's own table", instead=0),
        detail_id("file", "source file (OpenACC)"),
        detail("line", pl.Int64, "line in the source file (OpenACC)"),
        detail("tag", pl.Int64, "message tag (MPI)"),
        detail("mpi_rank", pl.Int64, "own rank (MPI)"),
        detail("peer", pl.Int64, "rank of the partner (MPI)"),
        detail("root", pl.Int64, "root rank (MPI collectives)"),
        in_bytes("bytes sent", "detail"),
        detail("recv_bytes", pl.Int64, "bytes received (MPI collectives)"),
        detail("address", pl.Int64, "virtual address (unified memory)"),
        detail("count", pl.Int64, "page faults in the record (unified memory)"),
    ),
)

STACKS = Table(
    "stacks",
    "Call stacks, frame by frame: of CUDA calls (nsys: `--cudabacktrace`, `--python-backtrace=cuda`), of Python "
    "samples (`--python-sampling`), of allocations.",
    (
        RANK,
        Column(
            "chain",
            pl.Int64,
            "which stack, as `calls`, `samples` and `allocations` refer to it; negative for nsys's Python",
        ),
        Column("depth", pl.Int32, "place in it: 0 is the innermost frame"),
        name_id("name", "function or symbol"),
        name_id("file", "Python file, or the module (library) of a symbol", nullable=True),
        Column("line", pl.Int32, "line in the Python file; null for native frames", nullable=True),
    ),
    keys=("chain", "depth"),
)

TIMERS = Table(
    "timers",
    "Block timers of a log: how long the program itself says that a block took.",
    (
        RANK,
        Column("row", pl.Int64, "order in the log"),
        name_id("name", "the block"),
        Column("k", pl.Int64, "chunk that it worked on; null where the log does not say", nullable=True),
        Column("dur_ns", pl.Int64, "how long it took", least=0),
        Column(
            "synchronized",
            pl.Boolean,
            "the timer waited for the GPU: a share of time, never a throughput",
            instead=False,
        ),
        name_id(
            "under", "resolution and configuration that it was timed under, where the log says them", nullable=True
        ),
    ),
    keys=("row",),
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
