"""Which op of a window `--script` runs again: the one that most of the matching kernels' time belongs to."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import polars as pl

from stepscope.analyses.source.rerun import COLLECTIVES, Roof, Traced, script_of_collective, script_of_op
from stepscope.derive.comm.calls import groups_of, sides_of
from stepscope.derive.comm.kinds import bus_factor
from stepscope.derive.flops.count import Arguments, Unclear
from stepscope.derive.flops.ops import count
from stepscope.derive.flops.precision import peak, precision_of
from stepscope.derive.rank.data import COMM, RankData, ranks_of
from stepscope.derive.rank.pattern import check_pattern
from stepscope.derive.windows.window import Windows
from stepscope.derive.work.launches import bytes_of, launching
from stepscope.derive.work.roles import PRECISION, kernels
from stepscope.errors import CannotAnswer
from stepscope.intervals.arrays import I64, NONE
from stepscope.model.capturing import capture_with
from stepscope.model.gpus import Gpu, gpu_of
from stepscope.model.kernel_names import short_names
from stepscope.model.profile import Profile
from stepscope.model.ranks import gpu_name

#: Copy only what is not as they want it: of tensors that are made anew, contiguous, they launch nothing.
_LAZY = "contiguous|reshape|reshape_as|flatten|unflatten|to|type_as|view_as"
#: Ops that torch can be asked for by name: none of autograd's nodes, nor of the profiler's.
_CALLABLE = rf"^(?!autograd::|torch::|c10d::|cuda::|aten::(?:{_LAZY})$)[A-Za-z_]\w*::[A-Za-z_]\w*$"
_ARGUMENTS = ("shapes", "types", "values")


def script_for(profile: Profile, chosen: Windows, asked: str) -> tuple[str, str]:
    """The script, and what it runs, in words."""
    check_pattern("script", asked)
    matching: list[tuple[int, RankData, I64]] = []
    looked: list[tuple[RankData, I64]] = []
    for data in ranks_of(profile):
        spans = chosen.of(data.rank)
        ops = np.unique(np.concatenate([span.ops for span in spans])) if spans else np.empty(0, np.int64)
        looked.append((data, ops))
        ops = ops[_matches(profile, data, ops, asked)]
        matching.append((int((data.end - data.start)[ops].sum()), data, ops))
    if not any(time for time, _, _ in matching):
        raise _nothing(asked, looked)
    time, data, ops = max(matching, key=lambda one: (one[0], -one[1].rank))
    moved = int((data.end - data.start)[ops[data.role[ops] == COMM]].sum())
    made = _collective if 2 * moved > time else _torch_op
    return made(profile, data, ops)


def _nothing(asked: str, looked: list[tuple[RankData, I64]]) -> CannotAnswer:
    """Why no op can be run again."""
    if inside := sorted({name for data, ops in looked for name in _inside(data, ops, asked)}):
        refusal = f"--script {asked!r}: what matches is not run by itself, as it launches nothing on tensors made anew"
        return CannotAnswer(refusal, f"name what it calls: {', '.join(inside)}")
    without = "" if any(len(launching(data).torch) for data, _ in looked) else ", and the trace has no torch ops"
    refusal = f"no GPU op of the window matches --script {asked!r}{without}"
    return CannotAnswer(refusal, "`stepscope kernels` has their names")


def _inside(data: RankData, ops: I64, asked: str) -> list[str]:
    """Torch ops that can be called, of launches within an op that matches and cannot."""
    launched = launching(data)
    names = launched.torch.frame["name"]
    hit = [name for name in names.drop_nulls().unique().to_list() if re.search(asked, name)]
    matches, parent = names.is_in(hit).fill_null(False).to_numpy(), launched.torch.nesting.parent
    at = launched.op[ops].copy()
    within = np.zeros(len(ops), dtype=bool)
    while hit and (there := at != NONE).any():
        within[there] |= matches[at[there]]
        at[there] = parent[at[there]]
    return _called(data, ops[within]).drop_nulls().unique(maintain_order=True).to_list()


def _matches(profile: Profile, data: RankData, ops: I64, asked: str) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """By the name of the kernel, short or whole, of the torch op around it, or of the operation."""
    pattern = re.compile(asked)
    names = profile.names.gather(data.name[ops])
    texts = [names, short_names(names), launching(data).names(ops), _called(data, ops)]
    if (data.role[ops] == COMM).any():
        sides = sides_of(profile, data).select("op", "kind").unique("op", keep="first", maintain_order=True)
        texts.append(pl.DataFrame({"op": ops}).join(sides, on="op", how="left", maintain_order="left")["kind"])
    chosen = np.zeros(len(ops), dtype=bool)
    for text in texts:
        distinct = text.drop_nulls().unique()
        hit = [name for name in distinct.to_list() if pattern.search(name)]
        chosen |= text.is_in(hit).fill_null(False).to_numpy()
    return chosen


def _callable(data: RankData) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which torch ops of the rank can be asked for by name."""
    can: np.ndarray[Any, np.dtype[np.bool_]] = (
        launching(data).torch.frame["name"].is_in(_names(data)).fill_null(False).to_numpy()
    )
    return can


