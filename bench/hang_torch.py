"""What torchfrtrace names, run with a Python that has torch: folders on standard input, a line of JSON each."""

from __future__ import annotations

import contextlib
import io
import json
import sys

from torch.distributed.flight_recorder.components.builder import build_db
from torch.distributed.flight_recorder.components.config_manager import JobConfig
from torch.distributed.flight_recorder.components.loader import read_dir


def named(folder: str) -> dict[str, object]:
    """The ranks of the first collective that it finds fault with; what it says where it fails."""
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            args = JobConfig().parse_args([folder, "-p", "nccl_trace_rank_", "--allow-incomplete-ranks"])
            details, version = read_dir(args)
            found = build_db(details, args, version)
    except BaseException as error:  # it also exits
        return {"folder": folder, "failed": f"{type(error).__name__}: {error}"[:120], "ranks": []}
    for collective in found.collectives:
        ranks = set(collective.missing_ranks or ()) | set(collective.mismatch_collectives or {})
        if ranks:
            return {"folder": folder, "ranks": sorted(map(int, ranks))}
    return {"folder": folder, "ranks": []}


for line in sys.stdin:
    print(json.dumps(named(line.strip())), flush=True)
