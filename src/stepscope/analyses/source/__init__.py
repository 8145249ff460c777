"""Which line of Python, and which torch op, launched the heavy kernels?

Rows are credited to the innermost frame of the user's code around the launch: not torch, not the standard library
(`--full`: any frame). `op` is the outermost torch op there, or the autograd node. Backward kernels are credited to the
Python line that ran the forward op, by autograd's sequence numbers (of nsys with `capture run --with pytorch`), and
marked `backward`. Kineto records the line where a function begins, nsys the line that made the call.

Needs stacks: `capture run --with stacks`; by hand `torch.profiler.profile(with_stack=True)`, or `nsys profile
--cudabacktrace=kernel --python-backtrace=cuda`. nsys takes no stack of some launches: their frame is what the Python
stacks before and after share, `model.py(30-34): forward`, and `inferred_ns` says how much of a row is credited so. Ops
without any are rows too, `(no frame)`. `--stacks FILE` writes collapsed stacks for flame graph tools, weighted by GPU
nanoseconds.

`--script KERNEL` writes a script of some sixty lines that runs the op or collective again whose kernel (or own name)
matches, with its shapes and types: it times it, beside the trace and the roof (needs `--with shapes`).

`call` and `api_ns` are of the CUDA calls that launched a row's ops: where these take the host longer than the GPU takes
for the ops (`api_less_gpu_ns` above 0), fuse them or capture them in a graph.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

import numpy as np
import polars as pl
from msgspec import structs

from stepscope.analyses.source.noted import with_notes
from stepscope.analyses.source.nsys_stacks import NsysStacks
from stepscope.analyses.source.torch_stacks import Stacks
from stepscope.analyses.source.written import NO_FRAME, write_script, write_stacks
from stepscope.derive.pytorch.annotations import noted_at_capture
from stepscope.derive.pytorch.frames import BACKWARD, FORWARD, OPTIMIZE, OTHER, PHASES, Callers
from stepscope.derive.pytorch.torch_ops import torch_ops
from stepscope.derive.rank.data import RankData, ranks_of
from stepscope.derive.rank.graphs import graph_notes
from stepscope.derive.rank.needs import need_ops
from stepscope.derive.windows.choosing import windows
from stepscope.derive.windows.spec import WindowSpec
from stepscope.derive.windows.window import Window
from stepscope.derive.work.callers import with_most
from stepscope.derive.work.twins import with_twins
from stepscope.errors import CannotAnswer
from stepscope.intervals.arrays import I64, NONE
from stepscope.model.api_names import SUFFIX
from stepscope.model.capturing import capture_with
from stepscope.model.kernel_names import short_names
from stepscope.model.note import Note, noted
from stepscope.model.option import Effect
from stepscope.model.profile import Profile
from stepscope.model.range_names import TORCH_OP
from stepscope.model.result import OfRank, Result
from stepscope.model.statement import STATEMENT


class _Figures(TypedDict):
    n: Annotated[int, "GPU ops"]
    total_ns: Annotated[int, "sum of their durations"]
    share_pct: Annotated[float, "total as a share of the window"]
    inferred_ns: Annotated[int, "part of it whose frame is inferred from stacks taken near the launch (nsys)"]


#: What kernels are told apart by.
_BY = {
    "site": ("function", "op", "phase", "kernel"),
    "function": ("function", "phase"),
    "line": ("line", "phase"),
    "op": ("op", "phase"),
    "module": ("module", "phase"),
    "kernel": ("kernel",),
}


class _Function(OfRank):
    function: Annotated[str, "innermost frame of the user's code: `file(line): function`"]


class _Op(TypedDict):
    op: Annotated[
        str | None, "outermost torch op around the launch, or the autograd node; else the library call, where known"
    ]


class _Phase(TypedDict):
    phase: Annotated[str, "forward, backward, optimizer or other"]


class _Kernel(TypedDict):
    kernel: Annotated[str, "short name of the kernel; the full one with --full"]


class _Line(OfRank):
    line: Annotated[str, "`file(line)` of that frame"]


class _Module(TypedDict):
    module: Annotated[str | None, "innermost nn.Module around it, or the name of a graph's node (torch.profiler only)"]


class _Calls(TypedDict):
    call: Annotated[str | None, "CUDA call that launched most of its time; null where calls were not recorded"]
    api_ns: Annotated[
        int | None, "host time of the calls that launched it, each once; null where calls were not recorded"
    ]
    api_less_gpu_ns: Annotated[
        int | None, "api_ns less total_ns: above 0, launching it takes the host longer than the GPU runs it"
    ]


class Row(_Function, _Op, _Phase, _Kernel, _Figures, _Module, _Calls): ...


class ByFunction(_Function, _Phase, _Figures, _Calls): ...


class ByLine(_Line, _Phase, _Figures, _Calls): ...


class ByOp(OfRank, _Op, _Phase, _Figures, _Calls): ...


class ByModule(OfRank, _Module, _Phase, _Figures, _Calls): ...


class ByKernel(OfRank, _Kernel, _Figures, _Calls): ...


VARIANTS = {"by=function": ByFunction, "by=line": ByLine, "by=op": ByOp, "by=module": ByModule, "by=kernel": ByKernel}
By = Literal["site", "function", "line", "op", "module", "kernel"]

#: Ranges that say which pass runs; one that says two says nothing.
_RANGES = {
    FORWARD: r"(?i)\b(forward|fwd)\b|stage\d_f\b",
    BACKWARD: r"(?i)\b(backward|bwd)\b|stage\d_[bw]\b",
    OPTIMIZE: r"(?i)\boptim(izer)?\b",
}


def source(
    profile: Profile,
    window: WindowSpec,
    *,
    by: Annotated[By, "what a row is; `site` is function, op, phase and kernel together"] = "site",
    stacks: Annotated[
        Path | None, "also write collapsed stacks for flame graph tools to this file", Effect.WRITES
    ] = None,
    full: Annotated[bool, "frames of libraries too, and full kernel names"] = False,
    script: Annotated[
        str | None,
        "also write a script that runs again the op or collective whose kernel or name matches (regular expression)",
        Effect.WRITES,
    ] = None,
    script_to: Annotated[Path | None, "where to write it; by default rerun.py", Effect.WRITES] = None,
    eager: Annotated[
        Profile | None, "the same steps without CUDA graphs, in modules: replayed kernels are named by it"
    ] = None,
) -> Result:
    need_ops(profile)
    chosen = windows(profile, window)
    script_to = Path(script_to or "rerun.py")
    again = None if script is None else write_script(profile, chosen, script, script_to)
    if again is not None and by == "site" and not _has_stacks(profile):
        by = "op"  # which needs no stacks, nor does the script
    row_type: type = VARIANTS.get(f"by={by}", Row)
    wrote = {} if again is None else {"script": str(script_to), STATEMENT: again}
    try:
        kind = _evidence(profile, by, stacks is not None)
    except CannotAnswer:
        if again is None or stacks is not None:
            raise
        return Result(chosen.table(row_type, []), chosen.rows(), wrote, chosen.notes, ranked_by="total_ns")
    tables, flames, totals = [], [], []
    bare = inferred = 0
    for data in ranks_of(profile):
        callers = _nsys(profile, data) if kind == "nsys" else _kineto(profile, data)
        for span in chosen.of(data.rank):
            called_by = with_notes(data, span.ops, callers(span.ops, full, stacks is not None))
            called_by = structs.replace(called_by, module=with_twins(data, span.ops, called_by.module, eager))
            asked = np.flatnonzero(called_by.phase == OTHER)
            called_by.phase[asked] = _phase_of_ranges(data, span.ops[asked])
            frame = _ops(profile, data, span, called_by, full)
            table = _table(frame, by, span.gpu_ns)
            tables.append(span.of_rank(table))
            flames.append(frame.with_columns(pl.lit(data.rank, pl.Int64).alias("rank")))
            totals.append(_total(span, frame, called_by))
            bare += int((called_by.frame.is_null() & called_by.op.is_null()).sum())
            inferred += int(called_by.inferred.sum())
    if stacks is not None:
        write_stacks(profile, pl.concat(flames), stacks)
    table = chosen.table(row_type, pl.concat(tables) if tables else [])
    notes = [*chosen.notes, *graph_notes(profile), *_said(kind, sum(t["n"] for t in totals), bare, inferred)]
    return Result(table, chosen.rows(), {"total": totals, **wrote}, notes, ranked_by="total_ns")


def _said(kind: str, ops: int, bare: int, inferred: int) -> list[Note]:
    """How many frames are inferred, and how many ops have none."""
    notes = []
    if inferred:
        notes.append(noted("stack-inferred", number=inferred, all=ops))
    if bare:
        why = " (nsys takes none of calls shorter than its threshold: `--cudabacktrace=kernel:0`)" * (kind == "nsys")
        notes.append(noted("no-call-stack", number=bare, all=ops, why=why))
    return notes


def _has_stacks(profile: Profile) -> bool:
    frames = profile.has("host") and bool((profile.host["kind"] == "python").any())
    return profile.has("stacks") or frames or any(noted_at_capture(data) is not None for data in ranks_of(profile))


def _evidence(profile: Profile, by: str, stacks: bool) -> Literal["kineto", "nsys"]:
    """Which sort of stacks there is; ops and kernels can be told without any where torch's ops were recorded."""
    if profile.has("stacks"):
        return "nsys"
    kinds = set(profile.host["kind"].unique().to_list()) if profile.has("host") else set()
    if "python" in kinds or (kinds and any(noted_at_capture(data) is not None for data in ranks_of(profile))):
        return "kineto"
    ranges = profile.has("ranges") and _torch_ranges(profile.ranges, profile)
    if by in ("op", "kernel") and not stacks and (ranges or kinds & {"cpu_op", "compile"}):
        return "kineto" if kinds & {"cpu_op", "compile"} else "nsys"
    raise CannotAnswer(
        "the profile has no call stacks, so nothing shows which code launched a kernel",
        capture_with("stacks") + ("; `--by op` can be answered" if ranges or kinds & {"cpu_op", "compile"} else ""),
    )


