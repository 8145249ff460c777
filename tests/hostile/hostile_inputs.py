"""Hostile inputs, each made from a sound one by a single defect.

They are named as in ../shared/hostile, which has the first of each kind that was found; its README says what it did.
"""

from __future__ import annotations

import copy
import gzip
import json
import random
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import reference_captures
from stepscope.simulate.job.scenario import Scenario
from stepscope.simulate.run import simulate_to

KERNEL, RUNTIME, NVTX = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"
YEAR_NS = 366 * 86_400 * 10**9
_JOB = Scenario(schedule="1f1b", pp=2, ep=1, layers=4, micro_batches=2, steps=3)
#: A kernel in the middle of the first rank's first step.
_ONE = f"rowid = (SELECT rowid FROM {KERNEL} ORDER BY globalPid, start LIMIT 1 OFFSET 20)"

Trace = dict[str, Any]
Build = Callable[["Good", Path], Path]


@dataclass(frozen=True)
class Good:
    """Sound inputs: a job by both profilers with its truth, a baseline of it, and a capture with its manifest."""

    folder: Path

    @property
    def export(self) -> Path:
        return self.folder / "node0.sqlite"

    @property
    def baseline(self) -> Path:
        return self.folder / "baseline.json"

    @property
    def truth(self) -> dict[str, Any]:
        truth: dict[str, Any] = json.loads((self.folder / "truth.json").read_bytes())
        return truth

    def trace(self, rank: int = 0) -> Trace:
        trace: Trace = json.loads(gzip.decompress((self.folder / f"rank{rank}.pt.trace.json.gz").read_bytes()))
        return trace


def good(folder: Path) -> Good:
    simulate_to(_JOB, folder, ("nsys", "kineto"))
    with closing(sqlite3.connect(folder / "node0.sqlite")) as db:
        for table in (KERNEL, RUNTIME, NVTX, "StringIds", "TARGET_INFO_CUDA_STREAM"):
            _loosen(db, table)
    return Good(folder)


def _loosen(db: sqlite3.Connection, table: str) -> None:
    """The table again, taking any value: nsys declares NOT NULL and primary keys."""
    db.executescript(
        f"CREATE TABLE loose AS SELECT * FROM {table}; DROP TABLE {table}; ALTER TABLE loose RENAME TO {table}"
    )


# -- exports of nsys ---------------------------------------------------------------------------------------------------


def sql(*statements: str) -> Build:
    def build(good: Good, folder: Path) -> Path:
        file = folder / "node0.sqlite"
        file.write_bytes(good.export.read_bytes())
        with closing(sqlite3.connect(file)) as db:
            for statement in statements:
                db.execute(statement)
            db.commit()
        return file

    return build


def _schema_damage(good: Good, folder: Path) -> Path:
    """SQLite quotes what it cannot parse, and that is not UTF-8."""
    file = folder / "node0.sqlite"
    file.write_bytes(good.export.read_bytes().replace(b"CREATE TABLE", b"CREATE \xa0\xa1BLE"))
    return file


_FIRST_PID = f"(SELECT min(globalPid) FROM {KERNEL})"
_COMPUTE = f"FROM {KERNEL} JOIN StringIds ON id = demangledName WHERE value NOT LIKE 'nccl%'"
_NAME = f"(SELECT demangledName {_COMPUTE} LIMIT 1)"
_ENDLESS = "WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n) SELECT id, 'x' AS value FROM n"

