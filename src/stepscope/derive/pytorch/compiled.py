"""What a trace shows of torch.compile: regions, compiled graphs and compilation, as spans on host threads.

torch annotates each run of a compiled frame (`Torch-Compiled Region: FRAME/COMPILE`), each call of a compiled graph
(`## Call CompiledFxGraph … ##`, `CompiledFunction`, `CompiledFunctionBackward`) and each compilation
(`… (dynamo_timed)`; with stacks, Python frames of `torch/_dynamo/convert_frame.py`). Kineto has them among its host ops
or annotations, nsys as NVTX ranges where torch emits them. Frames of `torch/_dynamo/decorators.py` prove nothing: eager
torch calls `graph_break` too. Capturing a CUDA graph is neither compiling nor a break: meanwhile the host launches
everything and the GPU runs nothing, on purpose, and once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl
from msgspec import Struct

from stepscope.derive.rank.data import RankData
from stepscope.derive.rank.graphs import captures
from stepscope.intervals import Spans, subtract, union
from stepscope.intervals.arrays import I64, NONE, Mask
from stepscope.model.memo import cached_property
from stepscope.model.nesting import Nesting, nest
from stepscope.model.profile import Profile

REGION = r"^Torch-Compiled Region(?:: (\d+)/(\d+))?"
_CALL = r"^## Call CompiledFxGraph"
_FUNCTION = r"^CompiledFunction(Backward)?\b"
_COMPILE = r"^(_compile\.compile_inner|entire_frame_compile) \(dynamo_timed\)"
_COMPILE_FRAME = r"^torch/_dynamo/convert_frame\.py\(\d+\): _compile$"
#: Inductor times these too: a CUDA graph that is captured, and the run before that.
_CAPTURE = r"^CUDAGraph\w*\.record\w* \(dynamo_timed\)"
_CUDA_GRAPH = r"^CUDA(Graph|Warmup)\w*\.\w+ \(dynamo_timed\)"
_COMPILING = rf"\(dynamo_timed\)|{_COMPILE_FRAME}"
#: Kernels that inductor generated, by their names: what is left where nothing was annotated.
INDUCTOR = r"^triton_(poi|red|per|for|tem|mm|bmm|flex|split_scan|unk|convolution)\w*?_|^triton_\w+_fused_"
#: What torch names its ops in NVTX (`nsys --pytorch=autograd-nvtx`): where these are, regions would be too.
_TORCH_NVTX = r", (seq|op_id) = \d+|^(aten|autograd)::"


class Marks(Struct, frozen=True, dict=True):
    """Host spans of one kind: thread, start, end, and (of regions) frame and compile ids, NONE where unnamed."""

    tid: I64
    start: I64
    end: I64
    frame: I64
    compile: I64

    def __len__(self) -> int:
        return len(self.tid)

    @cached_property
    def nesting(self) -> Nesting:
        return nest(self.tid, self.start, self.end)

    def on(self, tid: int) -> Spans:
        """Their union on one thread."""
        mine = self.tid == tid
        return union(self.start[mine], self.end[mine])

    def begun(self, lo: int, hi: int) -> Mask:
        return (self.start >= lo) & (self.start < hi)


class Parts(NamedTuple):
    """Where a host thread was."""

    compiling: Spans
    graph: Spans  # in a compiled graph
    between: Spans  # in a region, but in none of the others
    capturing: Spans  # a CUDA graph


def both(a: Spans, b: Spans) -> Spans:
    return union(np.concatenate([a.start, b.start]), np.concatenate([a.end, b.end]))


class Compiled(Struct, frozen=True, dict=True):
    """Regions (runs of compiled frames), graphs (runs of compiled graphs), and compilation, of one rank."""

    regions: Marks
    #: One per run of a compiled graph; and every record of such a run, for its time.
    graphs: Marks
    inside: Marks
    #: Every record of a compilation, for its time; and those of which there is one per compilation, for their number.
    compiling: Marks
    compiles: Marks
    #: Every record of the capture of a CUDA graph: torch's, and the calls that begin and end it.
    capturing: Marks
    #: The trace would show regions if there were any.
    annotated: bool

    @property
    def any(self) -> bool:
        return len(self.regions) + len(self.graphs) > 0

    @cached_property
    def breaks(self) -> Mask:
        """Regions that ran another region inside.

        A frame runs one graph; at a graph break it goes on in Python, and what of the rest is compiled runs as regions
        of their own, inside its region. So each region with a region inside is one break.
        """
        breaks = np.zeros(len(self.regions), dtype=bool)
        parent = self.regions.nesting.parent
        breaks[parent[parent != NONE]] = True
        return breaks

    def thread_parts(self, tid: int) -> Parts:
        """Host time of a thread, in disjoint parts."""
        capturing, compiling = self.capturing.on(tid), self.compiling.on(tid)
        before = both(capturing, compiling)
        graphs = subtract(self.inside.on(tid), before)
        between = subtract(subtract(self.regions.on(tid), before), graphs)
        return Parts(subtract(compiling, capturing), graphs, between, capturing)


def compiled(profile: Profile, data: RankData) -> Compiled:
    """What the rank's host ops and ranges say of torch.compile."""
    return data.once(_compiled)


