"""What `ncclras` prints: which ranks of a communicator do not answer, and which are behind."""

from __future__ import annotations

import re

from stepscope.model.flight import Fact

_MISSING = re.compile(r"[Tt]he missing ranks?:? ([\d, \-]+)")
_TITLE = re.compile(r"^#(\d+)-\d+ \(([0-9a-f]+)\) (\w+)")
#: A line of the table of communicators: group, comms, nodes per comm, ranks per node, ranks per comm.
_ROW = re.compile(r"^\s*(\d+)\s+(\d+)\s+(\d+)\s+(\d+|\d+-\d+)\s+(\d+)\s+\d+\s+\w+")
_KEPT = 240


def facts_of(path: str, text: str, world: int) -> list[Fact]:
    """A fact for each communicator with missing ranks. Its ranks are those of the job only where it has as many."""
    sizes: dict[str, int] = {}
    facts = []
    group = ""
    title = ""
    for line in text.splitlines():
        if row := _ROW.match(line):
            sizes.setdefault(row[1], int(row[5]))
        elif match := _TITLE.match(line):
            group, title = match[1], line.strip()
        elif match := _MISSING.search(line):
            ranks = tuple(int(word) for word in match[1].replace(",", " ").split() if word.isdigit())
            whole = sizes.get(group) == world
            fact = f"ncclras: {title}: {line.strip()}"[:_KEPT]
            facts.append(Fact("silent", tuple(r for r in ranks if r < world) if whole else (), fact, path))
    return facts
