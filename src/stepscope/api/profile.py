"""A profile that answers: every question is a method of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from stepscope.api.methods import Methods
from stepscope.api.share import Task
from stepscope.api.workers import Sharing
from stepscope.errors import BadInput, StepscopeError
from stepscope.model import profile as model
from stepscope.model.note import Note, noted
from stepscope.model.program import ProgramSteps
from stepscope.model.result import Result
from stepscope.model.statement import several

if TYPE_CHECKING:
    from stepscope.api.comparing import By, Choosing, Given
    from stepscope.api.options import Ranks, Window
    from stepscope.api.reporting import Page
    from stepscope.export.write import Exported

T = TypeVar("T")

#: More files than this are not spelled out in a command line that is only a suggestion.
_MOST_NAMED = 4


@dataclass(frozen=True)
class Named:
    """The files of a profile and the rules it was opened with, as the user named them: for command lines."""

    paths: tuple[str, ...]
    taxonomy: str | None = None
    labels: str | None = None

    @property
    def words(self) -> list[str]:
        """The same in a command line; more files than a suggestion can bear are PROFILE."""
        files = list(self.paths) if len(self.paths) <= _MOST_NAMED else ["PROFILE"]
        return [*files, *self.rules]

    @property
    def rules(self) -> list[str]:
        """The options that say by which rules it is read."""
        given = (("--taxonomy", self.taxonomy), ("--labels", self.labels))
        return [word for option, value in given if value for word in (option, value)]


class Profile(model.Profile, Methods):
    """A profile that answers: `p.window()`, `p.overlap(by="stage", rank="0,3-5")`. `dir(p)` lists the questions."""

    #: who reads the parts of a profile of many files; None: this process alone
    sharing: Sharing | None = None
    #: how it was opened; None where it was made of sources
    named: Named | None = None
    #: by profiler: other captures of the same job, opened where this one lacks something
    others: Mapping[str, Callable[[], Profile]] = {}
    #: by profiler, how many files, where there are others; this one's first
    captured: Mapping[str, int] = {}

    #: what `open` was given, where it was
    opened_with: tuple[tuple[str, ...], Mapping[str, Any]] | None = None

    def __copy__(self) -> Profile:
        view = object.__new__(type(self))
        view.__dict__.update(self.__dict__)
        return view

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled, a profile is what it was opened with: whoever gets it opens the files again."""
        if self.opened_with is None:
            raise TypeError("a profile that was not opened by stepscope.open cannot be pickled")
        paths, options = self.opened_with
        return _opened_again, (paths, dict(options), self.limited_to)

    @property
    def notes(self) -> list[Note]:
        """As the model's profile has them; and where two profilers recorded the job, which of them this is."""
        if not self.captured:
            return super().notes
        both = " and ".join(f"{name} ({several(n, 'file')})" for name, n in self.captured.items())
        return [noted("two-captures", both=both, first=next(iter(self.captured))), *super().notes]

    def map(self, function: Callable[..., T], *args: Any, **options: Any) -> list[T]:
        """As the model's profile does, by the workers that the profile was opened with."""
        shared = self._shared(function, args, options)
        return shared if shared is not None else super().map(function, *args, **options)

    def gather(self, joined: Callable[[list[T]], T], function: Callable[..., T], *args: Any, **options: Any) -> T:
        """As the model's profile does, by the workers that the profile was opened with."""
        shared = self._shared(function, args, options, joined)
        return joined(shared) if shared is not None else super().gather(joined, function, *args, **options)

    def _shared(
        self,
        function: Callable[..., T],
        args: tuple[Any, ...],
        options: dict[str, Any],
        joined: Callable[[list[T]], T] | None = None,
    ) -> list[T] | None:
        """What workers say of each part, or of their parts together; None where there are none, or one part."""
        if self.sharing is None or self._in_one_part or len(by_source := self.by_source()) < 2:
            return None
        source = {self._sources[i].path: self._sources[i] for i in by_source}
        parts = {self._sources[i].path: ranks for i, ranks in by_source.items()}
        told, notes = self.sharing.map(
            parts, lambda ranks: Task(ranks, self._known.recorded, function, args, options, joined)
        )
        for path, new in notes.items():
            for note in new:
                source[path].quality.note(note)
        self.check()
        return told

    def compare(
        self,
        new: Given | None = None,
        *,
        base: Given | None = None,
        by: By = "part",
        margin: float = 3.0,
        top: int = 20,
        gate: bool = False,
        **options: Unpack[Choosing],
    ) -> Result:
        """This run and another, or several: it is the base of `new=`, or the new one beside `base=`.

        The other side is a profile, a list of profiles, paths, or (as the base) a saved baseline, by name or file.
        `api.compare(base, new)` takes runs of both sides.
        """
        from stepscope.api.comparing import compare

        sides = self._sides(base, new)
        return compare(*sides, by=by, margin=margin, top=top, gate=gate, **options)

    def gate(
        self,
        *,
        base: Given | None = None,
        new: Given | None = None,
        limits: Iterable[str] = (),
        limits_file: str | Path | None = None,
        allow_inconclusive: bool = False,
        **options: Unpack[Choosing],
    ) -> Result:
        """Is this run within limits of `base=`; or is `new=` within limits of this run? `GateFailed` where not.

        `base` may be a saved baseline, by name or file. `api.gate(base, new)` takes runs of both sides.
        """
        from stepscope.api.comparing import gate

        limited: dict[str, Any] = {"limits": limits, "limits_file": limits_file}
        return gate(*self._sides(base, new), **limited, allow_inconclusive=allow_inconclusive, **options)

    def _sides(self, base: Given | None, new: Given | None) -> tuple[Given, Given]:
        if (base is None) == (new is None):
            raise TypeError("give one other run: base=, or new=")
        return (base, self) if base is not None else (self, new)  # type: ignore[return-value]

    def report(
        self,
        path: str | Path | None = None,
        *,
        memory: Profile | str | Path | None = None,
        rank: Ranks | None = None,
        **window: Unpack[Window],
    ) -> Page:
        """The report: shown by a notebook, written to `path` (.html or .md), or by its `save`.

        `memory`: a snapshot of the allocator of the same run. The window is chosen as for any question.
        """
        from stepscope.api import opening, reporting

        held = memory if isinstance(memory, Profile) or memory is None else opening.open(memory)
        snapshot = None if held is None else (held, list(map(str, held.paths)))
        words = ("-o", str(path)) if path is not None else ()
        page = reporting.report(self, list(map(str, self.paths)), rank=rank, memory=snapshot, words=words, **window)
        if path is not None:
            page.save(path)
        return page

    def sql(
        self,
        query: str,
        *,
        limit: int = 0,
        rank: Ranks | None = None,
        seconds: float | None = None,
        answers: Mapping[str, Result] | None = None,
    ) -> Result:
        """A question of your own, in SQL: `p.sql("SELECT name, sum(dur_ns) AS ns FROM ops GROUP BY name").rows`.

        Only SELECT (WITH), EXPLAIN and DESCRIBE pass. `limit`: how many rows at most, 0 for all; `seconds`: after
        which the query is stopped. Answers can be tables, too:
        `p.sql("SELECT stage, median(exposed_ns) FROM a GROUP BY stage", answers={"a": p.overlap(index="all")})`.
        See docs/cookbook.md.
        """
        from stepscope.api.analysing import sql

        return sql(self, query, limit=limit, rank=rank, seconds=seconds, answers=answers)

    def export(self, file: str | Path, **options: Any) -> Exported:
        """Write the profile for another tool: `p.export("job.pftrace")`, for https://ui.perfetto.dev.

        Options: to (the form, where the ending does not say), rank, findings, anonymize, and those of a window, to
        which it is cut. See docs/export.md.
        """
        from stepscope.api.exporting import export

        return export(self, file, **options)

    @cached_property
    def unprofiled_step_ns(self) -> float | None:
        """Length of a step before recording began: `capture run` notes it in its manifest."""
        from stepscope.capture import step_times

        return step_times.unprofiled(self._manifest) if self._manifest else None

    @cached_property
    def unprofiled_host_ns(self) -> float | None:
        """What the host took for such a step, without waiting for the GPU at its end."""
        from stepscope.capture import step_times

        return step_times.unprofiled_host(self._manifest) if self._manifest else None

    @cached_property
    def program_steps(self) -> ProgramSteps | None:
        """Every step of the program, recorded or not, as `capture run` notes them in its manifest."""
        from stepscope.capture import step_times

        return step_times.program_steps(self._manifest) if self._manifest else None

    @property
    def compile_settings(self) -> list[dict[str, Any]]:
        """What the program asked of torch.compile: the hooks of `capture run` hear it."""
        return list(self._manifest["captured"].get("compiled_with") or ()) if self._manifest else []

    def program_facts(self, rank: int) -> dict[str, Any]:
        """What the program of a rank had set in torch, and the most memory that it took: hooks of `capture run` ask."""
        by_rank = self._manifest["captured"].get("hooks") if self._manifest else None
        of_rank = by_rank.get(str(rank)) if isinstance(by_rank, dict) else None
        facts = of_rank if isinstance(of_rank, dict) else {}
        settings, memory = (v if isinstance(v := facts.get(k), dict) else {} for k in ("settings", "memory"))
        return {"settings": settings, "memory": {k: v for k, v in memory.items() if isinstance(v, int) and v > 0}}

    @cached_property
    def _manifest(self) -> dict[str, Any] | None:
        from stepscope.capture import manifest

        try:
            return manifest.of(self.paths)
        except BadInput:  # some other file of that name: `capture verify` says what is wrong with it
            return None

    @property
    def paths(self) -> list[Path]:
        """The files (or directories) it was opened from."""
        return [s.path for s in self._sources]

    def _repr_html_(self) -> str:
        from stepscope.render.notebook import profile_html

        return profile_html(self.ranks, [Path(s.file).name for s in self.sources], self.notes)

    def __repr__(self) -> str:
        files = ", ".join(Path(s.file).name for s in self.sources[:3]) + (", …" if len(self.sources) > 3 else "")
        return f"<stepscope.Profile of {self.ranks.height} rank{'s' * (self.ranks.height != 1)}: {files}>"


def _opened_again(paths: tuple[str, ...], options: dict[str, Any], ranks: list[int] | None) -> Any:
    from stepscope.api.opening import open as opened

    try:
        profile = opened(*paths, **options)
        return profile if ranks is None else profile.view(ranks)
    except StepscopeError as error:
        return _Refused(error)


class _Refused:
    """In place of a profile that could not be opened again: says so when it is asked.

    A worker of a `Pool` that fails at unpickling ends, and its caller waits for ever.
    """

    def __init__(self, error: StepscopeError) -> None:
        self._error = error

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise self._error
