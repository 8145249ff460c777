"""One mutant of any kind: made by its number, and asked."""

from __future__ import annotations

import gzip
import random
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import mutate_small as small
from ask_mutant import EVERYTHING, Outcome, Question, ask_profile, some_questions
from effects import Mutant
from good_inputs import Good, Inputs, cache_at
from mutate_bytes import damage_gzip
from mutate_cache import mutate_cache
from mutate_tables import mutate_parquet, mutate_sqlite
from mutate_texts import TraceText, mutate_json, mutate_kineto, mutate_lines
from oracle import Answer

from stepscope import api, questions, store
from stepscope.compare.gate import parse_limits
from stepscope.model import declared, label_rules, taxonomy
from stepscope.verify import expected_of, verify

#: By how often: what most people have, and what takes little time, more often.
KINDS = {
    "sqlite": 50,
    "parquet": 12,
    "kineto": 35,
    "gzip": 60,
    "pftrace": 45,
    "chrome": 40,
    "folder": 30,
    "ncu-csv": 25,
    "ncu-rep": 1,
    "snapshot": 110,
    "flight": 60,
    "log": 170,
    "compile-log": 80,
    "labels": 110,
    "limits": 110,
    "model": 110,
    "taxonomy": 110,
    "baseline": 150,
    "manifest": 150,
    "cache": 18,
}
#: What files without a timeline can be asked.
_OF_KIND = {
    "log": ("info", "pipeline", "setup"),
    "ncu-csv": ("info", "roofline", "kernels"),
    "ncu-rep": ("info", "roofline"),
    "snapshot": ("info", "memory"),
}
#: Every so many inputs, all questions are asked; else a few.
_ALL_EVERY, _FEW = 50, 2

Answers = dict[str, dict[str, Answer | None]]