def _torch_ranges(ranges: pl.DataFrame, profile: Profile) -> bool:
    return bool(profile.names_with(TORCH_OP)[ranges["name"].to_numpy()].any())


def _nsys(profile: Profile, data: RankData) -> Callable[[I64, bool, bool], Callers]:
    stacks, calls, samples = (_of_rank(profile, table, data.rank) for table in ("stacks", "calls", "samples"))
    return NsysStacks(profile.names, data, stacks, calls, samples, torch_ops(profile, data)).callers


def _kineto(profile: Profile, data: RankData) -> Callable[[I64, bool, bool], Callers]:
    host = _of_rank(profile, "host", data.rank)
    external = _of_rank(profile, "ops", data.rank)["external_id"].fill_null(NONE).to_numpy()
    stacks = Stacks(profile.names, data, host)
    return lambda ops, full, whole: stacks.callers(ops, external[ops], full, whole)


def _of_rank(profile: Profile, table: str, rank: int) -> pl.DataFrame:
    return next(frame for r, frame in profile.by_rank(table, detail=True) if r == rank)


def _phase_of_ranges(data: RankData, ops: I64) -> I64:
    """What the nearest range that says it says; OTHER where none does."""
    if data.ranges.height == 0:
        return np.full(len(ops), OTHER, dtype=np.int64)
    of_range = data.per_name(_phase_of_names)[data.ranges["name"].to_numpy()]
    at = data.ancestors_until(data.enclosing(ops), of_range != OTHER)
    return np.where(at != NONE, of_range[np.maximum(at, 0)], OTHER)


