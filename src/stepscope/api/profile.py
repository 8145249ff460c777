"""A profile that answers: every question is a method of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import polars as pl

from stepscope.api.methods import Methods
from stepscope.api.workers import Workers
from stepscope.errors import BadInput
from stepscope.model import profile as model
from stepscope.model.note import Note
from stepscope.model.result import Result
from stepscope.model.statement import several

if TYPE_CHECKING:
    from stepscope.api.comparing import Given
    from stepscope.api.options import Ranks
    from stepscope.export.write import Exported

T = TypeVar("T")


class Profile(model.Profile, Methods):
    """A profile that answers: `p.window()`, `p.overlap(by="stage", rank="0,3-5")`. `dir(p)` lists the questions."""

    #: who reads the parts of a profile of many files
    workers = Workers()
    #: by profiler: other captures of the same job, opened where this one lacks something
    others: Mapping[str, Callable[[], Profile]] = {}
    #: by profiler, how many files, where there are others; this one's first
    captured: Mapping[str, int] = {}

    @property
    def notes(self) -> list[Note]:
        """As the model's profile has them; and where two profilers recorded the job, which of them this is."""
        if not self.captured:
            return super().notes
        told = " and ".join(f"{name} ({several(n, 'file')})" for name, n in self.captured.items())
        text = f"{told} recorded this job: figures are {next(iter(self.captured))}'s, unless a note says otherwise"
        return [Note("two-captures", text, origin="import"), *super().notes]

    def map(self, function: Callable[..., T], *args: Any, **options: Any) -> list[T]:
        """As the model's profile does, by the workers that the profile was opened with."""
        used = sorted(set(self.ranks["source"].to_list()))
        paths = [self.paths[i] for i in used]
        if self._in_one_part or len(used) < 2 or self.workers.wanted(paths) < 2:
            return super().map(function, *args, **options)
        parts = [(p, self.ranks.filter(pl.col("source") == i)) for i, p in zip(used, paths, strict=True)]
        results = []
        for i, (result, notes) in zip(used, self.workers.map(parts, partial(function, **options), args), strict=True):
            results.append(result)
            for note in notes:
                self._sources[i].quality.note(note)
        return results

    def compare(self, to: Given, **options: Any) -> Result:
        """This run (the base) against another, or several: a profile, paths, or a list of profiles.

        Options: by, margin, top, rank, anchor, step, chunk, whole, warmup. `api.compare` takes runs of both sides.
        """
        from stepscope.api.comparing import compare

        return compare(self, to, **options)

    def gate(self, base: Given, **options: Any) -> Result:
        """Is this run within limits of `base`: a profile, paths, or the file of a baseline? See `api.gate`."""
        from stepscope.api.comparing import gate

        return gate(base, self, **options)

    def sql(
        self,
        query: str,
        *,
        limit: int = 0,
        rank: Ranks | None = None,
        answers: Mapping[str, Result] | None = None,
    ) -> Result:
        """A question of your own, in SQL: `p.sql("SELECT name, sum(dur_ns) AS ns FROM ops GROUP BY name").rows`.

        Only SELECT (WITH), EXPLAIN and DESCRIBE pass. `limit`: how many rows at most, 0 for all. Answers can be tables,
        too: `p.sql("SELECT stage, median(exposed_ns) FROM a GROUP BY stage", answers={"a": p.overlap(index="all")})`.
        See docs/cookbook.md.
        """
        from stepscope.api.analysing import sql

        return sql(self, query, limit=limit, rank=rank, answers=answers)

    def export(self, file: str | Path, **options: Any) -> Exported:
        """Write the profile for another tool: `p.export("job.pftrace")`, for https://ui.perfetto.dev.

        Options: to (the form, where the ending does not tell), rank, findings. See docs/export.md.
        """
        from stepscope.api.exporting import export

        return export(self, file, **options)

    @cached_property
    def unprofiled_step_ns(self) -> float | None:
        """Length of a step before recording began: `capture run` notes it in its manifest."""
        from stepscope.capture import step_times

        return step_times.unprofiled(self._manifest) if self._manifest else None

    @property
    def compile_settings(self) -> list[dict[str, Any]]:
        """What the program asked of torch.compile: the hooks of `capture run` hear it."""
        return list(self._manifest["captured"].get("compiled_with") or ()) if self._manifest else []

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

    def __repr__(self) -> str:
        files = ", ".join(Path(s.file).name for s in self.sources[:3]) + (", …" if len(self.sources) > 3 else "")
        return f"<stepscope.Profile of {self.ranks.height} rank{'s' * (self.ranks.height != 1)}: {files}>"
