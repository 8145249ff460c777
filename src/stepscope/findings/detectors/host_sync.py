"""The host waits for the GPU, and then the GPU for the host: `.item()`, synchronize, pageable and synchronous copies.

A wait costs nothing while the GPU has other work; once the GPU is done it costs the time until the next launch arrives.
So what it could save is the step replayed with those calls not waiting. Calls are grouped by kind, since what to
do about them differs. Whatever else makes the host late (slow or too many launches, input, allocations) is a finding of
its own: a wait is blamed only for what it costs without them.
"""

from __future__ import annotations

from functools import reduce
from operator import and_

import numpy as np
import polars as pl
from msgspec import Struct

from stepscope.derive.host.idle_causes import SYNC
from stepscope.derive.rank.cuda_calls import Family, families, families_of_names
from stepscope.derive.replay.change import Change
from stepscope.findings.case import Case
from stepscope.findings.evidence.hosts import Host, each_host, guilty, stage_of, sure
from stepscope.findings.evidence.measurement import measured
from stepscope.findings.evidence.places import longest
from stepscope.findings.evidence.shown import LATE, lost_by
from stepscope.findings.finding import Finding
from stepscope.findings.texts import advice, title
from stepscope.intervals import Spans, union
from stepscope.intervals.arrays import I64, NONE, by_id
from stepscope.model.range_names import short_range
from stepscope.model.statement import several
from stepscope.model.threshold import Threshold
from stepscope.model.units import about

NUMBER = Threshold(
    64,
    "bytes",
    "`.item()` copies up to 16, a few flags or sizes some more; a tensor is larger",
    ("public/puzzler_d2h_sync.json.gz", "tests/findings/test_thresholds.py::test_a_number_is_small"),
)
NUMBER_HANDLED = Threshold(
    100.0,
    "µs",
    "Python takes 45 from one `.item()` to the next launch; what takes longer is other work, and stays",
    ("public/puzzler_d2h_sync.json.gz", "tests/findings/test_faults_host.py"),
)
MANY_SYNCS = Threshold(
    16,
    "waits of one kind in a step",
    "a wait in every layer is said in a note where the host is far ahead, too: it costs as soon as it is not",
    ("tests/findings/test_guards.py",),
)
APART = Threshold(
    2.0,
    "times the idle time",
    "where a step without a wait is shorter by more than the GPU idles, copies run beside compute that did not before",
    ("tests/findings/test_comes_once.py",),
)


ID = "host-sync"

ITEM, TO_HOST, TO_DEVICE, COPY, DEVICE, STREAM, EVENT = range(7)
#: What each is called: one of them, several, and which calls they are.
_KINDS = {
    "item": ("read of a GPU value", "reads of GPU values", "(.item(), .tolist(), nonzero, comparisons)"),
    "to-host": ("blocking copy", "blocking copies", "to the host (.cpu(), .numpy())"),
    "to-device": ("blocking copy", "blocking copies", "to the device (.to('cuda') of pageable memory)"),
    "copy": ("synchronous copy", "synchronous copies", "(cudaMemcpy)"),
    "device": ("device synchronization", "device synchronizations", "(torch.cuda.synchronize())"),
    "stream": ("stream synchronization", "stream synchronizations", ""),
    "event": ("event synchronization", "event synchronizations", ""),
}


class _Syncs(Struct, frozen=True):
    """Synchronizing calls of one rank's step: rows, kind, and the copy op that each waits for (NONE)."""

    host: Host
    calls: I64
    kind: I64
    copy: I64

    def of(self, kind: int) -> I64:
        calls: I64 = self.calls[self.kind == kind]
        return calls

    def times(self, kind: int) -> int:
        """How often it waits so: a copy of pageable memory blocks, and the call behind it synchronizes again."""
        copies = self.copy[self.kind == kind]
        return len(np.unique(copies[copies != NONE])) + int((copies == NONE).sum())

    def numbers(self) -> I64:
        """Copies that exist only for the number."""
        copies: I64 = np.unique(self.copy[(self.kind == ITEM) & (self.copy != NONE)])
        return copies


