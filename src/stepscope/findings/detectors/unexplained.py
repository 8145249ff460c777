"""What is neither compute nor covered by any other finding: exposed communication, exposed copies, idle time.

Every finding says which exposed time it speaks of. What is left is named here, by its cause as far as that is known, so
that no step gets an all-clear while a part of it is lost. It is an upper bound: nobody knows what could be done about
it. A pipeline's bubble is judged by its own detector; waiting for a rank, link or stage that
has a finding of its own, by that.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import numpy as np
from msgspec import Struct

from stepscope.derive.accounting.partition import partition
from stepscope.derive.comm.calls import operations
from stepscope.derive.host.idle_causes import CAUSES, QUEUE, STARVED, Pieces, causes
from stepscope.derive.rank.data import COMM, RankData
from stepscope.derive.rank.graphs import recordings
from stepscope.derive.windows.window import Window
from stepscope.findings.case import Case
from stepscope.findings.evidence.bubbles import bubble_ns
from stepscope.findings.evidence.machines import on_amd
from stepscope.findings.evidence.once import once
from stepscope.findings.evidence.places import longest, places
from stepscope.findings.evidence.shown import LATE, part
from stepscope.findings.evidence.start_up import started
from stepscope.findings.evidence.unprofiled import slowed_ns
from stepscope.findings.finding import Finding, Place
from stepscope.findings.texts import advice, title
from stepscope.findings.thresholds import SHOWN
from stepscope.intervals import Spans, intersect, join, subtract, union
from stepscope.intervals.arrays import one_of
from stepscope.model.capturing import capture_with
from stepscope.model.range_names import short_range
from stepscope.model.threshold import Threshold
from stepscope.model.units import about

EXPLAINS = Threshold(
    50.0,
    "% of the exposed time that it covers",
    "a synchronization of 17 ms within 620 ms in which a graph is captured is not why the GPU idles",
    ("public/tl_xdit_flux_capture.json.gz",),
)
SHORT_GAP = Threshold(
    10.0,
    "µs",
    "the GPU takes 1 to 2 from one kernel of a stream to the next, and up to 5 behind a large one",
    ("public/h100_qwen.json.gz",),
)


ID = "unexplained"

#: Findings whose time others spend waiting, inside their communication or idle.
_WAITED_FOR = (
    "compute-imbalance",
    "expert-imbalance",
    "late-node",
    "pipeline-bubble",
    "slow-link",
    "straggler",
)


class _Left(Struct, frozen=True, dict=True):
    """What no finding covers on one rank; what more there is to say of it, where it is worth a finding."""

    data: RankData
    window: Window
    comm: Spans
    copy: Spans
    idle: Spans

    @cached_property
    def pieces(self) -> Pieces:
        """Its idle time by cause."""
        return causes(self.data, self.idle)

    @cached_property
    def cause(self) -> dict[str, int]:
        """Idle time of each cause."""
        length = self.pieces.end - self.pieces.start
        return {name: int(length[self.pieces.cause == k].sum()) for k, name in enumerate(CAUSES)}

    @cached_property
    def within(self) -> dict[str, int]:
        """Idle time that is the host's, by the range that it was in."""
        host = one_of(self.pieces.cause, STARVED)
        length = (self.pieces.end - self.pieces.start)[host]
        texts = self.data.text_of(self.pieces.host_range[host]).fill_null("")
        by_text: dict[str, int] = {}
        for text, ns in zip(texts.to_list(), length.tolist(), strict=True):
            by_text[text] = by_text.get(text, 0) + ns
        return by_text

    @cached_property
    def kinds(self) -> dict[str, int]:
        """Communication by its operation."""
        data, ops = self.data, self.window.ops[self.data.role[self.window.ops] == COMM]
        if not len(ops) or not len(self.comm):
            return {}
        kind = operations(data, ops).fill_null("communication")
        of_kinds = {str(text): ops[(kind == text).to_numpy()] for text in kind.unique().to_list()}
        return {k: intersect(union(data.start[of], data.end[of]), self.comm).length() for k, of in of_kinds.items()}

    @cached_property
    def in_launch(self) -> int:
        """Time in which an op is queued while the very call that launches it has not returned."""
        queued = self.pieces.cause == QUEUE
        ends = self.data.calls["end_ns"].to_numpy()
        if not len(ends):
            return 0
        until = np.minimum(ends[np.maximum(self.pieces.call[queued], 0)], self.pieces.end[queued])
        return int(np.maximum(until - self.pieces.start[queued], 0).sum())