class Factory:
    """Makes mutants below a folder of its own, of good inputs and their known answers."""

    def __init__(self, inputs: Inputs, folder: Path, answers: Answers, kinds: list[str] | None = None) -> None:
        self._inputs, self._folder, self._answers = inputs, folder, answers
        self._kinds = [k for k in KINDS if k in (kinds or KINDS)]
        self._texts: dict[Path, TraceText] = {}
        self._opened: api.Profile | None = None
        self._makers: dict[str, Callable[[random.Random, Good, Path], Mutant]] = {
            "sqlite": self._sqlite,
            "parquet": self._parquet,
            "kineto": self._kineto,
            "gzip": self._gzip,
            "cache": self._cached,
            "baseline": self._baseline,
            "manifest": self._manifest,
            "folder": self._export_folder,
            "compile-log": self._compile_log,
            "flight": self._flight,
            **dict.fromkeys(("labels", "limits", "model", "taxonomy"), self._toml),
        }

    def make(self, r: random.Random) -> Mutant:
        kind = r.choices(self._kinds, [KINDS[k] for k in self._kinds])[0]
        bases = self._inputs.kinds["kineto" if kind == "gzip" else kind]
        base = r.choices(bases, [g.weight for g in bases])[0]
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        mutant = self._makers.get(kind, partial(self._file, kind))(r, base, self._folder)
        mutant.said = f"{base.name}: {mutant.said}"
        return mutant

    def run(self, r: random.Random) -> tuple[Mutant, Outcome]:
        mutant, outcome = self.make(r), Outcome()
        mutant.ask(outcome)
        return mutant, outcome

    def _questions(self, r: random.Random, kind: str) -> list[Question]:
        names = _OF_KIND.get(kind)
        if names is not None and r.random() < 0.8:
            return some_questions(r, names, 2)
        return some_questions(r, EVERYTHING, 0 if r.randrange(_ALL_EVERY) == 0 else _FEW)

    def _of_profile(self, r: random.Random, kind: str, base: Good, paths: tuple[Path, ...], defect: tuple) -> Mutant:  # type: ignore[type-arg]
        said, effect = defect
        asked, known = self._questions(r, kind), self._answers.get(base.name)
        return Mutant(kind, said, effect, lambda o: ask_profile(o, paths, asked, effect=effect, known=known))

    def _sqlite(self, r: random.Random, base: Good, folder: Path) -> Mutant:
        path, defect = mutate_sqlite(r, base.paths[0], folder)
        return self._of_profile(r, "sqlite", base, (path,), defect)

    def _parquet(self, r: random.Random, base: Good, folder: Path) -> Mutant:
        path, defect = mutate_parquet(r, base.paths[0], folder)
        return self._of_profile(r, "parquet", base, (path,), defect)

    def _kineto(self, r: random.Random, base: Good, folder: Path) -> Mutant:
        at = r.randrange(len(base.paths))
        paths = [Path(shutil.copy(p, folder / p.name)) for p in base.paths]
        defect = mutate_kineto(r, self._trace(base.paths[at]), paths[at])
        return self._of_profile(r, "kineto", base, tuple(paths), defect)

    def _trace(self, path: Path) -> TraceText:
        if path not in self._texts:
            self._texts[path] = TraceText(path)
        return self._texts[path]

    def _gzip(self, r: random.Random, base: Good, folder: Path) -> Mutant:
        at = r.randrange(len(base.paths))
        paths = [folder / f"{p.name}.gz" for p in base.paths]
        for path, good in zip(paths, base.paths, strict=True):
            path.write_bytes(gzip.compress(good.read_bytes(), 1))
        defect = damage_gzip(r, paths[at], base.paths[at].read_bytes())
        return self._of_profile(r, "gzip", base, tuple(paths), defect)

    def _file(self, kind: str, r: random.Random, base: Good, folder: Path) -> Mutant:
        mutate = {
            "pftrace": small.mutate_packets,
            "chrome": mutate_json,
            "ncu-csv": small.mutate_page,
            "ncu-rep": small.mutate_report,
            "snapshot": small.mutate_pickle,
            "log": mutate_lines,
        }[kind]
        path = Path(shutil.copy(base.paths[0], folder / base.paths[0].name))
        return self._of_profile(r, kind, base, (path,), mutate(r, path))

    def _export_folder(self, r: random.Random, base: Good, folder: Path) -> Mutant:
        header = r.random() < 0.4
        if not header:
            path, defect = mutate_parquet(r, base.paths[0], folder)
        else:
            path = folder / base.paths[0].name
            shutil.copytree(base.paths[0], path)
            defect = mutate_json(r, next(path.glob("*.json")))
        return self._of_profile(r, "folder", base, (path,), (defect[0], "free"))

    def _compile_log(self, r: random.Random, base: Good, folder: Path) -> Mutant:
        path = Path(shutil.copy(base.paths[0], folder / base.paths[0].name))
        said, _ = small.mutate_text(r, path)
        by = {} if r.random() < 0.5 else {"by": "reason"}
        ask = partial(api.analyse, None, "compile", log=str(path), **by)
        return Mutant("compile-log", said, "free", lambda o: o.ask("compile", ask))

    def _flight(self, r: random.Random, base: Good, folder: Path) -> Mutant:
        """One or more dumps of a job that hangs; the others as they are."""
        paths = [Path(shutil.copy(p, folder / p.name)) for p in base.paths]
        said = [small.mutate_dump(r, path)[0] for path in r.sample(paths, r.choice((1, 1, 2, len(paths))))]
        return Mutant("flight", "; ".join(said), "free", lambda o: o.ask("hang", lambda: api.hang(folder)))

    def _toml(self, r: random.Random, base: Good, folder: Path) -> Mutant:
        kind = base.name.split()[0]
        path = Path(shutil.copy(base.paths[0], folder / base.paths[0].name))
        said, _ = small.mutate_toml(r, path)
        used = r.random() < 0.15
        return Mutant(kind, said, "free", lambda o: self._read_toml(o, kind, path, used))

    def _read_toml(self, outcome: Outcome, kind: str, path: Path, used: bool) -> None:
        """Read the file; and in some cases ask what it is for."""
        one = self._inputs.one("sqlite", "one").paths
        if kind == "labels":
            outcome.ask("--labels", lambda: label_rules.load(path) and None)
            if used:
                ask_profile(outcome, one, [("breakdown", {}), ("setup", {}), ("overlap", {})], labels=path)
        elif kind == "taxonomy":
            outcome.ask("--taxonomy", lambda: taxonomy.load(path) and None)
            if used:
                ask_profile(outcome, one, [("breakdown", {}), ("kernels", {"by": "family"})], taxonomy=path)
        elif kind == "limits":
            outcome.ask("--limits", lambda: parse_limits(path, ()) and None)
            if used:
                good = self._inputs.one("baseline", "one").paths[0]
                outcome.ask("gate", lambda: api.gate(good, self._profile(), limits_file=path))
        else:
            outcome.ask("--model", lambda: declared.load(str(path)) and None)
            if used:
                outcome.ask("memory", lambda: api.analyse(None, "memory", model=str(path)))
                outcome.ask("mfu", lambda: api.analyse(self._profile(), "mfu", model=str(path), tokens=2048))

    def _profile(self) -> api.Profile:
        """The good profile that small files are used with."""
        if self._opened is None:
            self._opened = api.open(self._inputs.one("sqlite", "one").paths[0], cache=False)
        return self._opened

    def _baseline(self, r: random.Random, base: Good, folder: Path) -> Mutant:
        path = Path(shutil.copy(base.paths[0], folder / base.paths[0].name))
        said, _ = mutate_json(r, path)
        by = r.choice(("part", "family", "stage", "rank"))

        def ask(outcome: Outcome) -> None:
            outcome.ask("gate", lambda: api.gate(path, self._profile()))
            outcome.ask("compare", lambda: api.compare(path, self._profile(), by=by))

        return Mutant("baseline", said, "free", ask)

    def _manifest(self, r: random.Random, base: Good, folder: Path) -> Mutant:
        path = Path(shutil.copy(base.paths[0], folder / "manifest.json"))
        said, _ = mutate_json(r, path)
        profile = self._profile()

        def checked() -> None:
            verify(profile, profile.paths, expected_of([folder], "nsys"))

        return Mutant("manifest", said, "free", lambda o: o.ask("capture verify", checked))

    def _cached(self, r: random.Random, base: Good, folder: Path) -> Mutant:
        cache, *traces = base.paths
        shutil.copytree(cache, folder / "cache")
        trace = r.choice(traces)
        said, effect = mutate_cache(r, folder / "cache")
        asked = self._questions(r, "cache")
        known = next(
            (
                self._answers.get(g.name)
                for k in ("sqlite", "kineto")
                for g in self._inputs.kinds[k]
                if g.paths == (trace,)
            ),
            None,
        )

        def ask(outcome: Outcome) -> None:
            with cache_at(folder / "cache"):
                ask_profile(outcome, (trace,), asked, cache=True, effect=effect, known=known)
                store.flush()

        return Mutant("cache", said, effect, ask)


def answers_of(inputs: Inputs, least: float = 0.0) -> Answers:
    """What the good inputs answer to every question, without options; of those that are taken `least` often."""
    found: Answers = {}
    for kind in ("sqlite", "parquet", "kineto"):
        for good in (g for g in inputs.kinds[kind] if g.weight >= least):
            profile = api.open(*good.paths, cache=False)
            outcome = Outcome()
            found[good.name] = {
                name: outcome.ask(name, partial(api.analyse, profile, name)) for name in questions.names()
            }
            if outcome.failures:
                raise AssertionError(f"the good input {good.name}: {outcome.failures}")
    return found