class _Costly(Struct, frozen=True):
    """Waits of one kind that cost something, by rank: all waits of the rank, and the calls of this kind."""

    kind: int
    syncs: dict[int, _Syncs]
    calls: dict[int, I64]
    change: Change
    saved: int
    many: bool  # so many that they are listed even if the step gives nothing back
    apart: bool  # they keep copies and compute apart rather than the GPU idle: that is for others to claim


def _costly(case: Case) -> list[_Costly]:
    """Kinds of waits without which the step is shorter."""
    syncs = {r: s for r, s in each_host(case, _syncs).items() if len(s.calls)}
    costly = []
    for kind in range(len(_KINDS)):
        calls = {r: of_kind for r, s in syncs.items() if len(of_kind := s.of(kind))}
        # The GPU idles for a wait until it is fed again: no more than all idle time and all that others wait.
        many = max((syncs[r].times(kind) for r in calls), default=0) >= MANY_SYNCS.value
        if many or case.material(max((syncs[r].host.length(c) for r, c in calls.items()), default=0)):
            change = _change(syncs, calls, kind)
            replayed = case.credit(ID, change)
            saved = _saved(replayed, syncs, calls)
            costly.append(_Costly(kind, syncs, calls, change, saved, many, replayed > APART.value * saved))
    return [c for c in costly if c.saved or c.many]


def _saved(saved: int, syncs: dict[int, _Syncs], calls: dict[int, I64]) -> int:
    """What the step gives back, no more than the GPU idles. Why it idles is only asked where that decides."""
    touched = {r: syncs[r].host.gaps_of(c).length() for r, c in calls.items()}
    if saved <= sum(touched.values()):
        return saved
    return min(saved, sum(max(_idle(syncs[r].host), ns) for r, ns in touched.items()))


def _idle(host: Host) -> int:
    """Idle time before the launches that end it: a host that waited is behind for a while, not only in that gap."""
    return host.idle_ns("sync", "host", "api")


def remedy(case: Case) -> Change:
    """None of the waits that cost something."""
    return reduce(and_, (c.change for c in case.once(_costly) if c.saved and not c.apart), Change())


def detect(case: Case) -> list[Finding]:
    return [_finding(case, c) for c in case.once(_costly)]


def _change(syncs: dict[int, _Syncs], calls: dict[int, I64], kind: int) -> Change:
    if kind != ITEM:
        return Change(calls_not_waiting=calls)
    copies = {r: syncs[r].numbers() for r in calls}
    return Change(
        calls_not_waiting={r: np.union1d(calls[r], syncs[r].host.data.launch[copies[r]]) for r in calls},
        host_time_cut={r: _handled(syncs[r].host, calls[r]) for r in calls},
        ops_fused=copies,
        op_factor={r: (c, np.zeros(len(c))) for r, c in copies.items()},
    )


def _handled(host: Host, calls: I64) -> Spans:
    """What the program does with a number before its next call, were it short: it would not do that either."""
    tid = host.data.calls["tid"].cast(pl.Int64).to_numpy()
    order = by_id(tid)
    following = np.full(len(tid), np.iinfo(np.int64).max)
    same = tid[order[1:]] == tid[order[:-1]]
    following[order[:-1]] = np.where(same, host.start[order[1:]], following[order[:-1]])
    begin, end = host.stop[calls], following[calls]
    short = (end > begin) & (end - begin <= NUMBER_HANDLED.ns)
    return union(begin[short], end[short])


