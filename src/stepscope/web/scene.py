"""A whole profile as a scene: what the server keeps in memory, and answers from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from stepscope import api, progress
from stepscope.derive.comm.common_clock import Line, common_clock
from stepscope.derive.rank.data import RankData, rank_of, ranks_of
from stepscope.errors import StepscopeError
from stepscope.files import budget
from stepscope.model import heading
from stepscope.model.result import Result
from stepscope.report.asker import Asker
from stepscope.report.messages.shared import NoteData
from stepscope.timeline.messages import Step
from stepscope.timeline.ranks import ranks_of_setup
from stepscope.timeline.rows import Making
from stepscope.timeline.scene import Scene, arranged
from stepscope.timeline.track import Track
from stepscope.web.functions import GROUP as FUNCTIONS
from stepscope.web.functions import functions
from stepscope.web.messages import ServedProfile
from stepscope.web.rows import Reading

#: Steps beyond these are not offered as places to go to.
_MOST_STEPS = 2_000


@dataclass
class Served(Scene):
    """The scene of one profile, and who answers questions about it."""

    profile: api.Profile
    asker: Asker
    data: ServedProfile


def scene_of(profile: api.Profile, paths: tuple[str, ...]) -> Served:
    """Read what is drawn, and build the pyramids of all rows."""
    whole = profile.view(in_one_part=True)
    assert isinstance(whole, api.Profile)
    rules = tuple(profile.named.rules) if profile.named else ()
    asker = Asker(lambda name, **options: api.analyse(whole, name, **options), paths, rules=rules)
    lines = _lines(whole)
    progress.report("rows of the timeline")
    reading = Reading(whole, asker, Making(lines, asker.ask("streams").rows))
    rows = [*reading.rows(), *functions(reading)]
    budget.give_back()
    for done, track in enumerate(rows):
        progress.report("levels of detail", done, len(rows))
        if isinstance(track, Track) and track.group != FUNCTIONS:  # those are shown when somebody wants them
            _ = track.pyramid
    scene = arranged(reading.making, rows)
    setup = asker.ask("setup")
    data = ServedProfile(
        source=heading.source_line(setup),
        paths=list(paths),
        notes=[cast("NoteData", note.data()) for note in reading.notes],
        **scene.drawing(ranks_of_setup(setup), whole.ops.height, {}, _steps(asker, lines)),
    )
    return Served(**vars(scene), profile=whole, asker=asker, data=data)


def _lines(profile: api.Profile) -> dict[int, Line]:
    """By rank, where its first and its last moment are drawn."""
    clock = common_clock(profile)
    spans = {}
    for data in ranks_of(profile):
        moments = [t for t in data.host_span() if t is not None]
        moments += [int(data.start.min()), int(data.end.max())] if len(data.start) else []
        if profile.has("host") and data.host.height:
            moments += [int(data.host["start_ns"].min()), int(data.host["end_ns"].max())]  # type: ignore[arg-type]
        if moments:
            spans[data.rank] = min(moments), max(moments)
    common = {rank: (clock.moment(rank, lo), clock.moment(rank, hi)) for rank, (lo, hi) in spans.items()}
    origin = min(lo for lo, _ in common.values())
    return {
        rank: Line.through(own, (common[rank][0] - origin, common[rank][1] - origin)) for rank, own in spans.items()
    }


def _steps(asker: Asker, lines: dict[int, Line]) -> list[Step]:
    """The steps: where each begins on the first of its ranks, and ends on the last; none where nothing marks them."""
    try:
        result: Result = asker.ask("window", step=True, index="all")
    except StepscopeError:
        return []
    spans: dict[str, list[tuple[int, int]]] = {}
    for w in result.window:
        start, end, line = w["gpu_start_ns"], w["gpu_end_ns"], lines.get(w["rank"])
        if w["kind"] == "step" and start is not None and end is not None and line is not None:
            spans.setdefault(w["label"], []).append((line.moment(start), line.moment(end)))
    steps = sorted((min(lo for lo, _ in of), max(hi for _, hi in of), label) for label, of in spans.items())
    return [{"label": label, "start": lo, "end": hi} for lo, hi, label in steps[:_MOST_STEPS]]


def data_of(scene: Served, rank: int) -> RankData | None:
    """The rank's arrays."""
    return rank_of(scene.profile, rank) if rank in scene.profile.rank_ids() else None
