"""`make bench-hang`: simulated hangs with a known truth, judged by stepscope and by torchfrtrace on the same dumps.

Jobs are drawn by their seed: meshes of 8 to 16 ranks, jitter, rings that overflowed, ranks without a dump, with and
without timing, pickles and JSON, versions of the format. The right class is the planted one, or one of those that the
verdict says the dumps allow as well (`also_possible`), which are counted apart; the culprit must be in the set.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from random import Random
from statistics import median

from stepscope import api
from stepscope.errors import BadInput
from stepscope.simulate.hang.faults import CLASSES, parse
from stepscope.simulate.hang.job import HangJob
from stepscope.simulate.hang.run import Hang, simulate_hang

MESHES = [
    (2, 2, 2),
    (2, 1, 4),
    (4, 2, 1),
    (2, 4, 1),
    (1, 4, 2),
    (1, 2, 4),
    (2, 2, 4),
    (4, 2, 2),
    (8, 1, 2),
    (1, 1, 8),
    (1, 8, 1),
]
#: Shapes that no rule was made by: other meshes, depths and rings.
OTHER_MESHES = [
    (3, 2, 2),
    (2, 3, 2),
    (3, 1, 4),
    (1, 3, 4),
    (4, 4, 2),
    (2, 2, 8),
    (8, 2, 2),
    (1, 6, 2),
    (6, 1, 3),
    (1, 1, 12),
]
TORCH = Path(__file__).parent.parent / ".venv-torch" / "bin" / "python"
PAGE = Path(__file__).parent.parent / "docs" / "hang.md"
BEGIN, END = "<!-- bench-hang -->", "<!-- /bench-hang -->"


def drawn(seed: int, other: bool = False) -> tuple[HangJob, str, str]:
    """A job, its class and the format of its dumps."""
    random = Random(f"draw {seed}")
    tp, pp, dp = random.choice(OTHER_MESHES if other else MESHES)
    job = HangJob(
        tp=tp,
        pp=pp,
        dp=dp,
        ep=random.choice([e for e in ((1, 2, 3, 6) if other else (1, 2, 4)) if dp % e == 0]),
        layers=random.choice([1, 4, 5] if other else [1, 2, 3]),
        micro_batches=random.choice([1, 3, 6] if other else [1, 2, 4]),
        steps=random.choice([3, 5, 10] if other else [4, 6, 8]),
        seed=seed,
        jitter=random.choice([0, 0.1, 0.3]),
        buffer=random.choice([4000, 300, 100, 60] if other else [2000, 2000, 150, 80]),
        missing=random.choice([0, 0, 0, 1, 2]),
        timing=random.random() < 0.5,
        batched=random.random() < 0.4,
        shared_names=random.random() < 0.3,
        version=random.choice(["2.1", "2.4", "2.6", "2.9", "2.10"]),
    )
    return job, list(CLASSES)[seed % len(CLASSES)], "pickle" if seed % 3 else "json"


class Score:
    """Counts by class and timing."""

    def __init__(self) -> None:
        self.cases: Counter[tuple[str, bool]] = Counter()
        self.right: Counter[tuple[str, bool]] = Counter()
        self.strict: Counter[tuple[str, bool]] = Counter()
        self.exact: Counter[tuple[str, bool]] = Counter()
        self.torch_exact: Counter[tuple[str, bool]] = Counter()
        self.torch_asked: Counter[tuple[str, bool]] = Counter()
        self.sizes: dict[bool, list[int]] = defaultdict(list)
        self.misses: list[str] = []

    def judge(self, seed: int, done: Hang, fault: str, summary: dict[str, object]) -> None:
        truth = done.truth()
        key = (fault, done.made.job.timing)
        said, also = str(summary["verdict"]), list(summary["also_possible"])  # type: ignore[call-overload]
        ranks = set(summary["culprits"])  # type: ignore[call-overload]
        alive = fault in ("slow", "healthy")
        same = truth["class"] in (said, *also) or (fault == "slow" and said == "running")
        inside = alive or set(truth["ranks"]) <= ranks
        self.cases[key] += 1
        self.right[key] += same and inside
        self.strict[key] += (truth["class"] == said or (fault == "slow" and said == "running")) and inside
        self.exact[key] += not alive and ranks == set(truth["ranks"])
        if same and inside and not alive:
            self.sizes[key[1]].append(len(ranks))
        if not (same and inside):
            self.misses.append(f"{seed}: {truth['class']} of {truth['ranks']}, said {said} of {sorted(ranks)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=1_000_000, help="first seed")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--other", action="store_true", help="other shapes: meshes of 10 to 32 ranks, shorter rings")
    parser.add_argument("--no-torch", action="store_true", help="stepscope alone")
    parser.add_argument("--write", action="store_true", help=f"write the table into {PAGE.name}")
    given = parser.parse_args()
    score = Score()
    torch = None
    if not given.no_torch and TORCH.exists():
        torch = subprocess.Popen(
            [TORCH, Path(__file__).parent / "hang_torch.py"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
    for seed in range(given.first, given.first + given.count):
        one(seed, score, torch, given.other)
    if torch is not None:
        torch.communicate()
    text = table(score, torch is not None)
    print(text)
    if given.write:
        page = PAGE.read_text("utf-8")
        before, rest = page.split(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.split(END)[1]}", "utf-8")


def one(seed: int, score: Score, torch: subprocess.Popen[str] | None, other: bool = False) -> None:
    job, fault, format = drawn(seed, other)
    try:
        done = simulate_hang(job, parse(fault))
    except BadInput:
        return  # this job cannot hang of that
    with tempfile.TemporaryDirectory() as folder:
        done.write(Path(folder), (format,))
        score.judge(seed, done, fault, api.hang(folder).summary)
        if torch is None or format == "json":
            return
        (Path(folder) / "truth.json").unlink()
        assert torch.stdin is not None and torch.stdout is not None
        print(folder, file=torch.stdin, flush=True)
        said = json.loads(torch.stdout.readline())
        key = (fault, job.timing)
        score.torch_asked[key] += 1
        score.torch_exact[key] += said["ranks"] == done.truth()["ranks"]


def table(score: Score, torch: bool) -> str:
    """The counts in Markdown, then the misses."""
    lines = [
        "| planted | timing | cases | stepscope: class right, culprit in the set | without a second class "
        "| exactly the culprit | torchfrtrace: exactly the culprit, of pickles |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for key in sorted(score.cases):
        other = f"{score.torch_exact[key]} of {score.torch_asked[key]}" if torch else ""
        figures = f"{score.cases[key]} | {score.right[key]} | {score.strict[key]} | {score.exact[key]} | {other}"
        lines.append(f"| {key[0]} | {'on' if key[1] else 'off'} | {figures} |")
    total, right, strict = (sum(c.values()) for c in (score.cases, score.right, score.strict))
    asked, named = sum(score.torch_asked.values()), sum(score.torch_exact.values())
    beside = f"; torchfrtrace named exactly the culprit in {named} of {asked}" if torch else ""
    medians = {timed: median(sizes) for timed, sizes in score.sizes.items()}
    lines += [
        "",
        f"{right} of {total} right ({100 * right / max(total, 1):.1f} %), {strict} without a second class{beside}. ",
    ]
    lines[-1] += f"Median size of the set: {medians.get(True)} with timing, {medians.get(False)} without."
    lines += ["", "Misses:", "", *(f"- {miss}" for miss in score.misses)]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
