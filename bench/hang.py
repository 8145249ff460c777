"""`make bench-hang`: simulated hangs with a known truth, judged by stepscope and by other tools on the same dumps.

Jobs are drawn by their seed (`hang_jobs.drawn`). An answer is right where its class is the planted one, or one of
those that the verdict says the dumps allow as well (`also_possible`; counted apart), and the culprit is in the set.
What dumps can tell says `hang_jobs.tells`, which knows the plan: where no dump holds what would show the fault, exit
status 3 is right, too, and a verdict that calls itself certain is wrong.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import hang_shapes
from hang_jobs import drawn, tells
from hang_others import OTHERS, named_by

from stepscope import api
from stepscope.errors import BadInput, CannotAnswer
from stepscope.simulate.hang.faults import CLASSES, parse
from stepscope.simulate.hang.job import Program, program
from stepscope.simulate.hang.run import TRUTH, Hang, simulate_hang

PAGE = Path(__file__).parent.parent / "docs" / "hang.md"
BEGIN, END = "<!-- bench-hang -->", "<!-- /bench-hang -->"
ALIVE = ("slow", "healthy")


def case(seed: int, beside: bool, shapes: bool, most: int) -> dict[str, Any] | None:
    """One job and what was said of it; None where it cannot hang of the class that was drawn."""
    if shapes:
        job, name, fault, format = hang_shapes.drawn(seed)
        write = partial(hang_shapes.written, name=name)
    else:
        job, fault, format = drawn(seed, most)
        name, write = "mesh", program
    try:
        done = simulate_hang(job, parse(fault), write)
    except BadInput:
        return None
    usual = write(job)
    with tempfile.TemporaryDirectory() as folder:
        done.write(Path(folder), (format,))
        judged = {"seed": seed, "fault": fault, "timed": job.timing, "world": job.world, "shape": name}
        judged |= judge(done, folder, usual)
    if beside and fault not in ALIVE:
        with tempfile.TemporaryDirectory() as folder:
            done.write(Path(folder))
            (Path(folder) / TRUTH).unlink()
            judged["others"] = {tool: named_by(tool, folder) == done.truth()["ranks"] for tool in OTHERS}
    return judged


def judge(done: Hang, folder: str, usual: Program) -> dict[str, Any]:
    """What stepscope says, and whether it is right."""
    known, truth = tells(done, usual), done.truth()
    try:
        summary = api.hang(folder).summary
    except CannotAnswer as error:
        text = f"{truth['class']} of {truth['ranks']}: {error}"
        return {"lacking": known.lacking, "right": bool(known.lacking), "first": False, "exact": False, "text": text}
    except BadInput as error:
        text = f"{truth['class']} of {truth['ranks']}: {error}"
        return {"lacking": "", "right": False, "first": False, "exact": False, "text": text}
    verdict, ranks = summary["verdict"], set(summary["culprits"])
    alive = done.fault.name in ALIVE
    also = bool(known.classes & set(summary["also_possible"]))
    inside = alive or (known.ranks <= ranks and summary["hung"])
    honest = not known.lacking or summary["sure"] != "certain"
    first = verdict in known.classes and inside and honest
    right = first or (also and inside and honest)
    lacks = f" (no dump has {known.lacking})" if known.lacking else ""
    text = (
        f"{truth['class']} of {truth['ranks']}{lacks}: {verdict} ({summary['sure']}) of {sorted(ranks)},"
        f" or {list(summary['also_possible'])}"
    )
    size = None if alive else len(ranks)
    exact = not alive and ranks == known.ranks
    return {"lacking": known.lacking, "right": right, "first": first, "exact": exact, "size": size, "text": text}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=1_000_000, help="first seed")
    parser.add_argument("--count", type=int, default=200, help="how many seeds")
    parser.add_argument("--alone", action="store_true", help="stepscope alone, without other tools")
    parser.add_argument("--shapes", action="store_true", help="jobs of other frameworks (hang_shapes.py)")
    parser.add_argument("--ranks", type=int, default=64, help="most ranks of a job, but of --shapes")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--write", action="store_true", help=f"write the table into {PAGE.name}")
    given = parser.parse_args()
    seeds = range(given.first, given.first + given.count)
    beside = [not given.alone and bool(OTHERS)] * len(seeds)
    shapes = [given.shapes] * len(seeds)
    cases: list[dict[str, Any]] = []
    with ProcessPoolExecutor(given.jobs) as pool:
        for done in pool.map(case, seeds, beside, shapes, [given.ranks] * len(seeds), chunksize=4):
            if done is not None:
                cases.append(done)
                if not done["right"]:
                    timing = "on" if done["timed"] else "off"
                    print(
                        f"- {done['seed']} {done['shape']} ({done['world']} ranks, timing {timing}): {done['text']}",
                        flush=True,
                    )
    text = table(cases)
    print(text)
    if given.write:
        page = PAGE.read_text("utf-8")
        before, rest = page.split(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.split(END)[1]}", "utf-8")


def table(cases: list[dict[str, Any]]) -> str:
    """The counts in Markdown."""
    tools = sorted({tool for done in cases for tool in done.get("others", {})})
    head = ["planted", "timing on", "timing off", "nothing in the dumps shows it", "first class", "exactly", *tools]
    lines = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    for fault in CLASSES:
        own = [done for done in cases if done["fault"] == fault]
        shown = [done for done in own if not done["lacking"]]
        cells = [_of(done for done in shown if done["timed"]), _of(done for done in shown if not done["timed"])]
        cells.append(_of(done for done in own if done["lacking"]))
        cells += [_of(shown, "first"), "" if fault in ALIVE else _of(shown, "exact")]
        cells += [_of((done["others"] for done in shown if "others" in done), tool) for tool in tools]
        lines.append(f"| {fault} | " + " | ".join(cells) + " |")
    shown = [done for done in cases if not done["lacking"]]
    sizes = {timed: [done["size"] for done in shown if done["timed"] == timed and done.get("size")] for timed in (1, 0)}
    right = sum(done["right"] for done in cases)
    of_shown, first = (sum(done[key] for done in shown) for key in ("right", "first"))
    lines += [
        "",
        f"{len(cases):,} jobs: {right:,} right ({100 * right / max(len(cases), 1):.1f} %); of {len(shown):,} whose "
        f"dumps show the fault {of_shown:,}, {first:,} in the class that is named first. Median size of the set: "
        f"{median(sizes[1] or [0]):g} with timing, {median(sizes[0] or [0]):g} without.",
    ]
    lacking = Counter(done["lacking"].split(" rank ")[0] for done in cases if done["lacking"])
    lines += (
        [f"Not in the dumps: {', '.join(f'{what} ({n})' for what, n in lacking.most_common())}."] if lacking else []
    )
    return "\n".join(lines)


def _of(cases: Any, key: str = "right") -> str:
    listed = list(cases)
    return f"{sum(bool(done[key]) for done in listed)} of {len(listed)}" if listed else ""


if __name__ == "__main__":
    sys.exit(main())
