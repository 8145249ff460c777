"""Undamaged traces, any options: `make fuzz ARGS="--good --count 20000"`. Prints how the questions ended.

A round is one trace, opened once, and questions about it whose options are drawn from what the commands declare
(`drawn_options`): most through Python, some as command lines of any command (`drawn_lines`). Only answers, refusals
in one line and possible figures may come out, each within 30 seconds of a processor. Small traces come first.
`--journal FILE` keeps each round as it ends, and a run that is started again goes on from there.
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
from collections.abc import Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout
from itertools import accumulate
from multiprocessing import get_context
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
os.environ.setdefault("POLARS_MAX_THREADS", "1")

from good_tally import Tally  # noqa: E402

RESULTS = HERE.parent / "reliability" / "results" / "good.json"
#: Questions of a round, of which so many as command lines.
ROUND, LINES = 50, 16
#: Of a trace larger than this, so few.
_LARGE, FEW, FEW_LINES = 1 << 17, 10, 3
LIMIT_S = 30
#: What no line may say: of an error that is none of ours, and of a query whose process is gone.
_NEVER = ("this is a bug", "ended its process")


def asked(trace: Path, number: int, seed: int) -> dict[str, Any]:
    """One round: how many questions ended in which way, and what must not be."""
    from good_traces import unpacked

    from stepscope.store import flush

    r = random.Random(f"{seed} {trace.name} {number}")
    with tempfile.TemporaryDirectory(prefix="stepscope-good-", ignore_cleanup_errors=True) as folder, chdir(folder):
        before = os.environ.get("STEPSCOPE_CACHE_DIR")
        os.environ["STEPSCOPE_CACHE_DIR"] = f"{folder}/cache"
        few = trace.stat().st_size > _LARGE
        most = (FEW, FEW_LINES) if few else (ROUND, LINES)
        try:
            return _round(r, unpacked(trace, Path(folder)), Path(folder), most)
        finally:
            flush()  # nothing is written there once it is gone
            os.environ.pop("STEPSCOPE_CACHE_DIR")
            if before is not None:
                os.environ["STEPSCOPE_CACHE_DIR"] = before


def _asked(task: tuple[Path, int, int]) -> tuple[Path, int, dict[str, Any]]:
    return *task[:2], asked(*task)


def _round(r: random.Random, paths: tuple[Path, ...], folder: Path, count: tuple[int, int]) -> dict[str, Any]:
    from ask_mutant import Outcome
    from drawn_options import labels, opened

    outcome = Outcome()
    said: dict[str, str] = {}
    slow: list[str] = []
    drawn: set[str] = set()
    profile: list[Any] = []
    outcome.ask("open", lambda: profile.append(opened(paths, labels(r))))  # type: ignore[func-returns-value]
    for what, ask, options in _questions(r, profile[0], paths, folder, count) if profile else ():
        drawn |= options
        began, before = time.process_time(), len(outcome.failures)
        outcome.ask(what.split()[0], ask)
        for failure in outcome.failures[before:]:
            said.setdefault(f"{failure.sort}: {failure}", what)
        if time.process_time() - began > LIMIT_S:
            slow.append(f"{what}: {time.process_time() - began:.0f} s")
    ended = {"answered": outcome.answered, "cannot": outcome.cannot, "refused": outcome.refused}
    return {"ended": ended, "failures": said, "count": len(outcome.failures), "slow": slow, "drawn": sorted(drawn)}


def _questions(
    r: random.Random, profile: Any, paths: tuple[Path, ...], folder: Path, count: tuple[int, int]
) -> Iterator[tuple[str, Any, set[str]]]:
    """What is asked, how, and which options of which command are in it."""
    from drawn_lines import Place, drawn, pairs
    from drawn_options import options

    from stepscope import questions
    from stepscope.files import budget
    from stepscope.render import FORMATS

    names = [n for n in questions.names() if questions.get(n).needs_profile]
    for _ in range(count[0] - count[1]):
        name = r.choice(names)
        given = options(r, profile, name)
        form = r.choice(FORMATS)
        yield f"{name} {given} --format {form}", lambda n=name, g=given, f=form: _rendered(profile, n, g, f), set()
    place = Place(profile, paths, folder)
    for _ in range(count[1]):
        line = drawn(r, place)
        yield " ".join(line), lambda words=line: _ran(words), pairs(line)
        budget.keep(None)  # a line may have set one


def _rendered(profile: Any, name: str, given: dict[str, Any], form: Any) -> Any:
    from stepscope import api
    from stepscope.render import render_blocks

    result = api.analyse(profile, name, **given)
    for _ in render_blocks(result, form):
        pass
    return result


def _ran(words: list[str]) -> None:
    from stepscope.cli.main import run
    from stepscope.errors import BadInput

    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = run(words)
    told = [line for line in err.getvalue().splitlines() if line.startswith("stepscope:")]
    if status not in (0, 1, 2, 3) or any(word in line for word in _NEVER for line in told):
        raise RuntimeError(f"status {status}: {' '.join(told)[:150]}")
    if status in (2, 3):
        raise BadInput(" ".join(told) or f"status {status}, and no word")


def plan(count: int, seed: int) -> list[tuple[Path, int]]:
    """Rounds, every trace at least once where the count allows, small ones more often and first."""
    from good_traces import packed, shared

    traces = [*packed(), *shared()]
    sizes = {t: t.stat().st_size for t in traces}
    r = random.Random(seed)
    rounds = [(trace, 0) for trace in sorted(traces, key=lambda t: sizes[t])]
    weight = [1 / (20_000 + sizes[t]) for t in traces]
    rounds += [(r.choices(traces, weight)[0], n) for n in range(1, 2 * count // ROUND + 1)]
    asked_of = accumulate(FEW if sizes[trace] > _LARGE else ROUND for trace, _ in rounds)
    wanted = [each for each, so_far in zip(rounds, asked_of, strict=True) if so_far <= max(count, ROUND) + ROUND]
    return sorted(wanted, key=lambda each: sizes[each[0]])


def main() -> int:
    parser = argparse.ArgumentParser(description="Undamaged traces, any options, and how questions about them end.")
    parser.add_argument("--count", type=int, default=2000, help="questions")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", metavar="TRACE:ROUND")
    parser.add_argument("--journal", type=Path, metavar="FILE", help="keeps rounds that ended, and goes on from there")
    parser.add_argument("--save", action="store_true", help=f"write {RESULTS.relative_to(HERE.parents[1])}")
    given = parser.parse_args()
    rounds = plan(given.count, given.seed)
    if given.only:
        name, _, number = given.only.rpartition(":")
        rounds = [(trace, int(number)) for trace, _ in plan(10**6, given.seed) if trace.name == name][:1]
    tally = Tally(given.seed, given.journal)
    left = [each for each in rounds if not tally.has(*each)]
    with get_context("spawn").Pool(given.jobs, maxtasksperchild=40) as pool:
        for trace, number, record in pool.imap_unordered(_asked, ((*each, given.seed) for each in left)):
            tally.add(trace, number, record)
    tally.print()
    if given.save:
        RESULTS.write_text(json.dumps(tally.result(), indent=1) + "\n", "utf-8")
    return 1 if tally.failures or tally.slow else 0


if __name__ == "__main__":
    sys.exit(main())