def detect(case: Case) -> list[Finding]:
    """Nothing by itself: `rest` looks at what the others leave."""
    return []


def rest(case: Case, findings: Iterable[Finding]) -> list[Finding]:
    """What these findings leave uncovered, where it is worth a finding. Small ones cover theirs: it was looked at."""
    findings = list(findings)
    explaining = [f for f in findings if _explains(f)]
    covered = {r: join(*(f.covers[r] for f in explaining if r in f.covers)) for r in case.ranks}
    covered = {r: join(spans, case.once(once)[r]) for r, spans in covered.items()}
    left = case.each_rank(lambda _, data, window: _left(data, window, covered[data.rank]))
    if not any(case.computes.values()):
        return []
    waited = sum(f.recoverable_ns for f in findings if f.id in _WAITED_FOR) + bubble_ns(case)
    left_over = []
    comm = _mean(left, "comm")
    grown = sum(f.recoverable_ns for f in findings if f.id == "drift")
    idle = max(_mean(left, "idle") - grown - sum(_besides(f) for f in findings if f.id not in _WAITED_FOR), 0)
    if case.material(idle, SHOWN) and not any(f.id == "profiler-distortion" for f in findings):
        idle = max(idle - slowed_ns(case), 0)
    explained = min(waited, comm)
    if case.material(comm - explained, SHOWN):
        left_over.append(_communication(case, left, comm - explained))
    if case.material(idle - (waited - explained), SHOWN):
        left_over.append(_idle(case, left, idle - (waited - explained)))
    if case.material(copy := _mean(left, "copy"), SHOWN):
        left_over.append(_copies(case, left, copy))
    return left_over


def _explains(f: Finding) -> bool:
    """Whether it explains all that it covers: a wait of a moment in a long gap does not explain the gap."""
    return "communication" in f.id or f.recoverable_ns >= EXPLAINS.share * _covered_ns(f)


def _besides(f: Finding) -> int:
    """Idle time that it explains beside what it covers: a host that waited is behind for a while.

    Of gaps that it does not explain whole, twice what it gives back.
    """
    if not f.covers or "communication" in f.id:
        return 0
    covered = _covered_ns(f)
    return max(f.recoverable_ns - covered, 0) if _explains(f) else min(2 * f.recoverable_ns, covered)


def _covered_ns(f: Finding) -> int:
    return int(np.mean([spans.length() for spans in f.covers.values()])) if f.covers else 0


def _mean(left: dict[int, _Left], part: str) -> int:
    return int(np.mean([getattr(of, part).length() for of in left.values()]))


def _left(data: RankData, window: Window, covered: Spans) -> _Left:
    assert window.gpu_start_ns is not None and window.gpu_end_ns is not None
    begin = window.gpu_start_ns
    if window.kind == "capture" and len(data.compute):  # what comes before the first kernel is set up once
        begin = min(max(begin, int(data.compute.start[0]), started(data, window)), window.gpu_end_ns)
    parts = partition(data, begin, window.gpu_end_ns)
    comm, copy, idle = (subtract(s, covered) for s in (parts.comm_exposed, parts.copy_exposed, parts.idle))
    return _Left(data, window, comm, copy, idle)


