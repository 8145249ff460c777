"""`make promises`: what `diagnose` promised for a fault, and what taking the fault away gave.

python tests/promises [quick|full] [real|simulated] [--write] [--jobs N]
python tests/promises --new [--write]
python tests/promises --catalogue [--write]

`quick` takes a part of the simulated jobs and prints the page (about five minutes on two cores); `full` takes all and
writes docs/promises.md and src/stepscope/findings/calibration.toml, as `--write` does with a part; `real --write`
leaves what is of simulated jobs, and the widths, as they are. All pairs go into .promises/pairs.json too. What needs
../shared is left out where it is not, and nothing is written then. `--new` is
about the programs of new.toml alone: with `--write` their part of the page, and the intervals of what only they have.
`--catalogue` is about simulated faults of its rows B and D, catalogue.toml, likewise.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

os.environ.setdefault("POLARS_MAX_THREADS", "1")  # workers share the cores
sys.path.insert(0, str(Path(__file__).parents[1]))

from promises import calibrate, catalogue, new, page, real, simulated

ROOT = Path(__file__).parents[2]
KEPT = ROOT / ".promises"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scale", nargs="?", default="quick", choices=("quick", "full"))
    parser.add_argument("which", nargs="?", default="all", choices=("all", "real", "simulated"))
    parser.add_argument("--write", action="store_true", help="write the page and the widths at any scale")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--new", action="store_true", help="only the programs of new.toml")
    parser.add_argument("--catalogue", action="store_true", help="only the simulated faults of catalogue.toml")
    args = parser.parse_args()
    if args.new:
        return ask_new(args.jobs, args.write)
    if args.catalogue:
        return ask_catalogue(args.jobs, args.write)
    began = time.monotonic()
    # Threads of Polars do not survive a fork.
    spawn = multiprocessing.get_context("spawn")
    with TemporaryDirectory() as folder, ProcessPoolExecutor(args.jobs, mp_context=spawn) as pool:

        def of(wanted: str, function: Callable[..., Any], given: Iterable[tuple[Any, ...]]) -> list[Future[Any]]:
            return [pool.submit(function, *one) for one in given] if args.which in ("all", wanted) else []

        asked = (
            of("real", real.pair, ((row, Path(folder)) for row in real.all_there("pair"))),
            of("real", real.healthy, ((row, Path(folder)) for row in real.all_there("healthy"))),
            of("simulated", simulated.pair, ((case,) for case in simulated.cases(args.scale))),
            of("simulated", simulated.healthy, simulated.twins(args.scale)),
        )
        for done, future in enumerate(as_completed([f for futures in asked for f in futures]), 1):
            future.result()
            if done % 100 == 0:
                print(f"{done} jobs, {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
        pairs, healthy, made, twins = ([future.result() for future in futures] for futures in asked)
    programs = answers_of_new(args.jobs) if args.which in ("all", "real") else []
    text = page.page(pairs, healthy, made, twins, args.scale)
    if args.which == "real" and args.write:
        path = ROOT / "docs" / "promises.md"
        old = path.read_text("utf-8")
        text = new.with_section(page.with_real(old, text), programs)
        path.write_text(catalogue.with_part(text, catalogue.part(old)), "utf-8")
        return 0
    text = new.with_section(text, programs)
    if args.which in ("all", "simulated"):
        text = catalogue.with_part(text, catalogue.section(answers_of_catalogue(args.jobs)))
    known = [*pairs, *(a.pair for a in programs if a.truth_ms is not None)]
    KEPT.mkdir(exist_ok=True)
    (KEPT / "pairs.json").write_text(json.dumps([p.as_dict() for p in (*pairs, *made)], indent=1), "utf-8")
    if (args.write or args.scale == "full") and pairs and made and real.SHARED.is_dir():
        (ROOT / "docs" / "promises.md").write_text(text, "utf-8")
        calibrate.FILE.write_text(calibrate.text(calibrate.widths(known, made)), "utf-8")
        print("docs/promises.md and calibration.toml written")
    else:
        print(text)
    print(f"{len(pairs)} real pairs, {len(made)} simulated, {time.monotonic() - began:.0f} s", file=sys.stderr)
    return 0


def ask_new(jobs: int, write: bool) -> int:
    """Programs with faults, then the same without."""
    answers = answers_of_new(jobs)
    if not write:
        print(new.text(answers))
        return 0
    path = ROOT / "docs" / "promises.md"
    path.write_text(new.with_section(path.read_text("utf-8"), answers), "utf-8")
    table = calibrate.known()
    simulated = {ident for ident, width in table.items() if width.simulated or ident == "default"}
    with TemporaryDirectory() as name:  # other real pairs of the same findings count as well
        rows = [row for row in real.all_there("pair") if not simulated.intersection(row["ids"])]
        others = [real.pair(row, Path(name)) for row in rows]
    found = calibrate.widths([*others, *(a.pair for a in answers if a.truth_ms is not None)], [])
    table |= {ident: width for ident, width in found.items() if width.real and ident not in simulated}
    most = table["default"].factor
    table = {ident: replace(width, factor=min(width.factor, most)) for ident, width in table.items()}
    calibrate.FILE.write_text(calibrate.text(table), "utf-8")
    return 0


def ask_catalogue(jobs: int, write: bool) -> int:
    """Simulated faults of rows B and D."""
    answers = answers_of_catalogue(jobs)
    path = ROOT / "docs" / "promises.md"
    if write:
        path.write_text(catalogue.with_part(path.read_text("utf-8"), catalogue.section(answers)), "utf-8")
    else:
        print(catalogue.section(answers))
    return 0


def answers_of_catalogue(jobs: int) -> list[new.Answer]:
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=spawn) as pool:
        return list(pool.map(catalogue.answer, catalogue.table()))


def answers_of_new(jobs: int) -> list[new.Answer]:
    spawn = multiprocessing.get_context("spawn")
    with TemporaryDirectory() as name, ProcessPoolExecutor(jobs, mp_context=spawn) as pool:
        asked = [pool.submit(new.planted, row, tool, Path(name)) for row in new.table() for tool in row["tools"]]
        of_others = new.table("captured")
        asked += [pool.submit(new.captured, row, tool, Path(name)) for row in of_others for tool in row["tools"]]
        asked += [pool.submit(new.healthy, *twin, Path(name)) for twin in new.twins()]
        return [future.result() for future in asked]


if __name__ == "__main__":
    sys.exit(main())
