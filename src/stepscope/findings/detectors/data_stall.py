"""The GPU waits for input, or for output: the host is fetching the next batch, or reading or writing files.

Ranges and annotations that name it (`data`, `next batch`, `enumerate(DataLoader)…`, `IO`) say when the host was at it.
Where a trace has none, it is the time before the next copy from the host, and other absences of the host that are as
long, unless all ranks of one host are late together (`late-node`). What it could save is the step replayed
without that time, and no more than the GPU idled in it.
"""

from __future__ import annotations

import re

import numpy as np
import polars as pl

from stepscope.analyses.stragglers import stragglers
from stepscope.derive.accounting.partition import partition
from stepscope.derive.peers.input import data_ranges
from stepscope.derive.peers.lateness import host_late, recurring_input
from stepscope.derive.pytorch.torch_ops import torch_ops
from stepscope.derive.replay.change import Change
from stepscope.derive.windows.periods import periods
from stepscope.errors import CannotAnswer
from stepscope.findings.case import Case
from stepscope.findings.evidence.hosts import Host, each_host, guilty, stage_of, sure
from stepscope.findings.evidence.places import longest, places
from stepscope.findings.evidence.shown import LATE, lost_by
from stepscope.findings.finding import Finding
from stepscope.findings.texts import advice, title
from stepscope.intervals import Spans, intersect, join, union
from stepscope.intervals.arrays import NONE
from stepscope.model.range_names import short_range
from stepscope.model.threshold import Threshold
from stepscope.model.units import about

ID = "data-stall"

FILLS = Threshold(
    50.0,
    "% of the stretches",
    "an op that fills most of the time is what the host does there; of less, nobody would name it",
    ("tests/findings/test_input_stall.py",),
)


def op_that_fills(host: Host, spans: Spans) -> str | None:
    """The name of the op that fills most of these stretches, those within it included. One that launches work for the
    GPU is not computed by the CPU."""
    ops = torch_ops(host.profile, host.data)
    start, end = (ops.frame[c].to_numpy() for c in ("start_ns", "end_ns"))
    launched = np.sort(host.data.launched_at[host.data.launch != NONE])
    launches = np.searchsorted(launched, end) > np.searchsorted(launched, start)
    outer = ops.frame.filter(pl.Series((ops.nesting.parent == NONE) & ~launches))
    if not outer.height or not spans.length():
        return None
    within = spans.measure_before(outer["end_ns"].to_numpy()) - spans.measure_before(outer["start_ns"].to_numpy())
    by_name = (
        pl.DataFrame({"name": outer["name"], "ns": within}).group_by("name").agg(pl.col("ns").sum()).sort("ns", "name")
    )
    name, ns = by_name.row(-1)
    return str(name) if ns >= FILLS.share * spans.length() else None


BATCH_HANDED_OVER = Threshold(
    200.0,
    "µs",
    "a loader that keeps ahead hands over a batch in 70 to 200, on traces and simulated jobs alike",
    ("public/nsysai_2gpu_1s.sqlite", "tests/findings/test_healthy.py"),
)
RECURS = Threshold(
    50.0,
    "% of what this step loses",
    "a loader that cannot keep up is late for every step; a batch of 10 ms in one of three is not",
    ("h200/hf/hf4_straggler.rank*.pt.trace.json.gz", "public/aiprof_baseline_nvtx.sqlite"),
)
STEPS_TO_TELL = Threshold(
    3,
    "steps",
    "of two steps, nobody knows which is usual",
    ("h200/hf/hf4_straggler.rank*.pt.trace.json.gz",),
)


#: Ranges around reading and writing files.
_FILES = r"(?i)(^|[^a-z])(io|i/o|disk)([^a-z]|$)|sav(e|ing)[ _](checkpoint|model|state)|checkpoint[ _]sav(e|ing)"

#: Calls of MPI, as ranges: what the host waits for comes from other ranks.
_MPI = r"^P?MPI_[A-Z]"

#: What only programs that train have: kernels, ops and ranges of backward passes, optimizers and loaders.
_TRAINS = r"DataLoader|(?i:backward|optimizer)|_bwd|Adam|multi_tensor_apply|wgrad|dgrad|nll_loss"


def _in_step(case: Case) -> dict[int, tuple[Host, Spans, bool]]:
    """By rank: when its host was getting input, and whether ranges say so. Nothing where it cannot matter."""
    idle = each_host(case, lambda host: host.parts.idle.length())
    if not case.material(max(idle.values(), default=0) - BATCH_HANDED_OVER.ns):
        return {}
    # An absence near the copy of a batch, on all ranks alike, is fetching; one of a single rank has other findings.
    fetching = _by_rank(case, near=True)
    lost = [fetching[r][0].idle_in(fetching[r][1]) if r in fetching else 0 for r in case.ranks]
    if not case.material(min(lost, default=0) - BATCH_HANDED_OVER.ns):
        fetching = _by_rank(case, near=False)
    most = max((h.idle_in(s) for h, s, _ in fetching.values()), default=0)
    if not case.material(most - BATCH_HANDED_OVER.ns) or _late_together(case, fetching):
        return {}
    return fetching