def _finding(case: Case, costly: _Costly) -> Finding:
    kind, calls = list(_KINDS)[costly.kind], costly.calls
    one, many, of = _KINDS[kind]
    ranks = guilty({r: float(len(c)) for r, c in calls.items()})
    worst = max(ranks, key=lambda r: (len(calls[r]), -r))
    host = costly.syncs[worst].host
    n = costly.syncs[worst].times(costly.kind)
    idle, figures, command = lost_by(case, host, "sync", *LATE, claim=costly.saved)
    inside = _ranges(host, calls[worst])
    timer = case.once(measured).get(worst) if costly.kind == DEVICE else None
    behind = f", one after {timer.behind}, as block timers do" if timer is not None else ""
    return Finding(
        ID,
        title("host-sync", calls=" ".join(filter(None, (several(n, one, many), of, "makes" if n == 1 else "make")))),
        costly.saved,
        sure(case),
        f"the host of rank {worst} spends {about(host.length(calls[worst]))} of the step in these calls"
        f"{f', mostly in {inside}' if inside else ''}{behind}; the GPU idles for {idle}",
        advice(f"host-sync/{kind}"),
        command,
        ranks=ranks,
        figures=figures,
        stage=stage_of(case, ranks),
        where=longest(p for r in ranks for p in costly.syncs[r].host.longest(calls[r])),
        covers={r: costly.syncs[r].host.gaps_of(c) for r, c in calls.items()} if costly.saved else {},
        stands_out=costly.many,
    )


def _ranges(host: Host, calls: I64) -> str | None:
    """The range in which most of the calls lie, numbers left out."""
    tid = host.data.calls["tid"].cast(pl.Int64).to_numpy()[calls]
    texts = host.data.text_of(host.data.range_at(tid, host.start[calls])).drop_nulls()
    if not len(texts):
        return None
    short = texts.replace({text: short_range(text) for text in texts.unique().to_list()})
    top = short.str.replace_all(r"\d+", "#").value_counts().sort(["count", "text"], descending=[True, False])
    return f"`{top['text'][0]}`"


def _syncs(host: Host) -> _Syncs:
    """The rank's synchronizing calls."""
    data = host.data
    calls = host.of_cause(SYNC)
    family = families(data)[calls]
    stream, event, device = (family == f for f in (Family.STREAM_SYNC, Family.EVENT_SYNC, Family.DEVICE_SYNC))
    kind = np.select([stream, event, device], [STREAM, EVENT, DEVICE], COPY).astype(np.int64)
    made, before = _copies(host, calls)
    pageable = (made != NONE) & (data.per_name(families_of_names)[data.calls["name"].to_numpy()[calls]] == Family.OTHER)
    copy = np.where(pageable, made, before)
    after = pageable | stream & (copy != NONE)
    size = data.ops["bytes"].fill_null(0).to_numpy()[np.maximum(copy, 0)] if len(data.start) else copy
    to_host = (data.ops["copy_kind"] == "DtoH").to_numpy()[np.maximum(copy, 0)] if len(data.start) else stream
    kind[after & to_host] = np.where(size <= NUMBER.value, ITEM, TO_HOST)[after & to_host]
    kind[after & ~to_host] = TO_DEVICE
    return _Syncs(host, calls, kind, np.where(after, copy, NONE))


def _copies(host: Host, calls: I64) -> tuple[I64, I64]:
    """Copies between host and device that each of these launched, and that the thread's call right before it did."""
    data = host.data
    copies = np.flatnonzero(data.ops["copy_kind"].is_in(["DtoH", "HtoD"]).to_numpy() & (data.launch != NONE))
    of_call = np.full(data.calls.height, NONE, dtype=np.int64)
    of_call[data.launch[copies]] = copies
    tid = data.calls["tid"].cast(pl.Int64).to_numpy()
    order = by_id(tid)
    before = np.full(len(tid), NONE, dtype=np.int64)
    same = tid[order[1:]] == tid[order[:-1]]
    before[order[1:]] = np.where(same, order[:-1], NONE)
    return of_call[calls], np.where(before[calls] != NONE, of_call[np.maximum(before[calls], 0)], NONE)
