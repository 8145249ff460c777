"""What the timeline's marks and lanes are, as the page gets them: kinds with their colours, groups, labels.

The page has no table of its own: it draws what it is sent, in the colours that its style sheet has under these names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stepscope.derive.comm.purpose import UNKNOWN
from stepscope.report.asker import Asker

#: Ops by role, ranges, calls, and what else the host ran, in the colours of those names.
MARKS = ("compute", "comm", "copy", "range", "call", "torch", "python")
#: Parts of a rank's time: colour, and what the page calls them.
PARTS = {
    "compute": ("compute", "compute"),
    "comm_exposed": ("comm", "exposed communication"),
    "copy_exposed": ("copy", "exposed copies"),
    "idle": ("idle", "idle"),
}
#: Kinds of marks, as the page gets them: `part` names a part of a rank's time; other marks have names of their own,
#: and the last is a counter's.
KINDS = [
    *({"colour": colour, "part": None} for colour in MARKS),
    *({"colour": colour, "part": name} for colour, name in PARTS.values()),
    {"colour": "hidden", "part": None},
]
#: The kind of a counter's marks, and how its largest value is sent.
COUNTER, FULL = len(KINDS) - 1, 65_535

#: What a lane can hold, from top to bottom of a rank.
GROUPS = ("parts", "host", "ranges", "streams", "counters")
PART_LANE, HOST_LANES, RANGE_LANES, STREAMS, COUNTERS = range(len(GROUPS))
#: Host lanes hold one thread each: its place among the rank's threads times this, plus the depth; calls are deepest.
THREAD = 100


class Labels:
    """What stands beside each lane: a stream with what it is for, a thread with what it did, a counter's name.

    `threads` are those of each rank, in order; `counters` are names by level, with their largest value.
    """

    def __init__(
        self, asker: Asker, threads: Mapping[int, list[int]], counters: Sequence[tuple[str, float]] = ()
    ) -> None:
        self._counters, self._threads = counters, threads
        streams = asker.ask("streams").rows.select("rank", "stream", "kind", "purpose")
        self._streams = {(rank, stream): (kind, purpose) for rank, stream, kind, purpose in streams.iter_rows()}

    def of(self, rank: int, group: int, level: int) -> str:
        if group == STREAMS:
            return self._stream(rank, level)
        if group == COUNTERS:
            return self._counters[level][0]
        if group == HOST_LANES:
            place, depth = divmod(level, THREAD)
            what = {0: "ranges", THREAD - 1: "calls"}.get(depth)
            return f"thread {self._threads[rank][place]}: {what}" if what else ""
        return "ranges on the GPU" if group == RANGE_LANES and level == 0 else ""

    def most(self, level: int) -> float:
        """The largest value of a counter."""
        return self._counters[level][1]

    def _stream(self, rank: int, stream: int) -> str:
        kind, purpose = self._streams.get((rank, stream), ("", None))
        if kind == "comm" and purpose not in (None, UNKNOWN):
            kind = purpose
        return f"{f'stream {stream}' if stream >= 0 else 'no stream'} {kind or ''}".strip()
