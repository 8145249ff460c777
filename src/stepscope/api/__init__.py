"""What every front end calls: open a profile, ask it a question. Analyses are methods of the profile."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union

import polars as pl

from stepscope.analyses import registry
from stepscope.api.options import RESERVED as RESERVED
from stepscope.api.options import WINDOW_KEYWORDS, Ranks, check, keywords, parse_index, takes_profile
from stepscope.api.options import parse_ranks as parse_ranks
from stepscope.api.workers import Opening, Workers
from stepscope.derive.windows.windows import WindowSpec
from stepscope.errors import BadInput, GateFailed
from stepscope.model import profile as model
from stepscope.model import taxonomy as rules
from stepscope.model.result import Result
from stepscope.model.source import Source
from stepscope.sources.open import open_sources
from stepscope.store import cached

if TYPE_CHECKING:
    from stepscope.compare import measuring
    from stepscope.compare.grouping import Runs
    from stepscope.compare.side import Side
    from stepscope.compare.steps import StepSpec

#: One side of a comparison: a profile or several runs; paths, as the command line has them; or a saved baseline.
Given = Union["Profile", str, Path, Sequence["Profile"], Sequence[str | Path]]
T = TypeVar("T")


class Profile(model.Profile):
    """A profile that answers: `p.window()`, `p.overlap(by="stage", rank="0,3-5")`. `dir(p)` lists the questions."""

    def __getattr__(self, name: str) -> Callable[..., Result]:
        command = name.replace("_", "-")
        if name.startswith("_") or command not in registry.names():
            raise AttributeError(f"{type(self).__name__!r} has no table or analysis {name!r}")

        def ask(**options: Any) -> Result:
            return analyse(self, command, **options)

        analysis = registry.get(command)
        ask.__name__ = ask.__qualname__ = name
        ask.__doc__ = f"{analysis.doc}\n\nOptions: {', '.join(keywords(analysis))}."
        return ask

    #: who reads the parts of a profile of many files
    workers = Workers()

    def map(self, function: Callable[..., T], *args: Any) -> list[T]:
        """As `model.Profile.map`, by the workers that the profile was opened with."""
        used = sorted(set(self.ranks["source"].to_list()))
        paths = [self.paths[i] for i in used]
        if len(used) < 2 or self.workers.wanted(paths) < 2:
            return super().map(function, *args)
        parts = [(p, self.ranks.filter(pl.col("source") == i)) for i, p in zip(used, paths, strict=True)]
        results = []
        for i, (result, notes) in zip(used, self.workers.map(parts, function, args), strict=True):
            results.append(result)
            for note in notes:
                self._sources[i].quality.note(note)
        return results

    def compare(self, to: Given, **options: Any) -> Result:
        """This run (the base) against another, or several: a profile, paths, or a list of profiles.

        Options: by, margin, top, rank, anchor, period, whole, warmup. `api.compare` takes repeated runs of both sides.
        """
        return compare(self, to, **options)

    def gate(self, base: Given, **options: Any) -> Result:
        """Is this run within limits of `base`: a profile, paths, or the file of a baseline? See `api.gate`."""
        return gate(base, self, **options)

    @property
    def paths(self) -> list[Path]:
        """The files (or directories) it was opened from."""
        return [s.path for s in self._sources]

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *(n.replace("-", "_") for n in registry.names())})

    def __repr__(self) -> str:
        files = ", ".join(Path(s.file).name for s in self.sources[:3]) + (", …" if len(self.sources) > 3 else "")
        return f"<stepscope.Profile of {self.ranks.height} rank{'s' * (self.ranks.height != 1)}: {files}>"


def open(  # the name that users see: stepscope.open
    *paths: str | Path,
    cache: bool = True,
    nsys: str | None = None,
    taxonomy: str | Path | None = None,
    jobs: int | None = 1,
    cluster: str | None = None,
) -> Profile:
    """Files, directories and globs, as one profile: the ranks of one job.

    `cache=False` reads the files afresh and leaves nothing behind; `nsys` is the nsys to convert `.nsys-rep` files
    with; `taxonomy` is a file of extra rules for what is communication. Questions across ranks read the files with
    `jobs` processes (None: one per core, where it pays; scripts need `if __name__ == "__main__":` then), or on the
    Dask cluster whose scheduler is at `cluster`.
    """
    found = _opened(paths, cache=cache, nsys=nsys, taxonomy=taxonomy, jobs=jobs, cluster=cluster)
    return found.profile(found.sources)


@dataclass(frozen=True)
class _Opened:
    """Sources, and what it takes to make profiles of them."""

    sources: list[Source]
    extra: rules.Taxonomy | None
    workers: Workers

    def profile(self, sources: list[Source]) -> Profile:
        made = Profile(sources, self.extra)
        made.workers = self.workers
        return made


def _opened(
    paths: Sequence[str | Path],
    *,
    cache: bool = True,
    nsys: str | None = None,
    taxonomy: str | Path | None = None,
    jobs: int | None = 1,
    cluster: str | None = None,
) -> _Opened:
    if not paths:
        raise BadInput("no profile given", "name a trace, a directory or a glob")
    extra = rules.load(Path(taxonomy)) if taxonomy is not None else None
    sources = open_sources(paths, nsys=nsys, wrap=cached if cache else None)
    return _Opened(sources, extra, Workers(jobs, cluster, Opening(cache, nsys, extra)))


def open_runs(*paths: str | Path, runs: Runs = "auto", **opening: Any) -> tuple[list[Profile], str]:
    """Files that hold one run of a job or several, each as a profile; and how they were understood, in words.

    `runs` says how files make runs: `one`, a run per `folder`, one per `file`, or by what they hold (`auto`).
    """
    from stepscope.compare.grouping import held, runs_of

    whole = _opened(paths, **opening)
    groups, said = runs_of([held(s) for s in whole.sources], runs)
    return [whole.profile([whole.sources[i] for i in group]) for group in groups], said


def compare(
    base: Given,
    new: Given,
    *,
    by: Literal["part", "stage", "rank", "family", "kernel"] = "part",
    margin: float = 3.0,
    top: int = 20,
    gate: bool = False,
    rank: Ranks | None = None,
    **options: Any,
) -> Result:
    """What changed from `base` to `new`, and is it more than noise? See docs/compare.md.

    A side is a profile, a list of profiles (runs of the same), paths, or a saved baseline. Further options choose the
    steps (anchor, period, whole, warmup), and how paths are opened (runs, cache, nsys, taxonomy). With `gate`,
    `GateFailed` where the step is more than 2 % longer, or nobody can tell.
    """
    from stepscope.compare.compare import compare as compared
    from stepscope.compare.gate import gate as checked
    from stepscope.compare.gate import parse_limits

    sides = _sides(base, new, rank, options)
    result = compared(*sides, by=by, margin=margin, top=top)
    if gate:
        try:
            checked(*sides, parse_limits(None, ()))
        except GateFailed as failed:
            failed.result = result
            raise
    return result


def gate(
    base: Given,
    new: Given,
    *,
    limits: Iterable[str] = (),
    limits_file: str | Path | None = None,
    allow_inconclusive: bool = False,
    rank: Ranks | None = None,
    **options: Any,
) -> Result:
    """Is `new` within limits of `base`? `GateFailed`, whose `result` says why, where it is not; see docs/compare.md."""
    from stepscope.compare.gate import gate as checked
    from stepscope.compare.gate import parse_limits

    wanted = parse_limits(None if limits_file is None else Path(limits_file), limits)  # before anything is read
    sides = _sides(base, new, rank, options)
    return checked(*sides, wanted, allow_inconclusive=allow_inconclusive)


def save_baseline(given: Given, name: str, *, rank: Ranks | None = None, **options: Any) -> Path:
    """Keep what a later run is to be compared with: one small file, by name (below `.stepscope`) or by path."""
    from stepscope.compare import baseline

    path = baseline.path_of(name)
    spec = _step_spec(options)
    ranks = None if rank is None else parse_ranks(rank)
    baseline.save(path, _given(given, options).side(spec, ranks), spec)
    return path


def _sides(base: Given, new: Given, rank: Ranks | None, options: dict[str, Any]) -> tuple[Side, Side]:
    """Both sides, measured by the same rule: a baseline's, where one was saved."""
    from stepscope.compare import baseline
    from stepscope.compare.measuring import both

    spec = _step_spec(options)
    ranks = None if rank is None else parse_ranks(rank)
    file = _baseline(base)
    if (last := _baseline(new)) is not None:
        raise BadInput(f"{last}: a baseline can only be the base", "name it first: compare BASELINE --to PROFILE")
    if file is None:
        return both(_given(base, options), _given(new, options), spec, ranks)
    saved, rule = baseline.load(file)
    if spec not in (type(spec)(), rule):
        raise BadInput(f"{file}: was saved with other steps", "leave out --anchor, --period, --whole and --warmup")
    return saved, _given(new, options).side(rule, ranks)


