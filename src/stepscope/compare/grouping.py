"""Which of the files given for a side are one run, and which are another run of the same job.

Files are the ranks of one job, as everywhere. A rank cannot be in a job twice: where one comes again, the files are
repeated runs, told apart by the folders they lie in, or else one run per file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from stepscope.errors import BadInput
from stepscope.model import ranks
from stepscope.model.door import admitted
from stepscope.model.source import Source

Runs = Literal["auto", "one", "folder", "file"]


@dataclass(frozen=True)
class Held:
    """What a file holds: how many processes, and the ranks that it states itself."""

    path: Path
    processes: int
    known: frozenset[int]


def held(source: Source) -> Held:
    table, _ = ranks.assign([admitted(source)])
    stated = table.filter(table["rank_from"] != ranks.INFERRED)["rank"].to_list()
    return Held(source.path, table.height, frozenset(stated))


def runs_of(files: Sequence[Held], how: Runs = "auto") -> tuple[list[list[int]], str]:
    """Indices of the files of each run, and in words how they were understood."""
    everything = list(range(len(files)))
    if how == "one" or len(files) == 1:
        return [everything], _one(files)
    by_folder = _grouped(files, [f.path.parent for f in files])
    if how == "folder":
        return by_folder, f"{len(by_folder)} runs, one per folder"
    if how == "file":
        return [[i] for i in everything], f"{len(files)} runs, one per file"
    twice = [r for r, n in Counter(r for f in files for r in f.known).items() if n > 1]
    if not twice:
        sizes = {sum(files[i].processes for i in group) for group in by_folder}
        if not any(f.known for f in files) and len(by_folder) > 1 and len(sizes) == 1:
            return (
                by_folder,
                f"{len(by_folder)} runs, one per folder (no file says its rank; --runs one joins them)",
            )
        return [everything], _one(files)
    if len(by_folder) > 1 and _alike(files, by_folder):
        return by_folder, f"{len(by_folder)} runs, one per folder"
    singles = [[i] for i in everything]
    if _alike(files, singles):
        return singles, f"{len(files)} runs, one per file"
    one, other = (f.path for f in [f for f in files if twice[0] in f.known][:2])
    raise BadInput(
        f"{one} and {other} both hold rank {twice[0]}, and neither folders nor files tell runs apart",
        "put the files of each run into a folder of its own, or give --runs folder or --runs file",
    )


def _one(files: Sequence[Held]) -> str:
    count = sum(f.processes for f in files)
    text = f"1 run of {count} rank{'s' * (count != 1)}"
    if len(files) == 1:
        return text
    unsure = "" if any(f.known for f in files) else " (no file says its rank; --runs file splits them)"
    return f"{text} in {len(files)} files{unsure}"


def _grouped(files: Sequence[Held], keys: Sequence[Path]) -> list[list[int]]:
    groups: dict[Path, list[int]] = {}
    for i, key in enumerate(keys):
        groups.setdefault(key, []).append(i)
    return list(groups.values())


def _alike(files: Sequence[Held], groups: list[list[int]]) -> bool:
    """Every group holds each rank once, and all hold the same."""
    ranks_in = [[r for i in group for r in files[i].known] for group in groups]
    return all(len(set(r)) == len(r) for r in ranks_in) and len({frozenset(r) for r in ranks_in}) == 1
