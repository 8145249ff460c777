"""The answers of the server: what a view, a search, a span or a mark asks, of one profile or of two."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import cast

import stepscope
from stepscope import progress
from stepscope.errors import StepscopeError
from stepscope.intervals.arrays import Mask
from stepscope.model.command_line import command_line, flags
from stepscope.report.messages.step import Steps
from stepscope.report.sections import findings as concluded
from stepscope.report.sections import steps
from stepscope.timeline.block import MOST_PIXELS, MOST_ROWS, block
from stepscope.timeline.scale import placed
from stepscope.timeline.track import Track
from stepscope.web.asked import Asked, BadRequest
from stepscope.web.details import details
from stepscope.web.messages import Conclusion, DetailsData, MatchData, SceneData, SearchData, SpanData, SqlData
from stepscope.web.scene import Served
from stepscope.web.search import Found, search, texts_matching
from stepscope.web.span import span
from stepscope.web.sql import MOST_QUERY, answered

#: Searches that are kept: one has a number for each match.
_KEPT = 4
#: How often one who waits for its turn looks whether the answer is still wanted.
_LOOK_S = 0.1


class Answers:
    """What was opened. Views are answered from arrays that never change; questions to a profile, one at a time."""

    def __init__(self, scenes: list[Served]) -> None:
        self._scenes = scenes
        self._locks = [threading.Lock() for _ in scenes]
        self._conclusions: dict[int, Conclusion] = {}
        #: since when, and on what, the findings are worked on
        self._begun, self._doing = time.monotonic(), ""
        self._search = lru_cache(maxsize=_KEPT)(self._searched)
        self._matching = lru_cache(maxsize=_KEPT * 4)(self._texts)

    def conclude(self) -> None:
        """Work out findings and who is to blame, which takes longer than to draw: in a thread of its own."""
        self._begun = time.monotonic()
        threading.Thread(target=self._conclude, name="findings", daemon=True).start()

    def _conclude(self) -> None:
        own = threading.get_ident()

        def heard(what: str, done: int | None, total: int | None) -> None:
            if threading.get_ident() == own:  # others answer questions meanwhile
                self._doing = what

        progress.listen(heard)
        for i, scene in enumerate(self._scenes):
            self._conclusions[i] = _conclusion(scene)
        progress.listen(None)

    def scene(self) -> SceneData:
        first, *beside = [scene.asker.paths for scene in self._scenes]
        others = [path for paths in beside for path in paths]
        return {
            "version": stepscope.__version__,
            "command": command_line("serve", *first, *flags({"beside": others})),
            "profiles": [scene.data for scene in self._scenes],
        }

    def block(self, asked: Asked) -> bytes:
        which, scene = self._of(asked)
        rows = asked.numbers("lanes", len(scene.tracks), MOST_ROWS)
        if not rows:
            raise BadRequest("lanes: some are expected")
        lo, hi = asked.moments()
        wanted = asked.text("q")
        matches: Mask | None = None
        if wanted:
            try:
                matches = self._matching(which, wanted)
            except ValueError:  # the search itself says what is wrong
                matches = None
        return block(scene, rows, lo, hi, asked.number("px", 1, MOST_PIXELS), matches)

    def search(self, asked: Asked) -> SearchData:
        which, _ = self._of(asked)
        try:
            matches = self._search(which, asked.text("q"))
        except ValueError as wrong:
            return {"error": str(wrong), "count": 0, "ops": 0, "total_ns": 0, "names": []}
        return {
            "error": None,
            "count": len(matches.start),
            "ops": matches.ops,
            "total_ns": matches.total_ns,
            "names": matches.names,
        }

    def match(self, asked: Asked) -> MatchData:
        """The k-th match, or without `k` the first at `at` or later."""
        which, scene = self._of(asked)
        try:
            matches = self._search(which, asked.text("q"))
        except ValueError as wrong:
            raise BadRequest(str(wrong)) from None
        if not len(matches.start):
            raise BadRequest("nothing matches")
        if "k" in asked.given:
            return matches.at(scene, asked.number("k", -(10**9), 10**9))
        return matches.at(scene, int(matches.start.searchsorted(asked.number("at", -(10**18)))))

    def span(self, asked: Asked) -> SpanData:
        which, scene = self._of(asked)
        lo, hi = asked.moments()
        ranks = [r for r in asked.numbers("ranks", max(scene.lines) + 1) if r in scene.lines] or list(scene.lines)
        with self._alone(which):
            return span(scene, ranks, lo, hi)

    def details(self, asked: Asked) -> DetailsData:
        which, scene = self._of(asked)
        lane = asked.number("lane", 0, len(scene.tracks) - 1)
        track = scene.tracks[lane]
        if not isinstance(track, Track) or track.group == "parts" or not len(track.start):
            raise BadRequest("lane: it has no marks of its own")
        row = asked.number("row", 0, len(track.start) - 1)
        with self._alone(which):
            return details(scene, lane, row)

    def sql(self, asked: Asked) -> SqlData:
        which, scene = self._of(asked)
        with self._alone(which):
            return answered(scene, asked.text("q", MOST_QUERY))

    def findings(self, asked: Asked) -> Conclusion:
        which, _ = self._of(asked)
        if which not in self._conclusions:
            return {"ready": False, "seconds": time.monotonic() - self._begun, "doing": self._doing}
        return self._conclusions[which]

    @contextmanager
    def _alone(self, which: int) -> Iterator[None]:
        """One question at a time; who waits may lose interest."""
        while not self._locks[which].acquire(timeout=_LOOK_S):
            progress.check()
        try:
            progress.check()
            yield
        finally:
            self._locks[which].release()

    def _of(self, asked: Asked) -> tuple[int, Served]:
        which = asked.number("p", 0, len(self._scenes) - 1, 0)
        return which, self._scenes[which]

    def _searched(self, which: int, wanted: str) -> Found:
        return search(self._scenes[which], wanted)

    def _texts(self, which: int, wanted: str) -> Mask:
        return texts_matching(self._scenes[which], wanted)


def _conclusion(scene: Served) -> Conclusion:
    """Findings with their places on the drawn clock, and ranks by how long the others waited for them."""
    conclusion = Conclusion(ready=True, findings=None, why=None, late={}, steps=None)
    try:
        part = concluded.make(scene.asker)
        conclusion["findings"] = concluded.placed_at(part, lambda where: placed(where, scene.lines))
    except StepscopeError as reason:
        conclusion["why"] = str(reason)
    if steps.wanted(scene.asker):
        conclusion["steps"] = cast("Steps", steps.make(scene.asker).shown())
    try:
        late = scene.asker.ask("stragglers").rows
        conclusion["late"] = {str(rank): ns for rank, ns in late.select("rank", "late_ns").iter_rows()}
    except StepscopeError:
        pass  # one rank, or ranks that never meet: nobody is late
    return conclusion
