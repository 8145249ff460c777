"""A served trace in a real Chromium: page/tests/serve.test.mjs does what a reader does, here the servers are started.

What the browser must find is worked out from the profile's tables and the commands, not from the server.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from serving import simulated

from page_tools import read_in_browser
from stepscope import api
from stepscope.cli.main import run


@contextmanager
def server(*words: str) -> Iterator[str]:
    """`stepscope serve`, and the address that it prints."""
    command = [sys.executable, "-m", "stepscope", "serve", *words, "--idle", "10"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


@pytest.mark.slow
def test_a_reader_can_use_it(page_tools: Path, chromium: str, served_job: Path, tmp_path: Path, capsys) -> None:
    other = simulated(tmp_path / "other", "kineto", seed=6)  # which has torch ops
    with server(str(served_job)) as address, server(str(served_job), "--beside", str(other)) as both:
        assert address.startswith("http://127.0.0.1:")
        (tmp_path / "served.expected.json").write_text(json.dumps(_expected(served_job, other, address, both)), "utf-8")
        read_in_browser(page_tools, chromium, tmp_path, "serve.test.mjs")
    span = json.loads((tmp_path / "span.json").read_text("utf-8"))
    assert run([*shlex.split(span["command"])[1:], "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert {key: sum(row[key] for row in rows) for key in rows[0] if key in span["sums"]} == {
        key: value for key, value in span["sums"].items() if key not in ("ops", "op_ns")
    }


def _expected(job: Path, other: Path, address: str, both: str) -> dict[str, object]:
    profile = api.open(job)
    ops = profile.ops
    origin = min(int(f["start_ns"].min()) for f in (ops, profile.calls, profile.ranges))  # type: ignore[arg-type]
    wanted = "flash_bwd"
    found = ops.filter(profile.names.gather(ops["name"]).str.contains(wanted)).sort("start_ns")
    late = profile.stragglers().rows
    step = [w for w in profile.window(step=True, index=1).window if w["gpu_start_ns"] is not None]
    start = min(w["gpu_start_ns"] for w in step)
    first = ops.sort("start_ns", "rank").row(0, named=True)
    return {
        "address": address,
        "both": both,
        "ops": ops.height,
        "functions": _functions(other),
        "culprit": late.sort("late_ns")["rank"][-1],
        "search": {
            "text": wanted,
            "matches": found.height,
            "starts": (found["start_ns"] - origin).to_list(),
            "first": {"start": found["start_ns"][0] - origin, "end": found["end_ns"][0] - origin},
        },
        "sql": {
            "query": "SELECT rank, name, start_ns, dur_ns FROM ops ORDER BY start_ns, rank LIMIT 5",
            "first": [str(first["rank"]), profile.names[first["name"]]],
            "start": first["start_ns"] - origin,
        },
        "step": {
            "start": start - origin,
            "end": max(w["gpu_end_ns"] for w in step) - origin,
        },
    }


def _functions(job: Path) -> dict[str, object]:
    """The most frequent torch op of a job."""
    profile = api.open(job)
    ids = profile.host["name"]
    (name,) = profile.names.gather(ids).mode().sort().head(1).to_list()
    return {"text": name, "matches": int((profile.names.gather(ids) == name).sum())}
