"""Dependencies that the source tells: paths and replays with them against truth, simulated and by brute force."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from fake import call, make, nvtx, op
from stepscope import api
from stepscope.derive.graph.critical_path import walk
from stepscope.derive.graph.dependencies import dependencies
from stepscope.derive.rank.data import ranks_of
from stepscope.derive.replay.change import Change
from stepscope.derive.replay.replay import Replay
from stepscope.derive.windows.spec import WindowSpec
from stepscope.export.content import DEPENDENCIES, content_of
from stepscope.model.result import Result
from stepscope.simulate import run
from stepscope.simulate.engine.record import BY_EVENT
from stepscope.simulate.job.scenario import Scenario
from stepscope.simulate.programs.assemble import EPOCH_NS
from stepscope.simulate.programs.execute import Job
from torch_pftrace import STAGES, json_events, nanoseconds, pftrace

JOBS = {
    "fsdp": {"pp": 1, "dp": 2, "ep": 1, "layers": 2, "micro_batches": 2},
    "dualpipev": {"pp": 2, "dp": 1, "ep": 2, "layers": 4, "micro_batches": 4},
}


def _written(folder: Path, schedule: str, *, told: bool) -> tuple[api.Profile, list[dict[str, Any]]]:
    """A simulated job as torch's .pftrace, without records of events; with or without what ops waited for."""
    scenario = Scenario(**{"schedule": schedule, "steps": 2, "seed": 9, **JOBS[schedule]})  # type: ignore[arg-type]
    job = run.job(scenario)
    run.simulate_to(scenario, folder, ("kineto",))
    for rank in range(scenario.world):
        path = folder / f"rank{rank}.pt.trace.json.gz"
        base, events = json_events(path.read_bytes())
        events = [e for e in events if e["name"] != "Stream Wait Event"]
        waits = _waits(job, rank, base, [e for e in events if e["cat"] in STAGES]) if told else None
        (folder / f"rank{rank}.pftrace").write_bytes(pftrace(base, events, waits))
        path.unlink()
    return api.open(str(folder / "*.pftrace"), cache=False), run.truth(job)["critical-path"]["rows"]


def _waits(job: Job, rank: int, base: int, gpu: Sequence[Mapping[str, Any]]) -> dict[int, list[int]]:
    """By place among the GPU's events: the op behind the event that let it start, as the simulator has it."""
    sim = job.sims[rank]
    place = {base + nanoseconds(e["ts"]): i for i, e in enumerate(gpu) if e["cat"] != "gpu_user_annotation"}
    at = [place[EPOCH_NS + start] for start in sim.op_start]
    return {at[op]: [at[source]] for op, source in sim.op_source.items() if sim.op_why[op] == BY_EVENT}


def _path(result: Result) -> list[tuple[Any, ...]]:
    return _rows(result.rows.to_dicts())


