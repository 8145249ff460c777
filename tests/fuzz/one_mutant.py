"""One mutant: made by its seed, and asked."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import good_inputs
from ask_mutant import Outcome, ask, ask_all
from mutate_cache import mutate_cache
from mutate_tables import mutate_parquet, mutate_sqlite
from mutate_texts import mutate_kineto, mutate_lines, mutate_manifest

from stepscope import api, store
from stepscope.cli.commands._capture_verify import check

#: By how often: SQLite exports are what most people have.
FORMATS = ("sqlite", "parquet", "kineto", "log", "manifest", "cache")
_WEIGHTS = {"sqlite": 10, "parquet": 3, "kineto": 5, "log": 1, "manifest": 1, "cache": 1}
_LOG = ["info", "pipeline", "setup"]


class Factory:
    """Makes mutants below a folder of its own."""

    def __init__(
        self, folder: Path, formats: tuple[str, ...] | list[str] = FORMATS, traces: Path | None = None
    ) -> None:
        self._folder = folder / "mutant"
        self._formats = list(formats)
        self.good = good_inputs.make(folder / "good")
        if traces is not None:
            self.good = good_inputs.more(self.good, traces, folder / "more")
        self._cache = folder / "cache"

    def run(self, r: random.Random, asked: list[str] | None = None) -> tuple[str, str, Outcome]:
        """The format, the defects, and how it went."""
        kind = r.choices(self._formats, [_WEIGHTS[f] for f in self._formats])[0]
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir()
        if kind == "sqlite":
            base = r.choice(self.good.sqlite)
            path, said = mutate_sqlite(r, base, self._folder)
            return kind, said, ask_all([path], asked, base=base)
        if kind == "parquet":
            base = r.choice(self.good.parquet)
            path, said = mutate_parquet(r, base, self._folder)
            return kind, said, ask_all([path], asked)
        if kind == "kineto":
            paths, said = mutate_kineto(r, r.choice(self.good.kineto), self._folder)
            return kind, said, ask_all(paths, asked)
        if kind == "log":
            path, said = mutate_lines(r, self.good.log, self._folder)
            return kind, said, ask_all([path], _LOG)
        if kind == "manifest":
            path, said = mutate_manifest(r, self.good.capture, self._folder)
            outcome = Outcome()
            ask(outcome, "capture verify", lambda: check([str(path)], cache=False) and None)
            ask(outcome, "compare", lambda: api.compare(path, self.good.capture, cache=False) and None)
            return kind, said, outcome
        return kind, *self._cached(r, asked)

    def _cached(self, r: random.Random, asked: list[str] | None) -> tuple[str, Outcome]:
        shutil.rmtree(self._cache, ignore_errors=True)
        base = [r.choice([*self.good.sqlite, *self.good.kineto[1]])]
        ask_all(base, asked or ["breakdown", "stragglers", "diagnose"], cache=True)
        store.flush()
        said = mutate_cache(r, self._cache)
        outcome = ask_all(base, asked, cache=True)
        store.flush()
        return f"{base[0].name} {said}", outcome