def _compiled(data: RankData) -> Compiled:
    profile = data.profile
    marks = pl.concat([_of_host(profile, data), _of_ranges(profile, data)])
    if marks.height == 0:  # of thousands of ranks, most questions ask for nothing
        none = np.empty(0, np.int64)
        nothing = Marks(none, none, none, none, none)
        captured = _captures(data, marks)
        return Compiled(nothing, nothing, nothing, nothing, nothing, captured, _annotated(profile, data))
    text = marks["text"]
    ids = text.str.extract_groups(REGION).struct.unnest()
    frame = marks.with_columns(
        frame=ids.to_series(0).cast(pl.Int64, strict=False).fill_null(NONE),
        compile=ids.to_series(1).cast(pl.Int64, strict=False).fill_null(NONE),
    )
    calls, functions = text.str.contains(_CALL), text.str.contains(_FUNCTION)
    timed = text.str.contains(_COMPILE)
    return Compiled(
        _marks(frame.filter(text.str.contains(REGION))),
        _marks(frame.filter(calls if calls.any() else functions)),
        _marks(frame.filter(calls | functions)),
        _marks(frame.filter(text.str.contains(_COMPILING) & ~text.str.contains(_CUDA_GRAPH))),
        _marks(frame.filter(timed if timed.any() else text.str.contains(_COMPILE_FRAME))),
        _captures(data, frame.filter(text.str.contains(_CAPTURE))),
        _annotated(profile, data),
    )


def _captures(data: RankData, named: pl.DataFrame) -> Marks:
    """Captures of CUDA graphs, as torch and the calls of the CUDA API say."""
    captured = captures(data)
    times = [
        np.concatenate([named[c].to_numpy(), of]) for c, of in zip(("tid", "start_ns", "end_ns"), captured, strict=True)
    ]
    none = np.full(len(times[0]), NONE, np.int64)
    return Marks(times[0], times[1], times[2], none, none)


def _marks(frame: pl.DataFrame) -> Marks:
    return Marks(*(frame[c].to_numpy() for c in ("tid", "start_ns", "end_ns", "frame", "compile")))


def _of_host(profile: Profile, data: RankData) -> pl.DataFrame:
    if not profile.has("host"):
        return _select(pl.DataFrame(schema=dict.fromkeys(("tid", "start_ns", "end_ns", "name"), pl.Int64)), profile)
    host = data.host
    return _select(host.filter(host["kind"].is_in(["compile", "python", "cpu_op"])), profile)


def _of_ranges(profile: Profile, data: RankData) -> pl.DataFrame:
    return _select(data.ranges.filter(data.ranges["kind"] == "pushpop"), profile)


def _select(frame: pl.DataFrame, profile: Profile) -> pl.DataFrame:
    """Rows whose text speaks of compiling; judged once per text."""
    wanted = profile.names_with(f"{REGION}|{_CALL}|{_FUNCTION}|{_COMPILING}")
    ids = frame["name"].to_numpy()
    mine = frame.filter(pl.Series(wanted[ids] if len(ids) else np.zeros(0, bool), dtype=pl.Boolean))
    times = [pl.col(c).cast(pl.Int64) for c in ("tid", "start_ns", "end_ns")]
    return mine.select(*times).with_columns(profile.names.gather(mine["name"]).cast(pl.String).alias("text"))


def _annotated(profile: Profile, data: RankData) -> bool:
    if profile.has("host") and data.host.height and data.host["kind"].is_in(["cpu_op", "compile"]).any():
        return True
    if data.ranges.height == 0:
        return False
    torch = profile.names_with(_TORCH_NVTX)
    return bool(torch[data.ranges["name"].to_numpy()].any())