def _communication(case: Case, left: dict[int, _Left], ns: int) -> Finding:
    worst = max(left, key=lambda r: (left[r].comm.length(), -r))
    most = max(left[worst].kinds, key=lambda k: left[worst].kinds[k], default="communication")
    exposed = part(case, worst, "comm_exposed_ns")
    return _finding(
        case,
        ns,
        "communication",
        f"{_unexplained(worst, left[worst].comm.length(), exposed, 'exposed communication')}; mostly "
        f"{most.replace('_', '-')}: transfers, and waiting for other ranks",
        ("breakdown", ""),
        (exposed,),
        [p for r, of in left.items() for p in places(r, of.comm.start, of.comm.end)],
    )


def _unexplained(rank: int, ns: int, whole: int, what: str) -> str:
    if about(ns) == about(whole):
        return f"on rank {rank}, no other finding explains the {about(whole)} of {what}"
    return f"on rank {rank}, no other finding explains {about(ns)} of the {about(whole)} of {what}"


def _copies(case: Case, left: dict[int, _Left], ns: int) -> Finding:
    worst = max(left, key=lambda r: (left[r].copy.length(), -r))
    exposed = part(case, worst, "copy_exposed_ns")
    return _finding(
        case,
        ns,
        "copies",
        _unexplained(worst, left[worst].copy.length(), exposed, "exposed copies"),
        ("breakdown", ""),
        (exposed,),
        [p for r, of in left.items() for p in places(r, of.copy.start, of.copy.end)],
    )


def _idle(case: Case, left: dict[int, _Left], ns: int) -> Finding:
    worst = max(left, key=lambda r: (left[r].idle.length(), -r))
    of = left[worst]
    cause = max(of.cause, key=lambda c: of.cause[c])
    parts = [f"{about(t)} {c}" for c, t in sorted(of.cause.items(), key=lambda x: -x[1])[:3] if t]
    range_ = max(of.within, key=lambda t: of.within[t], default="") if cause in LATE else ""
    inside = f", mainly in `{short_range(range_)}`" if range_ else ""
    all_of_it = part(case, worst, "idle_ns")
    return _finding(
        case,
        ns,
        _closer(case, worst, cause, of),
        f"{_unexplained(worst, of.idle.length(), all_of_it, 'idle time')} (by cause: {', '.join(parts)}){inside}",
        ("idle", "--by cause") if case.profile.has("calls") else ("breakdown", ""),
        (all_of_it,),
        [p for r, of_rank in left.items() for p in places(r, of_rank.idle.start, of_rank.idle.end)],
    )


def _closer(case: Case, rank: int, cause: str, left: _Left) -> str:
    """What more is known of a cause."""
    data = case.data_of(rank)
    start, end = recordings(data)
    if 2 * intersect(union(start, end), left.idle).length() > left.idle.length():
        again = int((start < (case.windows[rank].cpu_start_ns or 0)).sum()) > 0
        return "captures" if again else "capture"
    if cause != "queue":
        return cause
    if 2 * left.in_launch > left.cause["queue"]:
        return "launch"
    if any(note.code == "shared-gpu" for note in case.profile.notes):
        return "shared"
    # By time, not by number: a few long gaps among thousands of short ones are what the step loses.
    length = left.idle.end - left.idle.start
    return "short" if 2 * int(length[length < SHORT_GAP.ns].sum()) > int(length.sum()) else cause


def _finding(
    case: Case,
    ns: int,
    what: str,
    evidence: str,
    command: tuple[str, str],
    figures: tuple[int, ...],
    where: list[Place],
) -> Finding:
    eager = "" if on_amd(case, case.ranks) else ", or set CUDA_MODULE_LOADING=EAGER"
    return Finding(
        ID,
        title(f"unexplained/{what}"),
        ns,
        "possible",
        evidence,
        advice(f"unexplained/{what}", with_samples=capture_with("python-sampling"), again=capture_with(), eager=eager),
        command,
        ranks=case.ranks,
        figures=figures,
        where=longest(where),
        bound=True,
    )
