"""One rank computes longer than ranks that do the same work, and the others wait for it.

Its GPU is slow where nearly all of its launches take longer than the same ones of its peers; it has more to do where it
launches more kernels, larger ones, or only some are longer. What it could save is the step replayed with its
kernels as long as the median of its peers'. More tokens for its experts are another fault (`expert-imbalance`), and so
is a host that is late.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from stepscope.derive.accounting.partition import partition
from stepscope.derive.peers.compute import Compared
from stepscope.derive.replay.change import Change
from stepscope.findings.case import Case
from stepscope.findings.evidence.hosts import hosts
from stepscope.findings.evidence.parts import parts
from stepscope.findings.evidence.peers import pipeline_stage
from stepscope.findings.evidence.places import longest_kernels
from stepscope.findings.evidence.shared_gpu import load_on_others
from stepscope.findings.evidence.shown import beside, part, peer_of
from stepscope.findings.evidence.stragglers import guilty, more_work
from stepscope.findings.finding import Finding
from stepscope.findings.texts import advice, title
from stepscope.intervals import Spans, union
from stepscope.intervals.arrays import NONE
from stepscope.model.ranks import some_ranks
from stepscope.model.threshold import Threshold
from stepscope.model.units import about

EXTRA_LAUNCHES = Threshold(
    1.5,
    "times the launches of the peers",
    "ranks that do the same work launch as much, but for shapes; one that computes its experts twice, twice as much",
    ("tests/findings/test_real_faults_across.py", "tests/findings/test_thresholds.py::test_launches_beyond_the_peers"),
)
AROUND_A_LAUNCH = Threshold(
    100.0,
    "µs",
    "an eager framework takes 15 to 60 per launch; what takes longer would be done all the same",
    ("tests/findings/test_thresholds.py::test_launches_beyond_the_peers",),
)


ID = "straggler"


def remedy(case: Case) -> Change:
    """The step with stragglers as fast as their peers."""
    return _as_peers(case, case.once(guilty))


def _as_peers(case: Case, group: dict[int, Compared]) -> Change:
    """Kernels of these ranks as long as their peers', and none that these do not launch."""
    cut = {r: spans for r, c in group.items() if len(spans := _launching(case, c))}
    return Change(kernel_factor={r: _factors(c) for r, c in group.items()}, host_time_cut=cut)


def _factors(compared: Compared) -> dict[str, float]:
    """Kernels as long as the peers'. A rank that only has more to do keeps those that it is quicker with."""
    factors = compared.factors()
    return factors if compared.slow_gpu else {name: f for name, f in factors.items() if f < 1}


def _launching(case: Case, compared: Compared) -> Spans:
    """Host time of launches that the peers do not make: from the return of the call before to that of the launch."""
    host, beyond = hosts(case).get(compared.rank), compared.launches_beyond
    extra = compared.slower.filter(pl.col("n") > EXTRA_LAUNCHES.value * pl.col("like_n"))
    if host is None or extra.height == 0 or compared.alone or not beyond:
        return Spans.empty()
    # What takes the place of other kernels is launched all the same.
    share = min(1.0, beyond / float((extra["n"] - extra["like_n"]).sum()))
    data, ops = host.data, case.windows[compared.rank].ops
    rows = []
    for name, n, like_n in extra.select("name", "n", "like_n").iter_rows():
        same = ops[(case.profile.names == name).to_numpy()[data.name[ops]] & (data.launch[ops] != NONE)]
        # Which of them are the extra ones is not known: as many, evenly spread.
        spread = np.floor(np.arange(1, len(same) + 1) * share * (1 - like_n / n))
        rows.append(data.launch[same[np.diff(spread, prepend=0) > 0]])
    calls = np.unique(np.concatenate(rows))
    before = np.maximum(host.stop[np.maximum(calls - 1, 0)], host.start[calls] - AROUND_A_LAUNCH.ns)
    return union(np.minimum(before, host.start[calls]), host.stop[calls])


def detect(case: Case) -> list[Finding]:
    stragglers = case.once(guilty)
    if not stragglers:
        return []
    # Slow ranks hide each other: one alone made faster gives nothing back. They are one finding.
    slow = {r: c for r, c in stragglers.items() if c.slow_gpu}
    more = {r: c for r, c in stragglers.items() if r not in slow}
    groups = [g for g in (slow, more) if g]
    return [_finding(case, g, _saved(case, g) + sum(_load(case, c) for c in g.values())) for g in groups]