def _phase_of_names(names: pl.Series) -> I64:
    matches = np.stack([names.str.contains(pattern).to_numpy() for pattern in _RANGES.values()])
    which = np.array(list(_RANGES), dtype=np.int64)[np.argmax(matches, axis=0)]
    return np.where(matches.sum(axis=0) == 1, which, OTHER)


def _ops(profile: Profile, data: RankData, span: Window, callers: Callers, full: bool) -> pl.DataFrame:
    """One row per op: everything that a row can be made of."""
    kernel = profile.names.gather(data.name[span.ops])
    length = span.lengths(data)
    function = callers.frame.fill_null(NO_FRAME)
    columns: dict[str, Any] = {
        "function": function,
        "line": function.str.extract(r"^(.*?\([\d-]+\)):").fill_null(function),
        "module": callers.module,
        "op": callers.op,
        "phase": pl.Series(PHASES).gather(callers.phase),
        "kernel": kernel if full else short_names(kernel),
        "ns": length,
        "inferred": np.where(callers.inferred, length, 0),
    }
    frame = pl.DataFrame([pl.Series(name, values) for name, values in columns.items()])
    frame = frame.hstack(_calls(profile, data, span.ops))
    return frame if callers.stack is None else frame.with_columns(stack=callers.stack)


def _calls(profile: Profile, data: RankData, ops: I64) -> pl.DataFrame:
    """Of each op: the CUDA call that launched it, its row, and how long the host was in it."""
    launch = data.launch[ops]
    calls = data.calls[np.maximum(launch, 0)] if data.calls.height else data.calls.clear()
    if not calls.height:
        return pl.DataFrame(
            {"call": [None] * len(ops), "launch": launch, "api": [None] * len(ops)},
            schema={"call": pl.String, "launch": pl.Int64, "api": pl.Int64},
        )
    launched = pl.Series(launch != NONE)
    names = profile.names.gather(calls["name"]).str.replace(f"{SUFFIX}$", "")
    api = calls["end_ns"] - calls["start_ns"]
    return pl.DataFrame({"call": names, "launch": launch, "api": api}).with_columns(
        pl.when(launched).then(pl.col("call", "api"))
    )


