"""One clock for all ranks: sources say when their capture began. Finer than that is `stepscope clocks`."""

from __future__ import annotations

from stepscope.model.note import Note, noted
from stepscope.model.profile import Profile


def offsets(profile: Profile, notes: list[Note]) -> dict[int, int]:
    """What to add to each rank's times: how much later than the first its capture began, by the hosts' clocks."""
    infos = profile.sources
    used = dict(profile.ranks.select("rank", "source").iter_rows())
    began = {source: infos[source].epoch_ns for source in set(used.values())}
    recorded = [e for e in began.values() if e is not None]
    if len(began) == 1:
        return dict.fromkeys(used, 0)
    if len(recorded) < len(began):
        notes.append(noted("no-session-time/own"))
        return dict.fromkeys(used, 0)
    hosts = profile.ranks["host"].n_unique()
    if hosts > 1:
        notes.append(noted("clocks-not-aligned/recipe", hosts=hosts))
    return {rank: (began[source] or 0) - min(recorded) for rank, source in used.items()}
