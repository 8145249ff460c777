"""torch.compile loses its way: graph breaks, recompiles, compilation inside the step.

What it could save is the step replayed without the host's time between graphs of one frame and in compiling, but
never more than the GPU idled meanwhile. A break that costs no idle time is not a finding, nor is the capture of a CUDA
graph: the GPU runs nothing meanwhile, on purpose, and it is done once. A note says how long it takes.
"""

from __future__ import annotations

import numpy as np

from stepscope.analyses.compile import compile as compile_
from stepscope.derive.pytorch.compiled import Compiled, compiled
from stepscope.derive.rank.graphs import recordings
from stepscope.derive.replay.change import Change
from stepscope.findings.case import Case
from stepscope.findings.evidence.hosts import Host, guilty, hosts, stage_of, sure
from stepscope.findings.evidence.places import longest, places
from stepscope.findings.finding import Finding
from stepscope.findings.texts import advice, title
from stepscope.intervals import Spans, union
from stepscope.model.note import Note, noted
from stepscope.model.ranks import some_ranks
from stepscope.model.units import about

ID = "graph-breaks"


def _outside(case: Case) -> dict[int, tuple[Host, Compiled, Spans]]:
    """By rank: when its host was between graphs or compiling; nothing where that cannot matter."""
    outside = {}
    for rank, host in hosts(case).items():
        marks = compiled(host.profile, host.data)
        outside[rank] = host, marks, _spans(host, marks)
    most = max((host.idle_in(spans) for host, _, spans in outside.values()), default=0)
    return outside if case.material(most) else {}


def remedy(case: Case) -> Change:
    """Whole graphs, compiled before."""
    return Change(host_time_cut={r: spans for r, (_, _, spans) in case.once(_outside).items()})


def detect(case: Case) -> list[Finding]:
    outside = case.once(_outside)
    if not outside:
        case.ask(compile_)  # raises where nothing says what was compiled
        return []
    lost = {r: spans for r, (_, _, spans) in outside.items()}
    idle = {r: host.idle_in(spans) for r, (host, _, spans) in outside.items()}
    ranks = guilty(idle)
    worst = max(ranks, key=lambda r: (idle[r], -r))
    host, marks, _ = outside[worst]
    inside = marks.regions.begun(host.begin, host.end)
    breaks, compiles = int((inside & marks.breaks).sum()), int(marks.compiles.begun(host.begin, host.end).sum())
    frames = len(np.unique(marks.regions.frame[inside & (marks.regions.compile > 0)]))
    what = [f"{breaks} graph breaks" if breaks != 1 else "1 graph break"] if breaks else []
    what += [f"{compiles} compilations" if compiles != 1 else "1 compilation"] if compiles else []
    row = next(r for r in case.ask(compile_).rows.iter_rows(named=True) if r["rank"] == worst)
    idle_by = {"compiling": row["idle_compile_ns"], "between graphs": row["idle_between_ns"]}
    parts = "".join(f", {about(ns)} {name}" for name, ns in idle_by.items() if ns)
    again = f"; {frames} frames run in a version other than their first" if frames else ""
    return [
        Finding(
            ID,
            title("graph-breaks", what=" and ".join(what) or "Python between compiled graphs", worst=worst),
            case.credit(ID, at_most=sum(idle.values())),
            sure(case),
            f"the host of rank {worst} spends {about(lost[worst].length())} of the step between graphs "
            f"and compiling, and the GPU idles for {about(idle[worst])} of that time ({about(row['idle_ns'])} in all"
            f"{parts}){again}",
            advice("graph-breaks", more=", and profile after more warm-up steps" if compiles else ""),
            ("compile", ""),
            ranks=ranks,
            figures=(row["idle_ns"], *filter(None, idle_by.values())),
            stage=stage_of(case, ranks),
            where=longest(p for r in ranks for p in places(r, lost[r].start, lost[r].end)),
            covers={r: h.gaps_touched(s.start, s.end) for r, (h, _, s) in outside.items()},
        )
    ]


def notes(case: Case) -> list[Note]:
    """How long ranks captured CUDA graphs."""
    idle = {r: h.idle_in(_capturing(h)) for r, h in hosts(case).items()}
    idle = {r: ns for r, ns in idle.items() if case.material(ns)}
    if not idle:
        return []
    worst = max(idle, key=lambda r: (idle[r], -r))
    of = about(idle[worst])
    data, begin = case.data_of(worst), case.windows[worst].cpu_start_ns
    if case.kind == "step" and begin is not None and bool((recordings(data)[0] < begin).any()):
        return [noted("graph-capture/again", some=some_ranks(idle), worst=worst, of=of)]
    return [noted("graph-capture", some=some_ranks(idle), worst=worst, of=of)]


def _capturing(host: Host) -> Spans:
    marks = compiled(host.profile, host.data).capturing
    return union(marks.start, marks.end).clip(host.begin, host.end)


def _spans(host: Host, marks: Compiled) -> Spans:
    """Host time in compiling, and in regions that broke but in none of their graphs."""
    tids = np.unique(np.concatenate([marks.compiling.tid, marks.regions.tid]))
    parts = [marks.thread_parts(int(tid)) for tid in tids.tolist()]
    broken = bool((marks.regions.begun(host.begin, host.end) & marks.breaks).any())
    chosen = [s for p in parts for s in ((p.compiling, p.between) if broken else (p.compiling,))]
    if not chosen:
        return Spans.empty()
    start, end = (np.concatenate([getattr(p, c) for p in chosen]) for c in ("start", "end"))
    return union(start, end).clip(host.begin, host.end)
