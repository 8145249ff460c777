"""Real hangs as test data: paths taken out of dumps, stacks and logs, all jobs in one small archive.

    python pack.py DIR ARCHIVE.tar.xz [JOB ...]

DIR has a folder per job, as `run.py` leaves them; without JOBs all that have dumps are taken. Of logs the watchdog's
lines stay, and what a process says of its memory; what ranks said while they were killed does not belong to the hang.
"""

from __future__ import annotations

import io
import json
import re
import sys
import tarfile
from pathlib import Path

#: Paths of the machine, and what stands for them.
PATHS = (
    (re.compile(rb"/[\w./-]*/tests/hang/nccl/"), b"/home/user/"),
    (re.compile(rb"/[\w./-]*/site-packages/"), b"/usr/lib/python3/site-packages/"),
)
_LOG = re.compile(r"Watchdog caught|last enqueued|last completed|OutOfMemoryError|Signals? \d+|failure detected by")
_TRUTH = ("name", "fault", "mesh", "place", "rank", "timing", "ring", "by", "dumps", "gone", "still_ns")
_TEXT = b"X"


def of_pickle(data: bytes) -> bytes:
    """Texts of a pickle with other paths; each has its length before it."""
    for pattern, clean in PATHS:
        parts, done = [], 0
        for match in pattern.finditer(data):
            begin = match.start()
            size = int.from_bytes(data[begin - 4 : begin], "little")
            if data[begin - 5 : begin - 4] != _TEXT or begin + size < match.end():
                raise SystemExit(f"a path that is not the beginning of a text: {match[0]!r}")
            size += len(clean) - len(match[0])
            parts += [data[done : begin - 4], size.to_bytes(4, "little"), clean]
            done = match.end()
        data = b"".join([*parts, data[done:]])
    return data


def of_text(data: bytes) -> bytes:
    for pattern, clean in PATHS:
        data = pattern.sub(clean, data)
    return data


def files(job: Path) -> dict[str, bytes]:
    """What is kept of a job."""
    kept = {}
    for path in sorted(job.iterdir()):
        if path.name.startswith("nccl_trace_rank_"):
            kept[path.name] = of_text(path.read_bytes()) if path.suffix else of_pickle(path.read_bytes())
        elif path.name.startswith("stacks_rank_") or path.name in ("ncclras.txt", "hang.json"):
            kept[path.name] = of_text(path.read_bytes())
        elif path.name == "train.log":
            lines = [line for line in of_text(path.read_bytes()).decode().splitlines() if _LOG.search(line)]
            if (lines and json.loads((job / "truth.json").read_text())["by"] == "watchdog") or "oom" in job.name:
                kept["train.log"] = "\n".join(lines).encode() + b"\n"
    truth = json.loads((job / "truth.json").read_text())
    kept["truth.json"] = json.dumps({key: truth[key] for key in _TRUTH}).encode()
    return kept


def main(source: Path, archive: Path, names: list[str]) -> None:
    jobs = sorted(path.parent for path in source.glob("*/truth.json"))
    jobs = [job for job in jobs if (not names or job.name in names) and list(job.glob("nccl_trace_rank_?"))]
    with tarfile.open(archive, "w:xz", preset=9) as tar:
        for job in jobs:
            for name, data in files(job).items():
                about = tarfile.TarInfo(f"{job.name}/{name}")
                about.size = len(data)
                tar.addfile(about, io.BytesIO(data))
    print(f"{len(jobs)} jobs, {archive.stat().st_size:,} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
