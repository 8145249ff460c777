"""Places in a tree of ranges: equal texts at equal places are one place, which its ranges share.

Work and memory grow with the number of places, not with the length of their paths: a thousand ranges within each other
have half a million ranges on their paths. A path of more than `MOST` characters loses ranges from its middle; of so
many places that their paths would have more than `ALL` characters together, also a shorter one.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from stepscope.intervals.arrays import I64, NONE

SEPARATOR = " > "
#: What is called that was launched outside any range.
NO_RANGE = "(no range)"
#: Characters of a path; of a longer one, the outermost and the innermost ranges stay, half of it each.
MOST = 4096
#: Characters of all paths together, as far as `LEAST` each allows.
ALL, LEAST = 64_000_000, 256


class Places(Struct, frozen=True):
    """Parents come before their children."""

    parent: I64  # NONE at the top
    depth: I64
    texts: list[str]  # of each place itself

    def paths(self) -> list[str]:
        """Texts from the top, joined; ranges that are left out are counted (`…12 more…`)."""
        paths: list[str] = []
        whole: list[int] = []  # length of the whole path
        head: list[int] = []  # the deepest place on the path that fits half of the most
        most = min(MOST, max(LEAST, ALL // max(len(self.texts), 1)))
        depth = self.depth.tolist()
        for place, (above, text) in enumerate(zip(self.parent.tolist(), self.texts, strict=True)):
            whole.append(len(text) + (whole[above] + len(SEPARATOR) if above != NONE else 0))
            fits = whole[place] <= most // 2
            head.append(place if fits else NONE if above == NONE else head[above])
            if whole[place] <= most:
                paths.append(paths[above] + SEPARATOR + text if above != NONE else text)
            else:
                paths.append(self._without_middle(place, head[place], paths, depth, most))
        return paths

    def _without_middle(self, place: int, head: int, found: list[str], depth: list[int], most: int) -> str:
        text, room = self.texts[place], most // 2
        tail = [text if len(text) <= room else f"{text[:room]}…"]
        at = int(self.parent[place])
        while at not in (NONE, head) and (room := room - len(tail[-1]) - len(SEPARATOR)) >= len(self.texts[at]):
            tail.append(self.texts[at])
            at = int(self.parent[at])
        left_out = (depth[at] if at != NONE else -1) - (depth[head] if head != NONE else -1)
        between = [f"…{left_out} more…"] if left_out else []
        return SEPARATOR.join([*([found[head]] if head != NONE else []), *between, *reversed(tail)])

    def order(self, weight: I64) -> I64:
        """Where each place comes, depth first: children after their parent, the heaviest first, then by text."""
        n = len(self.parent)
        of_text = {text: k for k, text in enumerate(sorted(set(self.texts)))}
        text = np.fromiter((of_text[t] for t in self.texts), np.int64, n)
        levels = by_depth(self.depth)
        size = np.ones(n, dtype=np.int64)
        for level in reversed(levels[1:]):
            np.add.at(size, self.parent[level], size[level])
        siblings = np.lexsort((text, -weight, self.parent))
        before = np.cumsum(size[siblings]) - size[siblings]  # of all in this order
        first = np.flatnonzero(np.diff(self.parent[siblings], prepend=NONE - 1))
        run = np.repeat(before[first], np.diff(np.append(first, n)))
        place = np.empty(n, dtype=np.int64)
        place[siblings] = before - run  # of siblings before it
        for level in levels[1:]:
            place[level] += place[self.parent[level]] + 1
        return place


def by_depth(depth: I64) -> list[I64]:
    """Indices of each depth, the top first."""
    order = np.argsort(depth, kind="stable")
    counts = np.bincount(depth) if len(depth) else np.empty(0, np.int64)
    return np.split(order, np.cumsum(counts)[:-1]) if len(counts) else []


def _distinct(keys: I64) -> tuple[I64, I64]:
    if len(keys) == 1:  # a very deep stack has many levels of one range
        return keys, np.zeros(1, np.int64)
    values, which = np.unique(keys, return_inverse=True)
    return values, which.reshape(-1)


def places_of(parent: I64, depth: I64, name: I64, names: pl.Series) -> tuple[I64, Places]:
    """The place of each range, by its parent, depth and name (a row of `names`), and the places."""
    place = np.full(len(parent), NONE, dtype=np.int64)
    above, own, deep = [], [], []
    count = 0
    for d, level in enumerate(by_depth(depth)):
        up = place[parent[level]] if d else np.full(len(level), NONE, dtype=np.int64)
        pairs, which = _distinct((up + 1) * len(names) + name[level])
        place[level] = count + which
        count += len(pairs)
        above.append(pairs // len(names) - 1)
        own.append(pairs % len(names))
        deep.append(np.full(len(pairs), d, dtype=np.int64))
    if not above:
        return place, Places(place, place, [])
    texts = names.gather(np.concatenate(own)).to_list()
    return place, Places(np.concatenate(above), np.concatenate(deep), texts)
