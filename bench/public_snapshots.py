"""Snapshots of PyTorch's allocator that others published, beside the sizes that their own code gives their models.

    python bench/public_snapshots.py FOLDER

FOLDER: clones of the repositories below, bare or not, named like OWNER+NAME (none of their files is kept here). Writes
tests/reliability/results/snapshots.json; exit status 1 where a part is wrong by more than 3 %.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import stepscope

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "tests" / "reliability" / "results" / "snapshots.json"
LIMIT = 0.03
Parts = dict[str, int]


def transformer(width: int, layers: int, inner: int, words: int = 10_000) -> int:
    """Bytes of the weights of CS336's model, float32: in a layer four products, three of SwiGLU and two norms."""
    return 4 * (layers * (4 * width**2 + 3 * width * inner + 2 * width) + 2 * words * width + width)


SMALL, MEDIUM, LARGE = transformer(768, 12, 3072), transformer(1024, 24, 4096), transformer(2560, 32, 10240)
#: LoRA of rank 16 at the queries and values of TinyLlama's 22 layers, float32.
LORA = 4 * 22 * 16 * ((2048 + 2048) + (2048 + 256))


def forward(weights: int) -> Parts:
    return {"weights": weights}


def backward(weights: int) -> Parts:
    return {"weights": weights, "gradients": weights}


def step(weights: int) -> Parts:
    return {"weights": weights, "gradients": weights, "optimizer states": 2 * weights}


#: repository, files, and what their code allocates; None: numbers drawn at random, no program at all.
TRUTHS: tuple[tuple[str, str, Parts | None], ...] = (
    ("Athrun0109/CS336_assignment2", r"_True_", forward(LARGE)),
    ("Athrun0109/CS336_assignment2", r"_False_", step(LARGE)),
    ("EZeJ/CS336_assignment2-systems", r"forwardPass", {"weights": SMALL, "optimizer states": 2 * SMALL}),
    ("EZeJ/CS336_assignment2-systems", r"(backwardPass|optimizer)_", step(SMALL)),
    ("Wedsonlin/assignment2-systems", r"_inference_", forward(MEDIUM)),
    ("Wedsonlin/assignment2-systems", r"_training_", step(MEDIUM)),
    ("charliesabino/cs336-assignment2", r"-fwd-", forward(LARGE)),
    ("charliesabino/cs336-assignment2", r"-full-", backward(LARGE)),  # its optimizer steps without gradients
    ("kkaitlyn111/cs336-a2-systems", r"_forward", forward(LARGE)),
    ("kkaitlyn111/cs336-a2-systems", r"_fullstep", step(LARGE)),
    ("silmont2000/assignment2-systems", r"memory_forward_", forward(SMALL)),
    ("silmont2000/assignment2-systems", r"^mem_snapshot", {}),  # attention alone
    ("cranberrii/ftcourse", r"snapshot", {"gradients": LORA}),  # how its weights were quantized is not certain
    ("facebookresearch/mosaic", r"snapshots/output", None),
)


def files(clone: Path) -> Iterator[tuple[str, bytes]]:
    """Pickles of the newest commit; those that the clone lists but does not have are left out."""

    def git(*words: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(["git", "-C", str(clone), *words], capture_output=True, check=False)

    for path in git("ls-tree", "-r", "--name-only", "HEAD").stdout.decode().splitlines():
        if path.endswith((".pickle", ".pkl")):
            shown = git("cat-file", "blob", f"HEAD:{path}")
            if shown.returncode == 0 and shown.stdout:
                yield path, shown.stdout


def judged(file: Path, truth: Parts) -> tuple[dict[str, float], bool]:
    """How far each part is from what the code allocates; and whether the ledger is whole."""
    answer = stepscope.open(file).memory()
    rows = answer.rows.to_dicts()
    most: Parts = {}
    for row in rows:
        most[row["part"]] = most.get(row["part"], 0) + (row["most_bytes"] or 0)
    off = {part: most.get(part, 0) / size - 1 for part, size in truth.items()}
    reserved = sum(peak["reserved_bytes"] for peak in answer.summary["peak"])
    unknown = sum(row["bytes"] or 0 for row in rows if row["part"] == "unknown")
    whole = sum(row["bytes"] or 0 for row in rows) == reserved and unknown <= LIMIT * reserved
    return off, whole and all(abs(share) <= LIMIT for share in off.values())


def main(folder: Path) -> int:
    kept: dict[str, dict[str, object]] = {}
    wrong = 0
    for repository in dict.fromkeys(name for name, _, _ in TRUTHS):
        clone = folder / repository.replace("/", "+")
        clone = clone / "repo" if (clone / "repo").is_dir() else clone
        counted: dict[str, list[float]] = {}
        read = whole_ones = 0
        for path, content in files(clone):
            truths = [t for name, pattern, t in TRUTHS if name == repository and re.search(pattern, path)]
            if not truths:
                continue
            with tempfile.TemporaryDirectory() as scratch:
                copy = Path(scratch) / "snapshot.pickle"
                copy.write_bytes(content)
                off, whole = judged(copy, truths[0] or {})
            whole = whole and truths[0] is not None
            read, whole_ones, wrong = read + 1, whole_ones + whole, wrong + (not whole and truths[0] is not None)
            for part, share in off.items():
                counted.setdefault(part, []).append(abs(share))
            print(f"{repository} {path}: {'whole' if whole else 'not whole'} {off}", flush=True)
        worst = {part: {"n": len(shares), "most_pct": round(100 * max(shares), 2)} for part, shares in counted.items()}
        kept[repository] = {"files": read, "whole": whole_ones, "parts": worst}
    OUT.write_text(json.dumps(kept, indent=1) + "\n", "utf-8")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
