"""Time between steps: it lies in no step's own window (semantics §4), so an answer says when that is most of it."""

from __future__ import annotations

from collections.abc import Iterator

from stepscope.derive.rank.data import RankData, ranks_of
from stepscope.derive.windows.window import Window, Windows
from stepscope.model.note import Note
from stepscope.model.profile import Profile
from stepscope.model.ranks import some_ranks
from stepscope.model.units import about


def between_notes(profile: Profile, chosen: Windows) -> list[Note]:
    """A note where less than half of the steps' periods lies in their windows; none where windows are periods."""
    short = [
        (span, period)
        for data in ranks_of(profile)
        for span, period in _periods(data, chosen)
        if 2 * span.gpu_ns < period
    ]
    if not short:
        return []
    window, period = (sum(ns) / len(short) for ns in zip(*((w.gpu_ns, p) for w, p in short), strict=True))
    ranks = some_ranks(sorted({w.rank for w, _ in short}))
    means = f", means of {len(short)} windows" if len(short) > 1 else ""
    return [
        Note(
            "window-is-part-of-period",
            f"the window covers {about(window)} of a period of {about(period)} ({ranks}{means}): --period includes the "
            "rest, up to the next one's first op",
            severity="warning",
        )
    ]


def _periods(data: RankData, chosen: Windows) -> Iterator[tuple[Window, int]]:
    """Windows that another instance follows, each with the time from its first op to that one's."""
    anchors = chosen.anchors.get(data.rank)
    if anchors is None:
        return
    spans = chosen.of(data.rank)
    starts = {w.index: w.gpu_start_ns for w in spans}
    for span in spans:
        k = span.index + 1
        if span.gpu_start_ns is None or k >= span.count:
            continue
        if k not in starts:
            starts[k] = data.launched_between(int(anchors.start[k]), int(anchors.end[k]))[1][0]
        following = starts[k]
        if following is not None:
            yield span, following - span.gpu_start_ns
