"""Undamaged traces, any options: `make fuzz ARGS="--good --count 20000"`. Prints how the questions ended.

A round is one trace, opened once, and questions about it whose options are drawn from what the commands declare
(`drawn_options`): most through Python, some as command lines of any command that reads a profile. Only answers,
refusals in one line and possible figures may come out, each within 30 seconds of a processor.
`--only TRACE:ROUND` asks one round again; `--save` writes what docs/reliability.md shows.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from itertools import accumulate
from multiprocessing import get_context
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
os.environ.setdefault("POLARS_MAX_THREADS", "1")

RESULTS = HERE.parent / "reliability" / "results" / "good.json"
#: Questions of a round, of which so many as command lines.
ROUND, LINES = 50, 4
#: Of a trace larger than this, so few.
_LARGE, FEW = 1 << 20, 10
LIMIT_S = 30
#: Commands beside the questions that read one profile and write nothing but their answer.
COMMANDS = ("stats", "rules", "report", "compare", "sql", "export")
_QUERIES = (
    "SELECT count(*) FROM ops",
    "SELECT * FROM windows LIMIT 5",
    "SELECT kind, sum(dur_ns) FROM ops GROUP BY ALL",
    "SELECT * FROM exposures ORDER BY ALL LIMIT 3",
)


def asked(trace: Path, number: int, seed: int) -> dict[str, Any]:
    """One round: how many questions ended in which way, and what must not be."""
    from good_traces import unpacked

    from stepscope.store import flush

    r = random.Random(f"{seed} {trace.name} {number}")
    with tempfile.TemporaryDirectory(prefix="stepscope-good-", ignore_cleanup_errors=True) as folder:
        before = os.environ.get("STEPSCOPE_CACHE_DIR")
        os.environ["STEPSCOPE_CACHE_DIR"] = f"{folder}/cache"
        most = FEW if trace.stat().st_size > _LARGE else ROUND
        try:
            return _round(r, unpacked(trace, Path(folder)), Path(folder), most)
        finally:
            flush()  # nothing is written there once it is gone
            os.environ.pop("STEPSCOPE_CACHE_DIR")
            if before is not None:
                os.environ["STEPSCOPE_CACHE_DIR"] = before


def _asked(task: tuple[Path, int, int]) -> tuple[Path, int, dict[str, Any]]:
    return *task[:2], asked(*task)


def _round(r: random.Random, paths: tuple[Path, ...], folder: Path, count: int) -> dict[str, Any]:
    from ask_mutant import Outcome
    from drawn_options import labels, opened

    outcome = Outcome()
    said: dict[str, str] = {}
    slow: list[str] = []
    profile: list[Any] = []
    outcome.ask("open", lambda: profile.append(opened(paths, labels(r))))  # type: ignore[func-returns-value]
    for what, ask in _questions(r, profile[0], paths, folder, count) if profile else ():
        began, before = time.process_time(), len(outcome.failures)
        outcome.ask(what.split()[0], ask)
        for failure in outcome.failures[before:]:
            said.setdefault(f"{failure.sort}: {failure}", what)
        if time.process_time() - began > LIMIT_S:
            slow.append(f"{what}: {time.process_time() - began:.0f} s")
    ended = {"answered": outcome.answered, "cannot": outcome.cannot, "refused": outcome.refused}
    return {"ended": ended, "failures": said, "count": len(outcome.failures), "slow": slow}


def _questions(
    r: random.Random, profile: Any, paths: tuple[Path, ...], folder: Path, count: int
) -> Iterator[tuple[str, Any]]:
    from drawn_options import options

    from stepscope import questions
    from stepscope.render import FORMATS

    names = [n for n in questions.names() if questions.get(n).needs_profile]
    for _ in range(count - LINES):
        name = r.choice(names)
        given = options(r, profile, name)
        form = r.choice(FORMATS)
        yield f"{name} {given} --format {form}", lambda n=name, g=given, f=form: _rendered(profile, n, g, f)
    for _ in range(LINES):
        line = _line(r, profile, paths, folder)
        yield " ".join(line), lambda words=line: _ran(words)


def _rendered(profile: Any, name: str, given: dict[str, Any], form: Any) -> Any:
    from stepscope import api
    from stepscope.render import render_blocks

    result = api.analyse(profile, name, **given)
    for _ in render_blocks(result, form):
        pass
    return result


def _line(r: random.Random, profile: Any, paths: tuple[Path, ...], folder: Path) -> list[str]:
    from drawn_options import command_line

    from stepscope import questions
    from stepscope.cli.main import cli

    name = r.choice((*COMMANDS, *questions.names()))
    command = cli.get_command(None, name)  # type: ignore[arg-type]
    words = [name, *map(str, paths)]
    words += list(map(str, paths[:1])) if name == "compare" else [r.choice(_QUERIES)] if name == "sql" else []
    words += command_line(r, command, profile)  # type: ignore[arg-type]
    if name in ("report", "export"):
        ending = r.choice((".html", ".md") if name == "report" else (".json", ".pftrace", ".parquet"))
        words += ["-o", str(folder / f"made{r.randrange(10**9)}{ending}")]
    return words


def _ran(words: list[str]) -> None:
    from stepscope.cli.main import run
    from stepscope.errors import BadInput

    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = run(words)
    told = [line for line in err.getvalue().splitlines() if line.startswith("stepscope:")]
    if status not in (0, 1, 2, 3) or any("this is a bug" in line for line in told):
        raise RuntimeError(f"status {status}: {' '.join(told)[:150]}")
    if status in (2, 3):
        raise BadInput(" ".join(told) or f"status {status}, and no word")


def plan(count: int, seed: int) -> list[tuple[Path, int]]:
    """Rounds, small traces more often than large ones, every trace at least once where the count allows."""
    from good_traces import packed, shared

    traces = [*packed(), *shared()]
    r = random.Random(seed)
    rounds = [(trace, 0) for trace in sorted(traces, key=lambda t: t.stat().st_size)]
    weight = [1 / (20_000 + t.stat().st_size) for t in traces]
    rounds += [(r.choices(traces, weight)[0], n) for n in range(1, 2 * count // ROUND + 1)]
    asked_of = accumulate(FEW if trace.stat().st_size > _LARGE else ROUND for trace, _ in rounds)
    return [each for each, so_far in zip(rounds, asked_of, strict=True) if so_far <= max(count, ROUND) + ROUND]


def main() -> int:
    parser = argparse.ArgumentParser(description="Undamaged traces, any options, and how questions about them end.")
    parser.add_argument("--count", type=int, default=2000, help="questions")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", metavar="TRACE:ROUND")
    parser.add_argument("--save", action="store_true", help=f"write {RESULTS.relative_to(HERE.parents[1])}")
    given = parser.parse_args()
    rounds = plan(given.count, given.seed)
    if given.only:
        name, _, number = given.only.rpartition(":")
        rounds = [(trace, int(number)) for trace, _ in plan(10**6, given.seed) if trace.name == name][:1]
    began, ended, failures, slow = time.monotonic(), Counter[str](), Counter[str](), []
    with get_context("spawn").Pool(given.jobs, maxtasksperchild=8) as pool:
        for trace, number, record in pool.imap_unordered(_asked, ((*each, given.seed) for each in rounds)):
            ended.update(record["ended"])
            if sum(ended.values()) // 1000 > (sum(ended.values()) - sum(record["ended"].values())) // 1000:
                print(f"{sum(ended.values())} questions in {time.monotonic() - began:.0f} s", flush=True)
            slow += record["slow"]
            for text, what in record["failures"].items():
                if not failures[text]:
                    print(f"{text}\n     {trace.name}:{number} {what}", flush=True)
                failures[text] += 1
            for text in record["slow"]:
                print(f"slow: {trace.name}:{number} {text}", flush=True)
    count = sum(ended.values())
    print(
        f"{count} questions on {len({t for t, _ in rounds})} traces in {time.monotonic() - began:.0f} s: {dict(ended)}"
    )
    print(f"{sum(failures.values())} must not be, of {len(failures)} kinds; {len(slow)} over {LIMIT_S} s")
    if given.save:
        sorts = Counter(text.partition(":")[0] for text in failures.elements())
        RESULTS.write_text(
            json.dumps(
                {
                    "suite": "good", "questions": count, "traces": len({t for t, _ in rounds}),
                    "minutes": round((time.monotonic() - began) / 60, 1), "options": f"--seed {given.seed}",
                    "ended": dict(ended), "slow": len(slow),
                    **{sort: sorts[sort] for sort in ("unexpected", "impossible")},
                },
                indent=1,
            )
            + "\n",
            "utf-8",
        )  # fmt: skip
    return 1 if failures or slow else 0


if __name__ == "__main__":
    sys.exit(main())
