"""As test_metamorphic.py, of torch traces and of other faults of a rank: what is concluded of a job that is written
down in another way is the same, or changes as predicted. Rank 2 of four has the fault."""

from __future__ import annotations

import gzip
import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobs import written
from stepscope import api
from stepscope.simulate.job.scenario import Scenario

SHAPE = {
    "schedule": "ddp",
    "pp": 1,
    "dp": 4,
    "ep": 1,
    "nodes": 4,
    "layers": 4,
    "micro_batches": 2,
    "steps": 3,
    "seed": 3,
}
#: a fault of rank 2 -> the finding that names it, and the cause that `stragglers` says
FAULTS = {
    "slow-python:rank=2,us=2400": ("late-node", "host"),
    "dataloader:rank=2,stall_ms=11": ("data-stall", "data"),
    "straggler:rank=2,factor=1.25": ("straggler", "compute"),
    "more-launches:rank=2,per_layer=3": ("straggler", "compute"),
}
QUICK = "slow-python:rank=2,us=2400"
Traces = list[dict[str, Any]]


@pytest.fixture(scope="module", params=[f if f == QUICK else pytest.param(f, marks=pytest.mark.slow) for f in FAULTS])
def fault(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def job(fault: str) -> Traces:
    """The traces of all ranks, in their order."""
    with written(Scenario(**SHAPE, faults=(fault,)), ("kineto",)) as (_, folder):
        return [json.loads(gzip.decompress(file.read_bytes())) for file in sorted(folder.glob("*.gz"))]


def concluded(traces: Traces, folder: Path) -> dict[str, Any]:
    for n, trace in enumerate(traces):
        (folder / f"some{n}.pt.trace.json").write_text(json.dumps(trace), "utf-8")
    profile = api.open(*(str(folder / f"some{n}.pt.trace.json") for n in range(len(traces))), cache=False)
    rows = api.analyse(profile, "diagnose").rows.to_dicts()
    late = api.analyse(profile, "stragglers").summary["stragglers"]
    return {
        "first": (rows[0]["id"], rows[0]["ranks"]) if rows else None,
        "ns": rows[0]["recoverable_ns"] if rows else 0,
        "late": [(row["rank"], row["cause"]) for row in late],
    }


@pytest.fixture(scope="module")
def before(job: Traces, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return concluded(job, tmp_path_factory.mktemp("before"))


def events(trace: dict[str, Any], change: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
    return {**trace, "traceEvents": [change(event) for event in trace["traceEvents"]]}


def named(trace: dict[str, Any], new: Callable[[int], int], size: int) -> dict[str, Any]:
    """The trace of a rank of another number, in a job of another size."""
    info = trace["distributedInfo"]
    ranks = lambda group: sorted(range(size) if len(group) > 1 else map(new, group))  # noqa: E731
    groups = [{**g, "ranks": ranks(g["ranks"]), "pg_size": len(ranks(g["ranks"]))} for g in info["pg_config"]]
    renamed = {**info, "rank": new(info["rank"]), "world_size": size, "pg_config": groups}

    def label(event: dict[str, Any]) -> dict[str, Any]:
        text = re.sub(r"^rank=(\d+);", lambda m: f"rank={new(int(m[1]))};", str(event.get("name")))
        text = re.sub(r" dp=(\d+)/4", lambda m: f" dp={new(int(m[1]))}/{size}", text)
        args = event.get("args", {})
        if args.get("Group size", 1) > 1:
            args = {**args, "Group size": size, "Process Group Ranks": str(list(range(size)))}
        return {**event, "name": text, "args": args} if "name" in event else event

    return events({**trace, "distributedInfo": renamed}, label)


def test_the_truth(fault: str, before: dict[str, Any]) -> None:
    finding, cause = FAULTS[fault]
    assert before["first"] == (finding, "2")
    assert before["late"] == [(2, cause)]


def same(before: dict[str, Any], after: dict[str, Any], factor: float = 1.0, rel: float = 0.001) -> None:
    assert (after["first"], after["late"]) == (before["first"], before["late"])
    assert after["ns"] == pytest.approx(factor * before["ns"], rel=rel)


def test_files_in_another_order_say_the_same(job: Traces, before: dict[str, Any], tmp_path: Path) -> None:
    same(before, concluded(job[::-1], tmp_path))


def test_events_in_another_order_say_the_same(job: Traces, before: dict[str, Any], tmp_path: Path) -> None:
    def shuffled(trace: dict[str, Any]) -> dict[str, Any]:
        return {**trace, "traceEvents": random.Random(7).sample(trace["traceEvents"], len(trace["traceEvents"]))}

    same(before, concluded([shuffled(trace) for trace in job], tmp_path))


def test_a_later_capture_says_the_same(job: Traces, before: dict[str, Any], tmp_path: Path) -> None:
    def later(event: dict[str, Any]) -> dict[str, Any]:
        return {**event, "ts": event["ts"] + 7_000_000.5} if "ts" in event else event

    same(before, concluded([events(trace, later) for trace in job], tmp_path))


def test_twice_as_slow_loses_twice_as_much(job: Traces, before: dict[str, Any], tmp_path: Path) -> None:
    start = min(event["ts"] for trace in job for event in trace["traceEvents"] if "ts" in event)

    def slower(event: dict[str, Any]) -> dict[str, Any]:
        times = {"ts": start + 2 * (event["ts"] - start)} if "ts" in event else {}
        return {**event, **times, **({"dur": 2 * event["dur"]} if "dur" in event else {})}

    same(before, concluded([events(trace, slower) for trace in job], tmp_path), factor=2.0, rel=0.05)


def test_kernels_of_other_names_say_the_same(job: Traces, before: dict[str, Any], tmp_path: Path) -> None:
    """Like kernels are compared by their names, whatever those are."""
    names: dict[str, str] = {}

    def renamed(event: dict[str, Any]) -> dict[str, Any]:
        if event.get("cat") != "kernel" or "nccl" in event["name"]:
            return event
        return {**event, "name": names.setdefault(event["name"], f"k{len(names)}")}

    same(before, concluded([events(trace, renamed) for trace in job], tmp_path))


def test_one_file_says_what_one_for_each_rank_says(job: Traces, before: dict[str, Any], tmp_path: Path) -> None:
    """Traces that were merged: GPUs are told apart by their numbers, ids of launches by the rank they are of."""
    merged = []
    for rank, trace in enumerate(job):
        for event in trace["traceEvents"]:
            args = dict(event.get("args", {}))
            if "correlation" in args:
                args["correlation"] += 1_000_000 * rank
            if "device" in args:
                args["device"] = rank
            ids = {"id": event["id"] + 1_000_000 * rank} if "id" in event else {}
            pid = event.get("pid")  # of hosts that each count from the same
            if isinstance(pid, int):
                pid = rank if pid == 0 else pid + 100_000 * rank
            merged.append({**event, **ids, "pid": pid, "args": args})
    one = {k: v for k, v in job[0].items() if k not in ("distributedInfo", "trace_id", "traceName")}
    same(before, concluded([{**one, "traceEvents": merged}], tmp_path), rel=0.1)  # clocks of hosts are as they were


@pytest.mark.parametrize("gone", [0, 3])
def test_without_a_healthy_rank_the_same_one_is_named(
    job: Traces, before: dict[str, Any], tmp_path: Path, gone: int
) -> None:
    after = concluded([trace for n, trace in enumerate(job) if n != gone], tmp_path)
    assert (after["first"], after["late"]) == (before["first"], before["late"])


def test_without_the_rank_at_fault_nobody_is_blamed(job: Traces, tmp_path: Path) -> None:
    after = concluded([trace for n, trace in enumerate(job) if n != 2], tmp_path)
    assert after["late"] == []
    assert after["first"] is None or after["first"][1] == "0-1,3"


def test_one_more_healthy_rank_changes_nothing(job: Traces, before: dict[str, Any], tmp_path: Path) -> None:
    five = [named(trace, lambda rank: rank, 5) for trace in job]
    twin = named(job[0], lambda rank: 4 if rank == 0 else rank, 5)
    same(before, concluded([*five, twin], tmp_path), rel=0.05)


def test_the_finding_follows_the_number_of_its_rank(job: Traces, before: dict[str, Any], tmp_path: Path) -> None:
    swapped = {2: 0, 0: 2}
    after = concluded([named(trace, lambda rank: swapped.get(rank, rank), 4) for trace in job], tmp_path)
    assert (after["first"][1], [rank for rank, _ in after["late"]]) == ("0", [0])
    assert after["ns"] == pytest.approx(before["ns"], rel=0.001)
