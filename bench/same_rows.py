"""Did a change made for speed change an answer? Every question on every trace at hand, its rows and summary as a hash.

    python bench/same_rows.py --save FILE            what this tree answers
    python bench/same_rows.py --against FILE         the same, and where it differs from what was saved
    python bench/same_rows.py --only diagnose,idle --traces hf1 …

PYTHONPATH chooses the tree: `PYTHONPATH=../other/src python bench/same_rows.py --save FILE` answers for that one.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tomllib
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"
#: Questions whose rows depend on more than the trace: an option each that changes the rows.
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "overlap": [{"by": "stream"}, {"by": "purpose"}],
    "breakdown": [{"whole": True}],
    "idle": [{"by": "cause"}, {"by": "range"}],
    "kernels": [{"by": "family"}],
    "collectives": [{"by": "op"}, {"by": "group"}],
    "critical-path": [{"by": "rank"}, {"by": "kind"}],
    "diagnose": [{"least": 0}],
    "nvtx": [{"by": "name"}],
}
ENDINGS = (".sqlite", ".json", ".json.gz", ".sqlite.gz", ".pickle", ".ncu-rep", ".pftrace")
REPORTS = ("cuda_gpu_kern_sum", "cuda_api_sum", "cuda_gpu_trace", "nvtx_sum", "cuda_kern_exec_sum", "nvtx_gpu_proj_sum")


def jobs() -> dict[str, list[Path]]:
    """Traces by name; files of one job together."""
    found: dict[str, list[Path]] = {}
    readings = tomllib.loads((ROOT / "docs" / "readings.toml").read_text("utf-8"))["trace"]
    for row in readings:
        for base in ("traces", "judged"):
            paths = [p for pattern in row["files"] for p in sorted((SHARED / base).glob(pattern))]
            if paths:
                found[", ".join(row["files"])] = paths
    given = {p for paths in found.values() for p in paths}
    loose = [SHARED / "judged", SHARED / "traces" / "h200" / "memory", SHARED / "traces" / "h200" / "ncu"]
    for folder in (*loose, ROOT / "tests" / "data"):
        for path in sorted(folder.rglob("*")):
            is_trace = path.name.endswith(ENDINGS) and not path.name.endswith(("manifest.json", "baseline.json"))
            if is_trace and path not in given:
                found[str(path.relative_to(ROOT.parent if path.is_relative_to(SHARED) else ROOT))] = [path]
    return found


def answers(name: str, paths: list[Path], only: tuple[str, ...]) -> dict[str, str]:
    """By question and options: a hash of the answer, or the refusal in words."""
    from stepscope import api, questions
    from stepscope.api.nsys import stats
    from stepscope.errors import StepscopeError

    said: dict[str, str] = {}
    try:
        profile = api.open(*paths, cache=False)
    except StepscopeError as error:
        return {f"{name} · open": _refusal(error)}
    for question in only or (*questions.names(), "stats"):
        if question == "stats":
            for report in REPORTS:
                said[f"{name} · stats {report}"] = _answer(lambda r=report: stats(profile, r))  # type: ignore[misc]
            continue
        options = {o.name for o in questions.get(question).options} | {"whole"}
        for variant in ({}, *VARIANTS.get(question, [])):
            if set(variant) <= options:
                words = " ".join(f"{k}={v}" for k, v in variant.items())
                ask = lambda v=variant, q=question: api.analyse(profile, q, **v)  # type: ignore[misc]  # noqa: E731
                said[f"{name} · {question} {words}".strip()] = _answer(ask)
    return said


def _answer(ask: Any) -> str:
    from stepscope.errors import StepscopeError

    try:
        result = ask()
    except StepscopeError as error:
        return _refusal(error)
    except Exception as error:
        return f"bug: {type(error).__name__}: {error}"
    rows = result.rows if hasattr(result, "rows") else result
    text = rows.write_json() + json.dumps(getattr(result, "summary", {}), default=str)
    return hashlib.sha256(_anywhere(text).encode()).hexdigest()[:16]


def _refusal(error: Exception) -> str:
    return _anywhere(f"{type(error).__name__}: {error}")


def _anywhere(text: str) -> str:
    """The same text wherever the tree and the traces lie: findings cite commands with the names of files."""
    return text.replace(str(ROOT), "").replace(str(SHARED), "/shared")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--save", type=Path)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--only", default="", help="questions, by comma")
    parser.add_argument("--traces", nargs="*", default=[], help="parts of names of traces")
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    only = tuple(filter(None, args.only.split(",")))
    chosen = {n: p for n, p in jobs().items() if not args.traces or any(t in n for t in args.traces)}
    said: dict[str, str] = {}
    with ProcessPoolExecutor(args.jobs) as pool:
        for found in pool.map(answers, chosen, chosen.values(), [only] * len(chosen)):
            said |= found
    print(f"{len(said)} answers on {len(chosen)} traces")
    if args.save:
        args.save.write_text(json.dumps(said, indent=0, sort_keys=True) + "\n", encoding="utf-8")
    if not args.against:
        return 0
    before = json.loads(args.against.read_text("utf-8"))
    other = [key for key in said if key in before and said[key] != before[key]]
    for key in other:
        print(f"  {key}: {before[key]} → {said[key]}")
    fresh = sum(key not in before for key in said)
    print(f"{len(other)} differ, {len(said) - len(other) - fresh} are the same, {fresh} were not saved")
    return bool(other)


if __name__ == "__main__":
    sys.exit(main())