def _names(data: RankData) -> list[str]:
    distinct = launching(data).torch.frame["name"].unique().to_list()
    return [name for name in distinct if name and re.match(_CALLABLE, name)]


def _outer(data: RankData, ops: I64) -> I64:
    """Row of the outermost torch op around each launch that can be called; not beyond a node of autograd, say."""
    launched = launching(data)
    can, parent = data.once(_callable), launched.torch.nesting.parent
    at = launched.op[ops].copy()
    at[(at != NONE) & ~can[np.maximum(at, 0)] if len(can) else at == at] = NONE
    while len(can):
        above = np.where(at != NONE, parent[np.maximum(at, 0)], NONE)
        moves = (above != NONE) & can[np.maximum(above, 0)]
        if not moves.any():
            break
        at[moves] = above[moves]
    return at


def _called(data: RankData, ops: I64) -> pl.Series:
    rows = pl.Series(_outer(data, ops), dtype=pl.Int64).replace(NONE, None)
    return launching(data).torch.frame["name"].gather(rows)


def _torch_op(profile: Profile, data: RankData, ops: I64) -> tuple[str, str]:
    torch, outer = launching(data).torch, _outer(data, ops)
    there = outer != NONE
    if not there.any():
        raise CannotAnswer(
            "no torch op that can be called is known around these launches, so nothing shows what to run again",
            capture_with("shapes") if not len(torch) else "name another kernel: this one is a library's or compiled",
        )
    frame = torch.frame.with_row_index("row").select(pl.col("row").cast(pl.Int64), "name", *_ARGUMENTS)
    table = pl.DataFrame({"row": outer[there], "op": ops[there], "ns": (data.end - data.start)[ops[there]]})
    table = table.join(frame, on="row", how="left", maintain_order="left")
    heaviest = table.group_by("name", *_ARGUMENTS, maintain_order=True).agg(pl.col("ns").sum()).sort("ns").row(-1)[:-1]
    mine = table.filter(
        pl.all_horizontal(pl.col(c).eq_missing(v) for c, v in zip(("name", *_ARGUMENTS), heaviest, strict=True))
    )
    times = mine.group_by("row").agg(pl.col("ns").sum())["ns"]
    longest = mine.sort("ns").row(-1, named=True)
    kernel = str(short_names(profile.names.gather([int(data.name[longest["op"]])]))[0])
    gpu = gpu_of(name := gpu_name(profile.ranks, data.rank))
    chain = [frame.row(row, named=True) for row in _chain(data, longest["row"], longest["op"])]
    precision = PRECISION[int(kernels(data, np.array([longest["op"]])).precision[0])] or None
    copies = data.ops["kind"][int(longest["op"])] != "kernel"  # bound by the bus, which no data sheet of a GPU tells
    roof = None if copies else _roof(chain, gpu, precision)
    refused: CannotAnswer | None = None
    for called in chain:
        args = {c: called[c] for c in _ARGUMENTS}
        median = int(times.quantile(0.5, "linear") or 0)
        traced = Traced(called["name"], kernel, len(times), median, name, **args, precision=precision, roof=roof)
        try:
            return script_of_op(traced, _trace(profile)), f"{called['name']}, which launched {kernel}"
        except CannotAnswer as why:
            refused = refused or why
    assert refused is not None
    raise refused


def _chain(data: RankData, outermost: int, op: int) -> list[int]:
    """Torch ops from this one down to the innermost around a launch: the first whose arguments are known is run."""
    parent, row = launching(data).torch.nesting.parent, int(launching(data).op[op])
    chain = [row]
    while row != outermost:
        row = int(parent[row])
        chain.append(row)
    return chain[::-1]


