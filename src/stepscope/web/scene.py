"""A whole profile as rows of marks on one clock: what the server keeps in memory, and answers views from.

Times are drawn as nanoseconds since the profile's first moment, on the clock of all ranks; each rank's `Line` leads
back to its own clock, which is what commands take.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import polars as pl

from stepscope import api, progress
from stepscope.derive.comm.common_clock import Line, common_clock
from stepscope.derive.rank.data import RankData, rank_of, ranks_of
from stepscope.errors import StepscopeError
from stepscope.files import budget
from stepscope.model import heading
from stepscope.model.kernel_names import kernel_base
from stepscope.model.note import Note
from stepscope.model.result import Result
from stepscope.report.asker import Asker
from stepscope.report.gather import ranks_of_setup
from stepscope.report.lanes import KINDS
from stepscope.web.counters import CounterTrack
from stepscope.web.functions import GROUP as FUNCTIONS
from stepscope.web.functions import functions
from stepscope.web.rows import Making, Row
from stepscope.web.track import Track

#: Steps beyond these are not offered as places to go to.
_MOST_STEPS = 2_000


@dataclass
class Scene:
    """One profile, ready to be looked at."""

    profile: api.Profile
    asker: Asker
    #: by rank, from its own clock to drawn time
    lines: dict[int, Line]
    tracks: list[Row]
    texts: pl.Series
    #: what each text is called in a box
    short: list[str]
    families: list[str]
    end: int
    data: dict[str, Any] = field(default_factory=dict)

    def own(self, rank: int, drawn: int) -> int:
        """A drawn moment on the rank's own clock."""
        line = self.lines[rank]
        return line.own + round((drawn - line.common) * line.rate)


def scene_of(profile: api.Profile, paths: tuple[str, ...]) -> Scene:
    """Read what is drawn, and build the pyramids of all rows."""
    whole = profile.view(in_one_part=True)
    assert isinstance(whole, api.Profile)
    rules = tuple(profile.named.rules) if profile.named else ()
    asker = Asker(lambda name, **options: api.analyse(whole, name, **options), paths, rules=rules)
    lines = _lines(whole)
    progress.report("rows of the timeline")
    making = Making(whole, asker, lines)
    made = [*making.rows(), *functions(making)]
    budget.give_back()
    for done, track in enumerate(made):
        progress.report("levels of detail", done, len(made))
        if isinstance(track, Track) and track.group != FUNCTIONS:  # those are shown when somebody wants them
            _ = track.pyramid
    order = {rank: i for i, rank in enumerate(lines)}
    made.sort(
        key=lambda t: (order[t.rank], isinstance(t, CounterTrack) and not t.value.any())
    )  # what tells nothing, last
    named = making.texts.series()
    end = max((int(t.end.max()) for t in made if isinstance(t, Track) and len(t.end)), default=1)
    short = [kernel_base(text) for text in named.to_list()]
    scene = Scene(whole, asker, lines, made, named, short, making.families.names, end)
    scene.data = _data(scene, making.notes)
    return scene


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


def _data(scene: Scene, notes: list[Note]) -> dict[str, Any]:
    """What the page is told before it asks for a view."""
    setup = scene.asker.ask("setup")
    return {
        "source": heading.source_line(setup),
        "paths": list(scene.asker.paths),
        "end": scene.end,
        "ops": scene.profile.ops.height,
        "kinds": KINDS,
        "families": scene.families,
        "ranks": [
            {
                **row,
                "own": str(scene.lines[row["rank"]].own),
                "drawn": scene.lines[row["rank"]].common,
                "rate": scene.lines[row["rank"]].rate,
            }
            for row in ranks_of_setup(setup)
            if row["rank"] in scene.lines
        ],
        "lanes": [_lane(track) for track in scene.tracks],
        "steps": _steps(scene),
        "notes": [note.data() for note in notes],
    }


def _lane(track: Row) -> dict[str, Any]:
    about = {
        "rank": track.rank,
        "group": track.group,
        "level": track.level,
        "label": track.label,
        "n": len(track.start),
    }
    if isinstance(track, CounterTrack):
        about |= {"most": track.most, "unit": track.unit}
    return about


def _steps(scene: Scene) -> list[dict[str, Any]]:
    """The steps: where each begins on the first of its ranks, and ends on the last; none where nothing marks them."""
    try:
        result: Result = scene.asker.ask("window", step=True, index="all")
    except StepscopeError:
        return []
    spans: dict[str, list[tuple[int, int]]] = {}
    for w in result.window:
        if w["kind"] == "step" and w["gpu_start_ns"] is not None and w["rank"] in scene.lines:
            line = scene.lines[w["rank"]]
            spans.setdefault(w["label"], []).append((line.moment(w["gpu_start_ns"]), line.moment(w["gpu_end_ns"])))
    steps = sorted((min(lo for lo, _ in of), max(hi for _, hi in of), label) for label, of in spans.items())
    return [{"label": label, "start": lo, "end": hi} for lo, hi, label in steps[:_MOST_STEPS]]


def data_of(scene: Scene, rank: int) -> RankData | None:
    """The rank's arrays."""
    return rank_of(scene.profile, rank) if rank in scene.profile.rank_ids() else None