def _by_rank(case: Case, *, near: bool) -> dict[int, tuple[Host, Spans, bool]]:
    def of_host(host: Host) -> tuple[Host, Spans, bool] | None:
        every, named = _fetching(host, near)
        spans = every.clip(host.begin, host.end)
        recurs = host.idle_in(spans) and _recurs(host, every, host.idle_in(spans))
        return (host, spans, named) if recurs else None

    return {rank: found for rank, found in each_host(case, of_host).items() if found is not None}


def remedy(case: Case) -> Change:
    """Input that is there when it is needed."""
    return Change(host_time_cut={r: spans for r, (_, spans, _) in case.once(_in_step).items()})


def detect(case: Case) -> list[Finding]:
    fetching = case.once(_in_step)
    if not fetching:
        return []
    lost = {r: h.idle_in(s) for r, (h, s, _) in fetching.items()}
    saved = case.credit(ID, at_most=max(lost.values()))
    ranks = guilty(lost)
    worst = max(ranks, key=lambda r: (lost[r], -r))
    host, spans, named = fetching[worst]
    inside = _longest_range(host, spans) if named else None
    op = None if inside else op_that_fills(host, spans)
    doing = short_range(inside) if inside else op
    most = f"mostly in `{doing}`" if doing else "before the copy of the next batch"
    idle, figures, command = lost_by(case, host, *LATE, claim=max(lost[worst], saved))
    in_mpi = 0 if named else _in_mpi(host, spans)
    by_mpi = case.material(in_mpi)
    what = "files" if inside and re.search(_FILES, inside) else "input"
    if by_mpi:
        what, most = "mpi", f"{about(in_mpi)} of it in MPI calls"
    return [
        Finding(
            ID,
            title(f"data-stall/{what}", where="" if len(ranks) == len(case.ranks) else f" on rank {worst}"),
            saved,
            sure(case) if named else "likely",
            f"the host of rank {worst} takes {about(spans.length())} of the step to provide it ({most}); "
            f"the GPU idles for {about(lost[worst])} of that time; in all, it idles for {idle}",
            _hint(case, op, by_mpi=by_mpi),
            command,
            ranks=ranks,
            figures=figures,
            stage=stage_of(case, ranks),
            where=longest(p for r in ranks for p in places(r, fetching[r][1].start, fetching[r][1].end)),
            covers={r: h.gaps_touched(s.start, s.end) for r, (h, s, _) in fetching.items()},
        )
    ]


def _in_mpi(host: Host, spans: Spans) -> int:
    """How much of these stretches ranks exchange data by MPI."""
    calls = host.data.ranges.filter(pl.Series(host.profile.names_with(_MPI)[host.data.ranges["name"].to_numpy()]))
    return intersect(union(calls["start_ns"].to_numpy(), calls["end_ns"].to_numpy()), spans).length()


def _hint(case: Case, op: str | None, *, by_mpi: bool) -> str:
    """What to do: a program that does not train on batches has no loader to give workers to."""
    if by_mpi:
        return advice("data-stall/mpi")
    if op is not None:
        return advice("data-stall/op", op=op)
    if case.profile.names_with(_TRAINS).any():
        return advice("data-stall/batches")
    return advice("data-stall/other")


def _fetching(host: Host, near: bool) -> tuple[Spans, bool]:
    """When the host was getting input or writing output, and whether ranges say so."""
    ranges = host.data.ranges[host.data.own_ranges]
    files = ranges.filter(pl.Series(host.profile.names_with(_FILES)[ranges["name"].to_numpy()]))
    of_files = union(files["start_ns"].to_numpy(), files["end_ns"].to_numpy())
    named = join(data_ranges(host.data), of_files)
    if host.whole and not recurring_input(host.data):  # copies of weights, not of batches
        return named, True
    _, fetching, _ = host_late(host.data, near=near)
    return join(named, fetching), 2 * intersect(fetching, named).length() >= fetching.length() and len(named) > 0


def _recurs(host: Host, fetching: Spans, lost: int) -> bool:
    """Whether other steps of the rank wait for input, too: one batch that came late is chance."""
    steps = periods(host.data) if host.window.kind == "step" else None
    if steps is None or len(steps.anchors) < STEPS_TO_TELL.value:
        return True
    idle = intersect(partition(host.data, int(steps.gpu[0]), int(steps.gpu[-1])).idle, fetching)
    return float(np.median(np.diff(idle.measure_before(steps.gpu)))) >= RECURS.share * lost


def _longest_range(host: Host, spans: Spans) -> str | None:
    """The text of the range that the longest stretch is."""
    k = int(np.argmax(spans.end - spans.start))
    ranges = host.data.ranges[host.data.own_ranges]
    ending = ranges.filter(pl.col("end_ns") == int(spans.end[k]))
    return str(host.profile.names[int(ending["name"][0])]) if ending.height else None


def _late_together(case: Case, fetching: dict[int, tuple[Host, Spans, bool]]) -> bool:
    """Without ranges that name it: whether all ranks of some hosts, not of all, are late. That is the host's fault."""
    if any(named for _, _, named in fetching.values()):
        return False
    try:
        table = case.ask(stragglers).rows
    except CannotAnswer:
        return False
    late = {r for r, cause in table.select("rank", "cause").iter_rows() if cause == "host"}
    by_host: dict[str, set[int]] = {}
    for rank, machine in table.select("rank", "host").iter_rows():
        by_host.setdefault(machine, set()).add(rank)
    whole = [ranks <= late for ranks in by_host.values() if len(ranks) > 1]
    return bool(np.any(whole)) and not bool(np.all(whole))
