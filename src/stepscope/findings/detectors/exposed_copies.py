"""Copies that nothing runs beside: weights that are offloaded, activations that are swapped, input that comes late.

A copy hides behind compute if it has a stream of its own and is issued early enough. What is counted is time in which a
copy or a memset runs, and neither compute nor communication does, as `breakdown` has it. What it could save is the
step replayed with those copies taking no time.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from stepscope.derive.accounting.partition import partition
from stepscope.derive.rank.data import COPY
from stepscope.derive.replay.change import Change
from stepscope.errors import CannotAnswer
from stepscope.findings.case import Case
from stepscope.findings.evidence.hosts import Host, guilty, hosts, stage_of
from stepscope.findings.evidence.places import longest, places
from stepscope.findings.finding import Finding
from stepscope.findings.texts import advice, title
from stepscope.intervals import Spans
from stepscope.intervals.arrays import I64, NONE
from stepscope.model.units import about

ID = "exposed-copies"

#: Direction -> what it is called, and what to do about it.
#: By direction: what they are called, and where their advice stands.
_KINDS = {
    "HtoD": ("copies to the device", "to-device"),
    "DtoH": ("copies to the host", "to-host"),
    "DtoD": ("device-to-device copies", "device"),
    "PtoP": ("copies between GPUs", "peers"),
    "none": ("memsets", "memsets"),
}


def _copies(case: Case) -> dict[int, tuple[Host, Spans, I64]]:
    """By rank: when copies are exposed, and which; nothing where it cannot matter."""
    exposed = {}
    for rank, host in hosts(case).items():
        begin, end = host.gpu
        ops = host.window.ops[host.data.role[host.window.ops] == COPY]
        if host.whole and len(host.data.compute):  # what is copied before the first kernel is set up once
            begin = min(max(begin, int(host.data.compute.start[0])), end)
            ops = ops[host.data.start[ops] >= begin]
        spans = partition(host.data, begin, end).copy_exposed
        if len(spans) and len(ops):  # one that began before the first kernel is set up once, too
            exposed[rank] = host, spans, ops
    return exposed if case.material(max((s.length() for _, s, _ in exposed.values()), default=0)) else {}


def remedy(case: Case) -> Change:
    """Copies of no length, for which no call of the host waits."""
    exposed = case.once(_copies)
    return Change(
        op_factor={r: (ops, np.zeros(len(ops))) for r, (_, _, ops) in exposed.items()},
        calls_not_waiting={r: _launches(h, ops) for r, (h, _, ops) in exposed.items()},
    )


def _launches(host: Host, ops: I64) -> I64:
    launch = host.data.launch[ops]
    return np.unique(launch[launch != NONE])


def detect(case: Case) -> list[Finding]:
    exposed = case.once(_copies)
    if not exposed:
        return []
    lost = {r: spans.length() for r, (_, spans, _) in exposed.items()}
    ranks = guilty(lost)
    worst = max(ranks, key=lambda r: (lost[r], -r))
    host, _, ops = exposed[worst]
    table = _by_kind(host, ops)
    first = table.row(0, named=True)
    what, kind = _KINDS.get(first["kind"], _KINDS["none"])
    rate = (
        f"; {first['bytes'] / 1e6:,.0f} MB at {first['bytes'] / first['ns']:.1f} GB/s"
        if first["bytes"] and first["ns"]
        else ""
    )
    try:
        saved = case.credit(ID, at_most=max(lost.values()))
    except CannotAnswer:
        saved = max(lost.values())
    return [
        Finding(
            ID,
            title("exposed-copies", what=what),
            saved,
            "certain",
            f"copies of rank {worst} are exposed for {about(lost[worst])} of the step, mostly {first['n']:,} "
            f"{what if first['n'] != 1 else what.replace('copies', 'copy', 1)} ({about(first['ns'])} in all{rate})",
            advice(f"exposed-copies/{kind}"),
            ("breakdown", ""),
            ranks=ranks,
            figures=(lost[worst],),
            stage=stage_of(case, ranks),
            where=longest(p for r in ranks for p in places(r, exposed[r][1].start, exposed[r][1].end)),
            covers={r: spans for r, (_, spans, _) in exposed.items()},
        )
    ]


def _by_kind(host: Host, ops: I64) -> pl.DataFrame:
    """Copies by direction: how many, how long, how much; the longest first."""
    table = host.data.ops[ops].select(
        pl.col("copy_kind").cast(pl.String).alias("kind"),
        (pl.col("end_ns") - pl.col("start_ns")).alias("ns"),
        pl.col("bytes").fill_null(0),
    )
    totals = table.group_by("kind").agg(pl.len().alias("n"), pl.col("ns").sum(), pl.col("bytes").sum())
    return totals.sort("ns", "kind", descending=[True, False])
