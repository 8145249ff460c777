"""Answers that were given: pages and resources of the same question are not computed again while they are kept."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from stepscope.agent.answers import Asked
from stepscope.agent.failures import Refused

#: So many results stay in memory, and so many bytes of them; the one that was used longest ago goes first.
MOST_RESULTS = 32
MOST_BYTES = 256 << 20
#: Of so many it is known how they are made, so that their resources can still be read.
MOST_RECIPES = 2_000


@dataclass(frozen=True)
class Recipe:
    """How an answer is made again, and its key now: another one where the files have changed."""

    work: Callable[[str], Asked]
    key: Callable[[], str]


class Kept:
    """Results by key, and how they were made."""

    def __init__(self, most: int = MOST_RESULTS, most_bytes: int = MOST_BYTES) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._results: OrderedDict[str, Asked] = OrderedDict()
        self._recipes: OrderedDict[str, Recipe] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: str) -> Asked | None:
        """The result, if it is still here."""
        with self._lock:
            if key in self._results:
                self._results.move_to_end(key)
            return self._results.get(key)

    def put(self, asked: Asked, recipe: Recipe) -> None:
        """Keep it, and drop what was used longest ago."""
        with self._lock:
            self._results[asked.key] = asked
            self._results.move_to_end(asked.key)
            self._recipes[asked.key] = recipe
            self._recipes.move_to_end(asked.key)
            while len(self._results) > 1 and (
                len(self._results) > self._most
                or sum(int(a.result.rows.estimated_size()) for a in self._results.values()) > self._most_bytes
            ):
                self._results.popitem(last=False)
            while len(self._recipes) > MOST_RECIPES:
                self._recipes.popitem(last=False)

    def recipe(self, key: str) -> Recipe | None:
        """How a result was made."""
        with self._lock:
            return self._recipes.get(key)


def key_of(tool: str, arguments: dict[str, Any], state: Any) -> str:
    """The same for the same question of the same files."""
    text = json.dumps([tool, arguments, state], sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def first_of(cursor: str | None, key: str, detail: str, again: dict[str, Any]) -> int:
    """From which row on: 0 without a cursor. One of another question, or of files that have changed, is refused."""
    if cursor is None:
        return 0
    of, _, rest = cursor.partition(".")
    how, _, first = rest.partition(".")
    if (of, how) != (key, detail) or not re.fullmatch("[0-9]{1,12}", first):
        raise Refused(
            "bad_cursor",
            "this cursor is not of this call, or the files have changed since",
            "repeat the arguments of `page.next`, or ask without a cursor",
            again,
        )
    return int(first)