def _rows(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """A path from its beginning on: the clocks of a trace and of the simulator begin elsewhere."""
    first = rows[0]["start_ns"]
    columns = ("rank", "kind", "stream", "name", "range", "dur_ns")
    return [(*(r[c] for c in columns), r["start_ns"] - first) for r in rows]


@pytest.mark.slow
@pytest.mark.parametrize("schedule", JOBS)
def test_the_path_with_told_dependencies_is_the_truth(schedule, tmp_path):
    profile, truth = _written(tmp_path / "told", schedule, told=True)
    result = profile.critical_path()
    assert _path(result) == _rows(truth)
    assert not [n for n in result.notes if n.code == "waits-inferred"]
    silent, _ = _written(tmp_path / "silent", schedule, told=False)
    assert [n for n in silent.critical_path().notes if n.code == "waits-inferred"]


@pytest.mark.slow
def test_exports_keep_them(tmp_path):
    profile, truth = _written(tmp_path / "job", "fsdp", told=True)
    for name in ("out.pftrace", "out.json", "out"):
        profile.export(tmp_path / name, findings=False, **({"to": "parquet"} if name == "out" else {}))
        again = api.open(tmp_path / name, cache=False)
        assert again.table("dependencies").height == profile.table("dependencies").height > 0
        assert _path(again.critical_path()) == _rows(truth)


def test_an_arrow_leads_from_each_op_to_what_waited_for_it():
    content = content_of(Graph(3).profile())
    ops = content.tables["ops"].select("op_id", *(c for c in DEPENDENCIES if c in content.tables["ops"].columns))
    ends = ops.unpivot(index="op_id", value_name="flow").drop_nulls("flow").sort("flow", "op_id")
    arrows = ends.group_by("flow").agg("op_id")["op_id"].to_list()
    told = Graph(3).after
    assert {tuple(a) for a in arrows} == {(p + 1, k + 1) for k, after in enumerate(told) for p in after}


# -- CUDA graphs -------------------------------------------------------------------------------------------------------

US = 1000
GAP = 1 * US
NODES = 16


class Graph:
    """A random graph of kernels between two kernels of stream 7, simulated node by node."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.after = [sorted(self.rng.sample(range(k), min(k, self.rng.randint(0, 2)))) for k in range(NODES)]
        # Two nodes that none waits for are waited for by another, until one such node is left.
        while len(loose := sorted(set(range(len(self.after))) - {p for after in self.after for p in after})) > 1:
            self.after.append(loose[:2])
        self.nodes = range(len(self.after))
        self.stream = [7, *(self.rng.choice([7, 8, 9]) for _ in self.nodes[1:])]  # the driver's choice: says nothing
        self.length = [self.rng.randint(10, 100) * US for _ in self.nodes]

    def times(self, length: Sequence[int]) -> list[tuple[int, int]]:
        """When each node runs: the kernel before the graph ends at 500 µs."""
        found: list[tuple[int, int]] = []
        for k in self.nodes:
            start = max((found[p][1] for p in self.after[k]), default=500 * US) + GAP
            found.append((start, start + length[k]))
        return found

    def end(self, length: Sequence[int]) -> int:
        """When the kernel after the graph is over: all nodes come first."""
        return max(end for _, end in self.times(length)) + GAP + 50 * US

    def path(self) -> list[str]:
        """The kernels of the critical path."""
        times = self.times(self.length)
        node = max(self.nodes, key=lambda k: times[k][1])
        names = ["behind", f"node {node}"]
        while self.after[node]:
            node = max(self.after[node], key=lambda k: times[k][1])
            names.append(f"node {node}")
        return [*names, "before"][::-1]

    def profile(self, *, told: bool = True) -> Any:
        times = self.times(self.length)
        end = self.end(self.length)
        ops = [op(20 * US, 500 * US, "before", call=1), op(end - 50 * US, end, "behind", call=3)]
        ops += [op(*times[k], f"node {k}", self.stream[k], call=2, graph_node=k + 1, op_id=k + 1) for k in self.nodes]
        calls = [
            call(10 * US, 12 * US, 1),
            call(14 * US, 18 * US, 2, "cudaGraphLaunch"),
            call(20 * US, 22 * US, 3),
        ]
        pairs = [
            {"start_ns": times[k][0], "op_id": k + 1, "after_id": p + 1, "kind": "graph"}
            for k in self.nodes
            for p in self.after[k]
        ]
        ranges = [nvtx(0, 30 * US, "step 0"), nvtx(end + 10 * US, end + 20 * US, "step 1")]
        return make(ops=ops, calls=calls, ranges=ranges, **({"dependencies": pairs} if told else {}))


def _compute(profile: Any) -> list[str]:
    rows = api.analyse(profile, "critical-path", index=0).rows
    return rows.filter(pl.col("kind") == "compute")["name"].to_list()


def test_the_path_through_a_graph_is_that_of_its_nodes():
    misled = 0
    for seed in range(20):
        graph = Graph(seed)
        assert _compute(graph.profile()) == graph.path(), seed
        misled += _compute(graph.profile(told=False)) != graph.path()
    assert misled > 10  # streams alone tell another story


def test_a_graph_is_replayed_along_its_nodes():
    for seed in range(10):
        graph = Graph(seed)
        profile = graph.profile()
        path = walk(profile, WindowSpec(index=0), "auto")
        ranks = list(ranks_of(profile))
        names = profile.names.gather(ranks[0].name).to_list()
        rows = np.array([names.index(f"node {k}") for k in graph.nodes])
        factor = np.array([graph.rng.choice([0.0, 0.5, 2.0, 3.0]) for _ in graph.nodes])
        changed = [round(ns * f) for ns, f in zip(graph.length, factor, strict=True)]
        replay = Replay(profile, path)
        longer = graph.end(changed) - graph.end(graph.length)
        assert replay.run(Change(op_factor={0: (rows, factor)})) - replay.plain == longer, seed


def test_nodes_wait_for_nodes_whatever_their_streams_say():
    """a and b side by side on one stream, c after a alone: b, which c's stream ran last, did not hold it up."""
    ops = [
        op(100, 200, "a", 7, call=1, op_id=1),
        op(110, 300, "b", 7, call=1, op_id=2),
        op(210, 400, "c", 7, call=1, op_id=3),
        op(301, 350, "d", 8, call=1, op_id=4),
        op(410, 420, "next", 8, call=2),
    ]
    pairs = [(3, 1), (4, 2), (4, 1)]
    told = [{"start_ns": 0, "op_id": o, "after_id": a, "kind": "graph"} for o, a in pairs]
    profile = make(ops=ops, calls=[call(0, 9, 1, "cudaGraphLaunch"), call(10, 11, 2)], dependencies=told)
    (data,) = ranks_of(profile)
    found = dependencies(data, data.syncs)
    named = [profile.names[int(i)] for i in data.name]
    held = [None if h < 0 else named[h] for h in found.latest(data.end)[0].tolist()]
    assert dict(zip(named, held, strict=True)) == {"a": None, "b": None, "c": "a", "d": "b", "next": "c"}
    both = [{named[i] for i in (found.order[row], found.beside[row]) if i >= 0} for row in range(len(named))]
    assert both[named.index("d")] == {"a", "b"}


@pytest.mark.parametrize("kind", ["graph", "other"])
def test_what_started_later_was_not_waited_for(kind):
    """A broken file may tell of circles: the path and replays come to an end, and the order of streams is left."""
    ops = [op(100 * k, 100 * k + 90, f"k{k}", call=1, op_id=k) for k in range(1, 5)]
    pairs = [(1, 2), (2, 1), (3, 3), (2, 4), (9, 1)]
    told = [{"start_ns": 0, "op_id": o, "after_id": a, "kind": kind} for o, a in pairs]
    ranges = [nvtx(0, 20, "step 0"), nvtx(600, 620, "step 1")]
    profile = make(ops=ops, calls=[call(0, 9, 1, "cudaGraphLaunch")], ranges=ranges, dependencies=told)
    result = api.analyse(profile, "critical-path", index=0, what_if=("host=2",))
    assert result.rows["dur_ns"].sum() == result.summary["step"]["step_ns"]
    (data,) = ranks_of(profile)
    found = dependencies(data, data.syncs)
    assert all(before < row for row, before in enumerate(np.maximum(found.order, found.beside).tolist()))


def test_other_dependencies_hold_beside_the_stream():
    ops = [op(100, 200, "a", 7, call=1, op_id=1), op(100, 300, "b", 8, call=2, op_id=2)]
    ops += [op(310, 400, "c", 7, call=3, op_id=3), op(410, 420, "d", 7, call=4, op_id=4)]
    told = [{"start_ns": 310, "op_id": 3, "after_id": 2, "kind": "other"}, {"start_ns": 410, "op_id": 4, "after_id": 1}]
    calls = [call(k, k + 1, k) for k in range(1, 5)]
    (data,) = ranks_of(make(ops=ops, calls=calls, dependencies=told))
    found = dependencies(data, data.syncs)
    assert found.event.tolist() == [-1, -1, 1, 0] and found.stream.tolist() == [-1, -1, 0, 2]
