"""What every front end calls: open a profile, ask it a question. Analyses are methods of the profile."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

import polars as pl

from stepscope.analyses import registry
from stepscope.analyses._window import WindowSpec
from stepscope.errors import BadInput, GateFailed
from stepscope.model import profile as model
from stepscope.model import taxonomy as rules
from stepscope.model.result import Result
from stepscope.parallel import Opening, Workers
from stepscope.sources.open import open_sources
from stepscope.store import cached

#: Keywords that choose the window of a windowed analysis.
WINDOW_KEYWORDS = ("anchor", "index", "match", "period", "whole", "start", "end")
#: Keywords that every analysis has; no analysis may use them for options of its own.
RESERVED = (*WINDOW_KEYWORDS, "rank")

Ranks = str | int | Iterable[int]
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
    if not paths:
        raise BadInput("no profile given", "name a trace, a directory or a glob")
    extra = rules.load(Path(taxonomy)) if taxonomy is not None else None
    profile = Profile(open_sources(paths, nsys=nsys, wrap=cached if cache else None), extra)
    profile.workers = Workers(jobs, cluster, Opening(cache, nsys, extra))
    return profile


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
            _check(option, options[option.name])
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


def keywords(analysis: registry.Analysis) -> tuple[str, ...]:
    """Every keyword that the method of this analysis takes."""
    own = tuple(o.name for o in analysis.options)
    return (*own, *(WINDOW_KEYWORDS if analysis.windowed else ()), "rank")


def parse_ranks(text: Ranks) -> list[int]:
    """`"0,3-5"` is ranks 0, 3, 4 and 5; a number or numbers are themselves."""
    if isinstance(text, int):
        return [text]
    if not isinstance(text, str):
        return [int(r) for r in text]
    ranks: list[int] = []
    for part in text.split(","):
        found = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", part)
        if found is None:
            raise BadInput(f"--rank {text!r}: {part.strip()!r} is not a rank", "write numbers and spans, as in 0,3-5")
        first, last = int(found[1]), int(found[2] or found[1])
        if last < first:
            raise BadInput(f"--rank {text!r}: {first}-{last} runs backwards", f"write {last}-{first}")
        if last - first > 1_000_000:
            raise BadInput(f"--rank {text!r}: {first}-{last} is not a span of ranks", "write numbers and spans")
        ranks += range(first, last + 1)
    return ranks


def parse_index(value: int | str) -> int | Literal["median", "all"]:
    """Which instance of the anchor: a number, `median` or `all`."""
    if value == "median" or value == "all":
        return value  # type: ignore[return-value]
    try:
        return int(value)
    except (TypeError, ValueError):
        raise BadInput(f"--index {value!r} is no instance", "give a number, median or all") from None


def choices(hint: Any) -> tuple[Any, ...] | None:
    """The values that a `Literal` (or an optional one) allows; None for other types."""
    if get_origin(hint) is Literal:
        return get_args(hint)
    if get_origin(hint) in (Union, UnionType):
        found = [choices(part) for part in get_args(hint) if part is not type(None)]
        return found[0] if len(found) == 1 else None
    return None


def takes_profile(hint: Any) -> bool:
    """Whether an option is itself a profile, which users name by its path."""
    return model.Profile in (get_args(hint) or (hint,))


def _check(option: registry.Option, value: Any) -> None:
    allowed = choices(option.type)
    if allowed is not None and value not in allowed and value != option.default:
        flag = "--" + option.name.replace("_", "-")
        raise BadInput(f"{flag} {value!r} is not a choice", f"give one of {', '.join(map(str, allowed))}")
    if option.name == "top" and value is not None and value < 0:
        raise BadInput(f"--top {value}", "give how many rows to show; 0 for all")
