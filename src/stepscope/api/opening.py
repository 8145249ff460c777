"""Opening files as profiles: the ranks of one job, or the runs of several."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache as cache_result
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepscope import progress
from stepscope.api.profile import Named, Profile
from stepscope.api.share import Opening
from stepscope.api.workers import Sharing, Workers
from stepscope.errors import BadInput
from stepscope.files import budget, forks
from stepscope.model import taxonomy as rules
from stepscope.model.label_rules import load as load_labels
from stepscope.model.note import Note, noted
from stepscope.model.ranks import has_timeline
from stepscope.model.source import Source
from stepscope.model.units import size
from stepscope.questions import need_timeline
from stepscope.sources.captures import captures
from stepscope.sources.open import find_profiles, middle, stretches
from stepscope.sources.runs import refuse_other_runs

if TYPE_CHECKING:
    from stepscope.compare.grouping import Runs


def open(  # the name that users see: stepscope.open
    *paths: str | Path | Iterable[str | Path],
    cache: bool = True,
    nsys: str | None = None,
    taxonomy: str | Path | None = None,
    labels: str | Path | None = None,
    jobs: int | None = 1,
    cluster: str | None = None,
    memory: str | int | None = None,
    of_one_job: bool = True,
) -> Profile:
    """Files, directories and globs, one by one or as a list, as one profile: the ranks of one job.

    Where both nsys and torch.profiler recorded them, nsys's files answer, and `others` has the rest: a question that
    nsys's cannot answer is asked there.
    `cache=False` reads the files afresh and leaves nothing behind; `nsys` is the nsys to convert `.nsys-rep` files
    with; `taxonomy` is a file of extra rules for what is communication; `labels` says what the trainer calls its
    ranges: a preset (`"megatron"`) or a file (docs/labels.md). Questions across ranks read the files with `jobs`
    processes (None: one per core, where it pays; scripts need `if __name__ == "__main__":` then), or on the Dask
    cluster whose scheduler is at `cluster`. `memory` (`"1GiB"`, or bytes) is what this process keeps to from now on,
    whatever is open: what does not fit goes to temporary files; by default 75 % of what there is. Files of several
    runs are refused, unless they need not be `of_one_job`: as for recipes, which sum up whatever files they are given.
    """
    forks.refuse()
    if memory is not None:
        budget.keep(memory)
    if nsys is not None:
        from stepscope.sources.nsys.report import need_nsys

        need_nsys(nsys)  # also where nothing has to be exported: else a typing error shows only once the cache is gone
    if strange := [item for item in paths if not isinstance(item, str | Path | Iterable)]:
        raise TypeError(f"open: {strange[0]!r} is not a path")
    given = [path for item in paths for path in ([item] if isinstance(item, str | Path) else item)]
    how: dict[str, Any] = {"cache": cache, "nsys": nsys, "taxonomy": taxonomy, "labels": labels}
    progress.report(_opening(given))
    opened = _opened(given, **how, jobs=jobs, cluster=cluster)
    first, *others = (by_profiler := captures(opened.sources))
    if of_one_job:
        refuse_other_runs(by_profiler[first])
    profile = opened.profile(by_profiler[first])
    profile.captured = {name: len(sources) for name, sources in by_profiler.items()} if others else {}
    words = tuple(str(Path(path).absolute()) for path in given)
    profile.opened_with = words, {**how, "jobs": jobs, "cluster": cluster}
    for path in given:
        profile.add_notes(_on_stretches(Path(path)))
    profile.others = {name: cache_result(partial(opened.profile, by_profiler[name])) for name in others}
    return profile


def _opening(paths: Sequence[str | Path]) -> str:
    """What is opened, with the size of a single file: a large one takes seconds before any of it has been read."""
    if len(paths) != 1:
        return f"opening {len(paths)} paths"
    path = Path(paths[0])
    return f"opening {path.name}" + (f" ({size(path.stat().st_size)})" if path.is_file() else "")


def _on_stretches(path: Path) -> list[Note]:
    """That a folder holds several stretches of a run, and which one of them answers."""
    several = next((found for folder in (path, path / "nsys", path / "torch") if (found := stretches(folder))), [])
    if len(several) < 2:
        return []
    return [
        noted(
            "one-stretch-of-several",
            number=len(several),
            answering=middle(several).name,
            first=several[0],
            last=several[-1],
        )
    ]


@dataclass(frozen=True)
class _Opened:
    """Sources, and what it takes to make profiles of them."""

    sources: list[Source]
    sharing: Sharing | None
    opening: Opening
    named: Named

    def profile(self, sources: list[Source]) -> Profile:
        made = Profile(sources, self.opening.rules, self.opening.labels)
        made.sharing, made.named = self.sharing, self.named
        return made


def _opened(
    paths: Sequence[str | Path],
    *,
    cache: bool = True,
    nsys: str | None = None,
    taxonomy: str | Path | None = None,
    labels: str | Path | None = None,
    jobs: int | None = 1,
    cluster: str | None = None,
    all_stretches: bool = False,
) -> _Opened:
    if not paths:
        raise BadInput("no profile given", "name a trace, a directory or a glob")
    extra = rules.load(Path(taxonomy)) if taxonomy is not None else None
    called = load_labels(labels)
    named = Named(tuple(map(str, paths)), *(None if rule is None else str(rule) for rule in (taxonomy, labels)))
    opening = Opening(cache, nsys, extra, called)
    sources, sharing = Workers(jobs, cluster, opening).open(find_profiles(paths, all_stretches))
    return _Opened(sources, sharing, opening, named)


def open_runs(*paths: str | Path, runs: Runs = "auto", **opening: Any) -> tuple[list[Profile], str]:
    """Files that hold one run of a job or several, each as a profile; and how they were understood, in words.

    `runs` says how files make runs: `one`, a run per `folder`, one per `file`, or by what they hold (`auto`).
    """
    from stepscope.compare.grouping import held, runs_of

    whole = _opened(paths, **opening, all_stretches=True)
    first = next(iter(captures(whole.sources).values()))  # of two profilers, the one that every question asks first
    timed = [source for source in first if has_timeline(source)]  # what ncu measured is of no run
    if not timed:
        need_timeline(whole.profile(whole.sources), "compare")
    groups, sentence = runs_of([held(s) for s in timed], runs)
    profiles = [whole.profile([timed[i] for i in group]) for group in groups]
    for profile in profiles:
        profile.opened_with = tuple(str(path.absolute()) for path in profile.paths), opening
    return profiles, sentence