def _load(case: Case, compared: Compared) -> int:
    """What a rank with more to do costs others on its GPU beyond what they wait for it: its kernels slow theirs."""
    more = compared.slower.filter(pl.col("ns") > pl.col("like_ns"))
    if compared.slow_gpu or not more.height:
        return 0
    data = case.data_of(compared.rank)
    too_much = dict(zip(more["name"], 1 - more["like_ns"] / more["ns"], strict=True))
    ops = case.windows[compared.rank].ops
    texts = case.profile.names.gather(data.name[ops])
    excess = texts.replace_strict(too_much, default=0.0, return_dtype=pl.Float64).to_numpy()
    return load_on_others(case, compared.rank, ops[excess > 0], excess[excess > 0])


def _saved(case: Case, group: dict[int, Compared]) -> int:
    """What a replay gives back. Without event records it misses what only they tell, that others waited for the rank.

    Then it is at least what the rank computes beyond its peers, as far as those have exposed communication. Not in a
    pipeline: there some of it falls into bubbles, and sends and receives tell who waited.
    """
    saved = case.credit(ID, _as_peers(case, group))
    piped = any("pp_p2p" in kinds for kinds in case.once(parts).values())
    if bool(case.path.steps["events"].all()) or (piped and case.faithful):
        return saved
    beyond = max(int((c.slower["ns"] - c.slower["like_ns"]).sum()) for c in group.values())
    exposed = case.each_rank(lambda _, d, w: partition(d, w.gpu_start_ns or 0, w.gpu_end_ns or 0).comm_exposed.length())
    waited = [ns for rank, ns in exposed.items() if rank not in group]
    return max(saved, min(beyond, int(np.median(waited)))) if waited else saved


def _finding(case: Case, group: dict[int, Compared], saved: int) -> Finding:
    ranks = tuple(sorted(group))
    worst = max(group.values(), key=lambda c: (c.excess_ns, -c.rank))
    over = worst.slower
    stages = {pipeline_stage(case, r) for r in ranks}
    stage = stages.pop() if len(stages) == 1 else None
    who = some_ranks(ranks) + (f" ({stage})" if stage else "")
    others = "ranks with kernels of the same names" if worst.alone else "ranks that do the same work"
    named, evidence, hint = (_slow if worst.slow_gpu else _more)(worst, who, len(ranks), others)
    peer = peer_of(case, worst.rank, ranks)
    figures = tuple(part(case, r, "compute_ns") for r in (worst.rank, peer) if r is not None)
    than = f" and {about(figures[1])} on rank {peer}" if peer is not None else ""
    return Finding(
        ID,
        named,
        saved,
        "possible" if worst.alone else "likely",
        f"{evidence}; compute takes {about(figures[0])} of the step on rank {worst.rank}{than}",
        hint,
        ("breakdown", ""),
        ranks=ranks,
        figures=figures,
        stage=stage,
        where=beside(case, longest_kernels(case, worst.rank, over["name"].head(5).to_list()), peer),
        stands_out=True,
    )


def _slow(worst: Compared, who: str, ranks: int, others: str) -> tuple[str, str, str]:
    """Title, evidence and hint of a slow GPU: the same launches, each longer."""
    over = worst.slower
    whole = float(over["ns"].sum()) / float(over["like_ns"].sum()) if over.height else 1.0
    return (
        title("straggler/slow-gpu", who=who, s="s" * (ranks == 1), whole=whole, its="its" if ranks == 1 else "their"),
        f"nearly all kernels of rank {worst.rank} take longer than the same launches on the median of {others}: "
        f"{whole:.2f} times as long on average, {about(worst.excess_ns)} more compute per step, which the others wait "
        "for",
        advice("straggler/slow-gpu"),
    )


def _more(worst: Compared, who: str, ranks: int, others: str) -> tuple[str, str, str]:
    """The same of a rank with more to do."""
    more, took = more_work(worst), about(worst.excess_ns)
    has, its = ("has", "its") if ranks == 1 else ("have", "their")
    return (
        title("straggler/more-work", who=who, has=has, took=took, its=its, how=f": {more.how}" if more.how else ""),
        f"{took} more compute per step than {others}{more.evidence}",
        more.hint,
    )