def _roof(chain: list[dict[str, Any]], gpu: Gpu | None, told: str | None) -> Roof | None:
    """The larger of its FLOPs at the peak of their numbers and its bytes at the memory's rate.

    FLOPs are of the first op in it that counts (`aten::linear` calls `aten::addmm`), bytes of the outermost.
    """
    if gpu is None:
        return None
    roofs = []
    for called in chain:
        parsed = Arguments.parsed(*(called[c] for c in _ARGUMENTS))
        try:
            work = count(called["name"], parsed)
        except Unclear:
            work = None
        rate = peak(gpu, precision_of(parsed.types) or told or "fp32", tensor_cores=True) if work else None
        if work and rate:
            why = f"{work.causal / 1e9:.4g} GFLOP at {rate[1]:g} TFLOP/s ({rate[0]}) of {gpu.name}"
            roofs.append(Roof(work.causal / rate[1] / 1e3, why))
            break
    outermost = chain[0]
    if moved := bytes_of(outermost["name"], outermost["shapes"], outermost["types"]):
        roofs.append(Roof(moved / gpu.gbps, f"{moved / 1e6:.4g} MB at {gpu.gbps:g} GB/s of {gpu.name}"))
    return max(roofs, key=lambda roof: roof.ns, default=None)


def _collective(profile: Profile, data: RankData, ops: I64) -> tuple[str, str]:
    ops = ops[data.role[ops] == COMM]
    sides = sides_of(profile, data).filter(pl.col("op").is_in(pl.Series(ops).implode()))
    sizes = groups_of(profile, data).select("communicator", "comm_size")
    table = sides.join(sizes, on="communicator", how="left", maintain_order="left").drop_nulls(["kind", "bytes"])
    table = table.filter(pl.col("kind").is_in(list(COLLECTIVES)) & (pl.col("bytes") > 0))
    if not table.height:
        raise CannotAnswer(
            "the size of these messages was not recorded, or they are transfers of pairs: nothing to run again",
            "capture with NCCL's payloads (nsys --trace=nvtx) or torch.profiler's record_shapes=True",
        )
    keys = ["kind", "bytes", "comm_size", "parted"]
    took = table.with_columns((pl.col("end_ns") - pl.col("start_ns")).alias("ns"))
    kind, size, ranks, parted = took.group_by(keys, maintain_order=True).agg(pl.col("ns").sum()).sort("ns").row(-1)[:-1]
    mine = took.filter((pl.col("kind") == kind) & (pl.col("bytes") == size) & pl.col("comm_size").eq_missing(ranks))
    ranks = ranks or profile.ranks.height
    whole = size * ranks if parted else size
    gpu = gpu_of(name := gpu_name(profile.ranks, data.rank))
    roof = None
    if gpu and gpu.link_gbps and ranks > 1:
        factor = float(pl.select(bus_factor(kind, pl.lit(float(ranks)))).item())
        why = f"{whole * factor / 1e6:.4g} MB over the links of {gpu.name}, {gpu.link_gbps:g} GB/s within a node"
        roof = Roof(whole * factor / gpu.link_gbps, why)
    kernel = str(short_names(profile.names.gather([int(data.name[mine["op"][0]])]))[0])
    traced = Traced(kind, kernel, mine.height, int(mine["ns"].quantile(0.5, "linear") or 0), name, roof=roof)
    dtype, width = _element(profile, data, kind)
    text = script_of_collective(traced, _trace(profile), COLLECTIVES[kind], max(whole // width, ranks), dtype, ranks)
    return text, f"{kind} of {whole:,} bytes among {ranks} ranks"


#: Elements of communication, as torch.profiler names them: torch's name, and bytes.
_ELEMENTS = {"float": ("float32", 4), "bfloat16": ("bfloat16", 2), "half": ("float16", 2), "double": ("float64", 8)}
_BYTES = ("uint8", 1)


def _element(profile: Profile, data: RankData, kind: str) -> tuple[str, int]:
    """Type and size of what is sent; bytes where nothing says."""
    comms = next((f for rank, f in profile.by_rank("comms", detail=True) if rank == data.rank), None)
    if comms is None or not comms.height or comms["dtype"].null_count() == comms.height:
        return _BYTES
    dtypes = profile.names.gather(comms["dtype"].drop_nulls().mode().cast(pl.Int64))
    return _ELEMENTS.get(str(dtypes[0]).lower().removeprefix("c10::"), _BYTES)


def _trace(profile: Profile) -> str:
    names = [source.file.replace("\\", "/").rsplit("/", 1)[-1] for source in profile.sources]
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