def _table(frame: pl.DataFrame, by: str, window_ns: int) -> pl.DataFrame:
    if by == "function":  # the same function, whichever of its lines
        frame = frame.with_columns(pl.col("function").str.replace(r"\([\d?-]+\): ", ": "))
    keys = list(_BY[by])
    share = 100.0 * pl.col("total_ns") / window_ns if window_ns else pl.lit(None, dtype=pl.Float64)
    table = (
        frame.group_by(keys)
        .agg(
            pl.len().cast(pl.Int64).alias("n"),
            pl.col("ns").sum().alias("total_ns"),
            pl.col("inferred").sum().alias("inferred_ns"),
        )
        .with_columns(share.alias("share_pct"))
        .sort(["total_ns", *keys], descending=[True, *([False] * len(keys))], nulls_last=True)
    )
    once = frame.drop_nulls("api").unique([*keys, "launch"], keep="first", maintain_order=True)
    host = once.group_by(keys).agg(pl.col("api").sum().alias("api_ns"))
    table = table.join(host, on=keys, how="left", nulls_equal=True, maintain_order="left")
    table = table.with_columns((pl.col("api_ns") - pl.col("total_ns")).alias("api_less_gpu_ns"))
    table = with_most(table, frame, keys, "call")
    return with_most(table, frame, keys, "module") if by == "site" else table


def _total(span: Window, frame: pl.DataFrame, callers: Callers) -> dict[str, Any]:
    """How much of the GPU time is credited at all, and how much of it through the forward op."""
    total = int(frame["ns"].sum())
    framed = int(frame.filter(pl.col("function") != NO_FRAME)["ns"].sum())
    return {
        "rank": span.rank,
        "index": span.index,
        "n": frame.height,
        "total_ns": total,
        "credited_ns": framed,
        "credited_pct": 100.0 * framed / total if total else None,
        "by_forward_ns": int(frame.filter(pl.Series(callers.credited))["ns"].sum()),
        "inferred_ns": int(frame["inferred"].sum()),
    }