def _step_spec(options: dict[str, Any]) -> StepSpec:
    from stepscope.compare.steps import StepSpec

    return StepSpec(**{k: options.pop(k) for k in ("anchor", "period", "whole", "warmup") if k in options})


def _baseline(given: Given) -> Path | None:
    from stepscope.compare.baseline import is_baseline

    paths = [given] if isinstance(given, str | Path) else given if isinstance(given, list | tuple) else []
    one = paths[0] if len(paths) == 1 else None
    return Path(one) if isinstance(one, str | Path) and is_baseline(Path(one)) else None


def _given(given: Given, options: dict[str, Any]) -> measuring.Given:
    """The runs of a side: profiles as they are, paths opened."""
    from stepscope.compare import measuring

    listed = [given] if isinstance(given, str | Path | model.Profile) else list(given)
    if not listed:
        raise BadInput("nothing to compare", "name a trace, a directory or a glob")
    opened = [p for p in listed if isinstance(p, model.Profile)]
    said = ""
    if len(opened) != len(listed):
        found, said = open_runs(*(p for p in listed if isinstance(p, str | Path)), **options)
        opened += found
    return measuring.Given(opened, [path for p in opened for path in getattr(p, "paths", [])], said)


def analyse(profile: model.Profile | None, name: str, *, rank: Ranks | None = None, **options: Any) -> Result:
    """Ask `profile` the question `name`; `options` are those of the command line, with underscores.

    Without a profile, only what can do without one: `analyse(None, "compile", log="run.log")`.
    """
    analysis = registry.get(name)
    if profile is None and analysis.needs_profile:
        raise BadInput(f"{name} needs a profile", "name a trace, a directory or a glob")
    valid = keywords(analysis)
    unknown = [k for k in options if k not in valid]
    if unknown:
        raise TypeError(f"{name}: no option {unknown[0]!r}; it has {', '.join(valid)}")
    for option in analysis.options:
        if option.name in options:
            check(option, options[option.name])
            if takes_profile(option.type) and isinstance(options[option.name], str | Path):
                options[option.name] = open(options[option.name])
    if rank is not None and profile is not None:
        profile = profile.select(parse_ranks(rank))
    asked: list[Any] = [profile]
    if analysis.windowed:
        chosen = {k: options.pop(k) for k in WINDOW_KEYWORDS if k in options}
        if "index" in chosen:
            chosen["index"] = parse_index(chosen["index"])
        asked.append(WindowSpec(**chosen))
    try:
        return _finished(analysis.function(*asked, **options), name, profile)
    except GateFailed as failed:
        if failed.result is not None:
            failed.result = _finished(failed.result, name, profile)
        raise


def _finished(result: Result, name: str, profile: model.Profile | None) -> Result:
    """The result with the scope that only the front end knows."""
    result.command = name
    if profile is None:
        return result
    used = set(profile.ranks["source"].to_list())
    result.sources = [s for i, s in enumerate(profile.sources) if i in used]
    result.ranks = profile.ranks.height
    read = profile.notes if name == "info" else _warnings_folded(profile.notes)
    result.notes = list(dict.fromkeys([*read, *result.notes]))
    return result


def _warnings_folded(notes: list[str]) -> list[str]:
    """The profiler's own warnings as one line: they matter, but not before every answer."""
    warned = [n for n in notes if "the profiler warned" in n or "the profiler gave" in n]
    if len(warned) < 2:
        return notes
    return [
        *(n for n in notes if n not in warned),
        f"the profiler gave {len(warned)} warnings: `stepscope info` lists them",
    ]