EXPORTS: dict[str, Build] = {
    "c01_call_name_missing.sqlite": sql(f"DELETE FROM StringIds WHERE id = (SELECT nameId FROM {RUNTIME} LIMIT 1)"),
    "c01b_no_stringids.sqlite": sql("DROP TABLE StringIds"),
    "c01c_kernel_name_missing.sqlite": sql(f"DELETE FROM StringIds WHERE id = {_NAME}"),
    "c02_null_end.sqlite": sql(f"UPDATE {KERNEL} SET end = NULL WHERE {_ONE}"),
    "c02b_null_start.sqlite": sql(f"UPDATE {KERNEL} SET start = NULL WHERE {_ONE}"),
    "c03_text_deviceid.sqlite": sql(f"UPDATE {KERNEL} SET deviceId = 'x' WHERE {_ONE}"),
    "c03b_blob_globalpid.sqlite": sql(f"UPDATE {KERNEL} SET globalPid = x'00ff'"),
    "c03c_text_hwid.sqlite": sql("UPDATE TARGET_INFO_CUDA_STREAM SET hwId = 'x'"),
    "c03d_text_globaltid.sqlite": sql(f"UPDATE {NVTX} SET globalTid = 'x'"),
    "c04_schema_damage.sqlite": _schema_damage,
    "c05_nvtx_far.sqlite": sql(f"UPDATE {NVTX} SET start = start + {2**62}, end = end + {2**62}"),
    "ranges_10_years_late.sqlite": sql(f"UPDATE {NVTX} SET start = start + {10 * YEAR_NS}, end = end + {10 * YEAR_NS}"),
    "ranges_never_closed.sqlite": sql(f"UPDATE {NVTX} SET end = NULL"),
    "c06_rank_without_kernels.sqlite": sql(f"DELETE FROM {KERNEL} WHERE globalPid > {_FIRST_PID}"),
    "c07_nvtx_no_start.sqlite": sql(f"UPDATE {NVTX} SET start = NULL"),
    "c09_call_no_thread.sqlite": sql(f"UPDATE {RUNTIME} SET globalTid = globalTid & ~0xffffff"),
    "c09b_calls_no_thread_col.sqlite": sql(f"ALTER TABLE {RUNTIME} DROP COLUMN globalTid"),
    "n01_1MB_kernel_name.sqlite": sql(f"UPDATE StringIds SET value = printf('%.*c', 1000000, 'x') WHERE id = {_NAME}"),
    "v_endless_view.sqlite": sql("DROP TABLE StringIds", f"CREATE VIEW StringIds AS {_ENDLESS}"),
    "w01_end_before_start.sqlite": sql(f"UPDATE {KERNEL} SET start = end, end = start"),
    "w01b_one_end_before_start.sqlite": sql(f"UPDATE {KERNEL} SET start = end, end = start WHERE {_ONE}"),
    "w02_rows_twice.sqlite": sql(f"INSERT INTO {KERNEL} SELECT * FROM {KERNEL}"),
    "w03_ranges_backwards.sqlite": sql(f"UPDATE {NVTX} SET start = end, end = start WHERE end IS NOT NULL"),
    "w04_ops_before_launch.sqlite": sql(f"UPDATE {KERNEL} SET start = start - 50000000, end = end - 50000000"),
    "w05_same_coordinates.sqlite": sql(f"UPDATE {NVTX} SET text = replace(text, 'pp=1/2', 'pp=0/2')"),
    "w06_pp_5_of_2.sqlite": sql(f"UPDATE {NVTX} SET text = replace(text, 'pp=1/2', 'pp=5/2')"),
    "w07_correlation_all_1.sqlite": sql(f"UPDATE {KERNEL} SET correlationId = 1"),
    "w08_third_of_kernels_gone.sqlite": sql(f"DELETE FROM {KERNEL} WHERE rowid % 3 = 0"),
    "w09_kernel_10_years.sqlite": sql(f"UPDATE {KERNEL} SET end = start + {10 * YEAR_NS} WHERE {_ONE}"),
    "w14_null_end_in_window.sqlite": sql(f"UPDATE {KERNEL} SET end = NULL WHERE {_ONE}"),
    "w15_far_kernel.sqlite": sql(f"UPDATE {KERNEL} SET start = {2**63 - 1}, end = {2**63 - 1} WHERE {_ONE}"),
    "w16_negative_start.sqlite": sql(f"UPDATE {KERNEL} SET start = {-(2**63)} WHERE {_ONE}"),
}


# -- traces of torch ---------------------------------------------------------------------------------------------------


def torch(change: Callable[[Trace], None], raw: tuple[str, str] | None = None) -> Build:
    """The first rank's trace, changed; `raw` replaces text that no encoder writes."""

    def build(good: Good, folder: Path) -> Path:
        trace = good.trace()
        change(trace)
        text = json.dumps(trace)
        file = folder / "rank0.pt.trace.json"
        file.write_text(text.replace(*raw) if raw else text)
        return file

    return build


def text(content: str, name: str) -> Build:
    def build(_: Good, folder: Path) -> Path:
        (folder / name).write_text(content)
        return folder / name

    return build


def _of(trace: Trace, *categories: str) -> list[dict[str, Any]]:
    return [e for e in trace["traceEvents"] if e.get("ph") == "X" and (not categories or e.get("cat") in categories)]


def without(key: str, *categories: str, every: int = 1, most: int | None = None) -> Callable[[Trace], None]:
    def change(trace: Trace) -> None:
        for event in _of(trace, *categories)[::every][:most]:
            event.pop(key, None)

    return change


def _early(trace: Trace) -> None:
    for event in _of(trace, "kernel"):
        event["ts"] -= 4 * 3600 * 1e6


def _marked(trace: Trace) -> None:
    _of(trace, "kernel")[5]["ts"] = "MARK"


def _own_pids(trace: Trace) -> None:
    """Every event is of a process of its own, and nothing says whose host it is."""
    trace.pop("distributedInfo", None)
    some = random.Random(1)
    trace["traceEvents"] = some.sample(_of(trace, "kernel"), 30) + some.sample(_of(trace), 30)
    for number, event in enumerate(trace["traceEvents"]):
        event["pid"] = number


def _memsets(trace: Trace) -> None:
    for event in _of(trace):
        event["cat"] = "gpu_memset"


def _ranks(change: Callable[[int, Trace], None]) -> Build:
    def build(good: Good, folder: Path) -> Path:
        for rank in (0, 1):
            trace = good.trace(rank)
            change(rank, trace)
            (folder / f"rank{rank}.pt.trace.json").write_text(json.dumps(trace))
        return folder

    return build


