"""Opened profiles, kept while they are asked: what one question derived, the next has."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stepscope import api, progress
from stepscope.agent.memory import give_back
from stepscope.agent.roots import Roots
from stepscope.api.profile import Named
from stepscope.files.identity import Stamp, entry
from stepscope.sources.open import find_profiles

#: So many profiles stay open; the one that was asked longest ago goes first.
MOST_OPEN = 4
#: How often one who waits for a profile looks whether the answer is still wanted.
_LOOK_S = 0.1

#: What files hold, as far as can be told without reading them.
State = Stamp


@dataclass
class Opened:
    """A profile, once it is open; one question at a time, as questions share what they derive."""

    profile: api.Profile | None = None
    lock: threading.RLock = field(default_factory=threading.RLock)


class Profiles:
    """The profiles of one server. Calls come from several threads."""

    def __init__(self, roots: Roots, *, most: int = MOST_OPEN, **opening: Any) -> None:
        self.roots = roots
        self._most = most
        self._opening = opening
        self._open: OrderedDict[State, Opened] = OrderedDict()
        self._lock = threading.Lock()

    @contextmanager
    def asked(self, given: str | Sequence[str]) -> Iterator[api.Profile]:
        """The profile that these paths name, for the time of one question. A file that has changed is opened anew."""
        files = [path for path, _ in find_profiles(self.roots.paths(given))]
        key = state(files)
        with self._lock:
            kept = self._open.setdefault(key, Opened())
            self._open.move_to_end(key)
            full = len(self._open) > self._most
            while len(self._open) > self._most:
                self._open.popitem(last=False)
        if full:
            give_back()
        while not kept.lock.acquire(timeout=_LOOK_S):
            progress.check()  # who waits may lose interest, too
        try:
            if kept.profile is None:  # opening may take long, too: a report is exported first
                kept.profile = api.open(*files, **self._opening)
                kept.profile.named = None  # command lines name files as the agent did: whoever answers puts them in
            yield kept.profile
        finally:
            kept.lock.release()

    @property
    def rules(self) -> list[str]:
        """The options that say by which rules files are read."""
        return Named((), *(self._opening.get(rule) for rule in ("taxonomy", "labels"))).rules

    @property
    def opening(self) -> dict[str, Any]:
        """How files are opened: also those of a comparison."""
        return dict(self._opening)


def state(files: Sequence[Path]) -> State:
    """Changes whenever one of the files does."""
    parts = [part for path in files for part in (sorted(path.iterdir()) if path.is_dir() else [path])]
    return tuple(map(entry, parts))