def _worlds(rank: int, trace: Trace) -> None:
    trace["distributedInfo"]["world_size"] = 2 + rank


def _jobs(rank: int, trace: Trace) -> None:
    """The first rank is one of four by its label, too."""
    trace["distributedInfo"]["world_size"] = 4 if rank == 0 else 2
    for event in _of(trace, "user_annotation"):
        event["name"] = event["name"].replace("dp=0/1", "dp=0/2") if rank == 0 else event["name"]


_DEEP = "[" * 2000 + "]" * 2000
_KERNEL = '{"ph":"X","cat":"kernel","name":"k","ts":1,"dur":1,"pid":0,"tid":7,"args":{"d":%s}}'

TRACES: dict[str, Build] = {
    "c08_event_without_tid.pt.trace.json": torch(without("tid", "user_annotation", most=3)),
    "c10_no_dur.pt.trace.json": torch(without("dur")),
    "c11_call_without_tid.pt.trace.json": torch(without("tid", "cuda_runtime", most=3)),
    "c12_1e999.pt.trace.json": torch(_marked, ('"MARK"', "1e999")),
    "c12b_400digits.pt.trace.json": torch(_marked, ('"MARK"', "9" * 400)),
    "c12c_deep_args.pt.trace.json": text('{"traceEvents":[' + _KERNEL % _DEEP + "]}", "a.pt.trace.json"),
    "c12d_deep_header.json": text(f'{{"x":{_DEEP},"traceEvents":[]}}', "a.json"),
    "c13_pid_no_host.pt.trace.json": torch(_own_pids),
    "c14_all_memset.pt.trace.json": torch(_memsets),
    "w10_half_without_dur.pt.trace.json": torch(without("dur", every=2)),
    "w11_kernels_4h_early.pt.trace.json": torch(_early),
    "w12_two_jobs": _ranks(_jobs),
    "w13_world_contradicts": _ranks(_worlds),
}


# -- logs, baselines, manifests ----------------------------------------------------------------------------------------

LOGS: dict[str, Build] = {
    "c17_log_big_k.jsonl": text('{"unit":"ms","k":10000000000000000000000,"tA0":1,"tA1":2}\n', "a.jsonl"),
    "c17b_log_big_t.jsonl": text('{"unit":"s","k":1,"tA0":1e19,"tA1":2e19}\n', "a.jsonl"),
    "c17c_log_deep.jsonl": text('{"k":1,"x":' + "[" * 100_000 + "]" * 100_000 + "}\n", "a.jsonl"),
    "c17d_log_1e5000000.jsonl": text('{"unit":"s","k":1,"tA0":1e5000000,"tA1":2}\n', "a.jsonl"),
}


def baseline(change: Callable[[dict[str, Any]], None]) -> Build:
    def build(good: Good, folder: Path) -> Path:
        body = json.loads(good.baseline.read_bytes())
        change(body)
        (folder / "b.json").write_text(json.dumps(body))
        return folder / "b.json"

    return build


def _times(change: Callable[[list[float]], Iterable[float]]) -> Callable[[dict[str, Any]], None]:
    def changed(body: dict[str, Any]) -> None:
        for table in body["runs"][0]["tables"].values():
            for parts in table.values():
                parts.update({part: list(change(times)) for part, times in parts.items()})

    return changed


BASELINES: dict[str, Build] = {
    "b_facts_dict.json": baseline(lambda b: b["facts"].update(graphs_as={"a": 1})),
    "b_kind.json": baseline(lambda b: b["runs"][0].update(kind="zzz")),
    "b_nan.json": baseline(_times(lambda times: [float("nan") for _ in times])),
    "b_negative.json": baseline(_times(lambda times: [-t for t in times])),
    "b_noruns.json": baseline(lambda b: b.update(runs=[])),
    "b_nosteps.json": baseline(_times(lambda times: [])),
    "b_ranks_1e9.json": baseline(lambda b: b["runs"][0].update(ranks=10**9)),
    "b_warmup_inf.json": baseline(lambda b: b["spec"].update(warmup=float("inf"))),
}


def manifest(change: Callable[[dict[str, Any]], Any]) -> Build:
    def build(_: Good, folder: Path) -> Path:
        capture = reference_captures.unpack("alloc", "nsys", folder)
        body = copy.deepcopy(json.loads((capture / "manifest.json").read_bytes()))
        change(body)
        (capture / "manifest.json").write_text(json.dumps(body))
        return capture

    return build


def _step_ns(value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda body: body["captured"].update(step_ns=value)


MANIFESTS: dict[str, Build] = {
    "m_captured_list": manifest(lambda b: b.update(captured=[])),
    "m_no_captured": manifest(lambda b: b.pop("captured")),
    "m_no_scenario": manifest(lambda b: b.pop("scenario")),
    "m_step_ns_empty": manifest(_step_ns({"0": [[]]})),
    "m_step_str": manifest(_step_ns({"0": [["x", True]]})),
    "m_traced_1": manifest(lambda b: b["scenario"].update(traced=1)),
}
