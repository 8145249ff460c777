"""What the fuzzer found, each as the smallest input that shows it."""

from __future__ import annotations

import csv
import gzip
import json
import pickle
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from mutate_cache import forged

from exports import job
from fake import call, copy, make, op
from stepscope import api, store
from stepscope.capture import manifest
from stepscope.compare import baseline
from stepscope.compare.gate import parse_limits
from stepscope.errors import BadInput
from stepscope.model import declared, label_rules, taxonomy
from stepscope.store import container

_DATA = Path(__file__).resolve().parents[1] / "data"
_DEEP = "x = " + "[" * 5000


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A profile as a folder of Parquet files."""
    folder = tmp_path_factory.mktemp("found")
    api.open(job(folder / "job"), cache=False).export(folder / "x.parquet")
    return folder / "x.parquet"


@pytest.mark.parametrize(
    "read",
    [label_rules.load, taxonomy.load, lambda p: parse_limits(p, ()), lambda p: declared.load(str(p))],
    ids=["labels", "taxonomy", "limits", "model"],
)
@pytest.mark.parametrize(("text", "says"), [(_DEEP, "too deep"), ("x = [", "not valid TOML"), (None, "cannot read it")])
def test_toml_that_is_none(tmp_path: Path, read: Any, text: str | None, says: str) -> None:
    file = tmp_path / "x.toml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(BadInput, match=says) as refused:
        read(file)
    assert str(file) in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.filterwarnings("error")
def test_a_pattern_that_python_reads_otherwise_than_polars(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_text("chunk = 'c[a--b]'")
    with pytest.raises(BadInput, match="not a regular expression"):
        label_rules.load(file)


def test_a_model_too_large_for_a_number() -> None:
    with pytest.raises(BadInput, match="give width a number"):
        declared.load(f"layers=1,width={10**400}")


def test_a_baseline_whose_tables_differ(tmp_path: Path) -> None:
    trace = next(job(tmp_path / "job").glob("*.sqlite"))
    file = api.save_baseline(trace, str(tmp_path / "b.json"), cache=False)
    saved = json.loads(file.read_text())
    saved["runs"][0]["tables"]["part"]["step"]["compute"][0] += 1_000_000
    file.write_text(json.dumps(saved))
    with pytest.raises(BadInput, match="do not sum"):
        baseline.load(file)


def test_a_baseline_that_lacks_a_table(tmp_path: Path) -> None:
    trace = next(job(tmp_path / "job").glob("*.sqlite"))
    file = api.save_baseline(trace, str(tmp_path / "b.json"), cache=False)
    file.write_text(file.read_text().replace('"stage":', '"stagd":'))
    with pytest.raises(BadInput, match="not its tables by part, stage, family"):
        baseline.load(file)


def test_calls_of_no_process_vote_for_none(tmp_path: Path) -> None:
    """Threads that Kineto knows nothing of have pid 0, and so may rows of the GPU: then nobody launched them."""
    pair = {"ph": "X", "dur": 2.0}
    events = [
        event
        for pid in range(3)
        for event in (
            {**pair, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": pid, "tid": pid, "ts": 10.0 * pid}
            | {"args": {"correlation": pid + 1}},
            {**pair, "cat": "kernel", "name": "k", "pid": pid, "tid": 7, "ts": 10.0 * pid + 3}
            | {"args": {"device": 0, "stream": 7, "correlation": pid + 1}},
        )
    ]
    file = tmp_path / "x.pt.trace.json"
    file.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    result = api.open(file, cache=False).info()
    assert result.rows["kernels"].to_list() == [1, 1]
    assert any("belong to no known rank" in str(note) for note in result.notes)


@pytest.mark.parametrize(
    "change",
    [
        {"processes": [{"rank": 0, "device": -1.5}]},
        {"processes": [{"rank": 0, "world_size": {"a": {}}}]},
        {"processes": [{"pid": 5}]},
        {"origin_ns": 1 << 63},
        {"notes": [{"code": "x"}]},
        {"info": {"facts": []}},
    ],
)
def test_the_header_of_an_export_is_checked(exported: Path, change: dict[str, Any]) -> None:
    header = exported / "stepscope.json"
    before = header.read_text()
    try:
        header.write_text(json.dumps(json.loads(before) | change))
        with pytest.raises(BadInput, match=r"stepscope\.json is damaged"):
            api.open(exported, cache=False)
    finally:
        header.write_text(before)


@pytest.mark.parametrize(
    "change",
    [
        lambda ops: ops.with_columns(pl.lit(None).alias("end_ns")).drop("end_ns"),
        lambda ops: ops.with_columns(pl.concat_list("start_ns").alias("start_ns")),
        lambda ops: ops.with_columns(pl.lit("late").alias("start_ns")),
    ],
    ids=["without", "lists", "texts"],
)
def test_tables_of_an_export_have_their_types(exported: Path, change: Any) -> None:
    file = exported / "ops.parquet"
    before = file.read_bytes()
    try:
        change(pl.read_parquet(file)).write_parquet(file)
        with pytest.raises(BadInput, match=r"ops\.parquet"):
            api.analyse(api.open(exported, cache=False), "info")
    finally:
        file.write_bytes(before)


@pytest.mark.slow
def test_a_message_within_a_packet_that_is_none(tmp_path: Path) -> None:
    """Every byte of a small trace, one after the other: what lies within messages is decoded late."""
    data = gzip.decompress((_DATA / "pftrace" / "gpu.pftrace").read_bytes())
    file = tmp_path / "x.pftrace"
    for at in range(len(data) - 1500, len(data), 25):
        file.write_bytes(data[:at] + bytes([data[at] ^ 0x85]) + data[at + 1 :])
        try:
            api.open(file, cache=False)
        except BadInput as refused:
            assert "\n" not in str(refused)


def test_counts_beyond_what_a_gpu_does(tmp_path: Path) -> None:
    """A count of bytes with more digits than the time has room for is no share of a thousand billion per cent."""
    with (_DATA / "ncu" / "raw.csv").open(newline="") as file:
        table = list(csv.reader(file))[:4]
    table[2][table[0].index("dram__bytes_read.sum")] = "9" * 20
    path = tmp_path / "raw.csv"
    with path.open("w", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows(table)
    result = api.analyse(api.open(path, cache=False), "roofline")
    for share in ("dram_pct", "l2_pct", "l1_pct", "roof_pct"):
        assert (result.rows[share].drop_nulls() <= 110).all(), share
    assert any(note.code == "values-unknown" for note in result.notes)


def test_shares_of_memory_whose_records_disagree(tmp_path: Path) -> None:
    """Blocks of more than their segment: shares are of the larger, so that none is above the whole."""
    content = pickle.loads(gzip.decompress((_DATA / "h200" / "memory" / "retry.snapshot.pickle.gz").read_bytes()))
    for trace in content["device_traces"]:
        for event in trace:
            event["size"] = event["size"] // 2 if event["action"].startswith("segment") else event["size"]
    path = tmp_path / "x.pickle"
    path.write_bytes(pickle.dumps(content))
    result = api.analyse(api.open(path, cache=False), "memory")
    assert any(note.code == "ledger-open" for note in result.notes)
    assert float(result.rows["share_pct"].sum()) <= 100 + 1e-6


def test_a_log_is_named_by_a_text_too() -> None:
    log = str(_DATA / "compile" / "torch2.11_broken.log")
    assert api.analyse(None, "compile", log=log).rows.height > 0


def test_chunks_that_were_emitted_out_of_order(tmp_path: Path) -> None:
    lines = []
    for k, emitted in enumerate((10, 20, 5, 40)):
        lines += [{"unit": "ms", "k": k, "rank": 0, "tA0": 10 * k, "tA1": 10 * k + 2, "tEmit": emitted}]
        lines += [{"unit": "ms", "k": k, "rank": 1, "tB0": 10 * k + 2, "tB1": 10 * k + 6}]
    path = tmp_path / "run.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    result = api.analyse(api.open(path, cache=False), "pipeline", warmup=0)
    assert result.rows["period_ns"].to_list() == [None, 10_000_000, None, 35_000_000]
    assert any(note.code == "chunks-without-period" for note in result.notes)


def test_a_cache_that_names_no_table_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPSCOPE_CACHE_DIR", str(tmp_path / "cache"))
    trace = next(job(tmp_path / "job").glob("*.sqlite"))
    before = api.analyse(api.open(trace), "info").rows
    store.flush()
    (file,) = (tmp_path / "cache").rglob("*.source.tbl")
    data = file.read_bytes()
    end = len(data) - container._TAIL.size
    size = container._TAIL.unpack_from(data, end)[0]
    meta = json.loads(data[end - size : end])
    meta["meta"]["tables"].append("no table of ours")
    file.write_bytes(forged(data[: end - size], meta))
    assert api.analyse(api.open(trace), "info").rows.equals(before)


def test_a_copy_that_outlasts_the_first_kernel_alone() -> None:
    """It began before the first kernel, so that it is set up once: no copy is left that a finding could be about."""
    us = 1_000
    profile = make(
        ops=[copy(0, 900 * us, 8, 1), op(100 * us, 200 * us, call=2), op(900 * us, 1000 * us, call=3)],
        calls=[call(-30, -20, 1), call(-19, -10, 2), call(-9, -1, 3)],
    )
    assert "exposed-copies" not in api.analyse(profile, "diagnose").rows["id"].to_list()


def test_a_kernel_without_a_stream_is_told(tmp_path: Path) -> None:
    trace = next(job(tmp_path / "job").glob("*.sqlite"))
    with closing(sqlite3.connect(trace)) as database, database:
        table = "CUPTI_ACTIVITY_KIND_KERNEL"
        database.execute(f"CREATE TABLE loose AS SELECT * FROM {table}")
        database.execute(f"DROP TABLE {table}")
        database.execute(f"ALTER TABLE loose RENAME TO {table}")
        database.execute(f"UPDATE {table} SET streamId = NULL WHERE rowid = 5")
    said = [str(note) for note in api.open(trace, cache=False).concurrency().notes]
    assert any("1 row without stream" in note for note in said), said


def test_a_panic_over_a_damaged_table_is_damage(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def panic(*_: Any, **__: Any) -> None:
        raise pl.exceptions.PanicException("called `Result::unwrap()` on an `Err` value")

    monkeypatch.setattr(pl, "read_parquet", panic)
    with pytest.raises(BadInput, match=r"\.parquet is missing or damaged"):
        api.open(exported, cache=False).info()


def test_less_than_nothing_was_asked_for(tmp_path: Path) -> None:
    content = pickle.loads(gzip.decompress((_DATA / "h200" / "memory" / "retry.snapshot.pickle.gz").read_bytes()))
    blocks = [block for segment in content["segments"] for block in segment["blocks"]]
    next(b for b in blocks if b["state"] == "active_allocated")["requested_size"] = -1_000_000_000
    path = tmp_path / "x.pickle"
    path.write_bytes(pickle.dumps(content))
    result = api.open(path, cache=False).memory()
    assert any("requested_bytes cannot be" in str(note) for note in result.notes), [*map(str, result.notes)]
    shares = [c for c in result.rows.columns if c.endswith("_pct")]
    assert shares and all((result.rows[c].drop_nulls() >= 0).all() for c in shares)


def test_a_manifest_of_endless_steps(tmp_path: Path) -> None:
    steps = {"0": [[10**400, False]]}
    (tmp_path / manifest.FILE).write_text(
        json.dumps({"schema": manifest.SCHEMA, "scenario": {}, "captured": {"step_ns": steps}})
    )
    with pytest.raises(BadInput, match=manifest.FILE):
        manifest.read(tmp_path)


def test_rules_without_their_text(tmp_path: Path) -> None:
    with (_DATA / "ncu" / "details.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    gone = next(i for i, row in enumerate(rows) if "Rule Description" in row)
    column = rows[gone].index("Rule Description")
    with (tmp_path / "x.csv").open("w", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows(
            [*rows[:gone], *([*r[:column], *r[column + 1 :]] for r in rows[gone:])]
        )
    assert api.open(tmp_path / "x.csv", cache=False).roofline().rows.height


def test_a_model_whose_name_has_two_lines(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_text('name = "a\\nb"\nlayers = 1\nwidth = 8\n')
    with pytest.raises(BadInput, match="give name a text of one line"):
        declared.load(str(file))


def test_true_is_no_duration(tmp_path: Path) -> None:
    launch = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 5, "tid": 5, "ts": 1.0, "dur": 1.0}
    kernel = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 3.0, "dur": 5.0}
    events = [launch | {"args": {"correlation": i}, "ts": 10.0 * i} for i in (1, 2)]
    events += [kernel | {"args": {"device": 0, "stream": 7, "correlation": i}, "ts": 10.0 * i + 3} for i in (1, 2)]
    file = tmp_path / "x.pt.trace.json"
    file.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [*events[:-1], events[-1] | {"dur": True}]}))
    result = api.open(file, cache=False).kernels()
    assert result.rows["n"].sum() == 1
    assert any("without a duration" in str(note) for note in result.notes), [*map(str, result.notes)]


def test_an_export_of_no_process(exported: Path) -> None:
    header = exported / "stepscope.json"
    before = header.read_text()
    try:
        header.write_text(json.dumps(json.loads(before) | {"processes": []}))
        with pytest.raises(BadInput, match=r"stepscope\.json is damaged"):
            api.open(exported, cache=False)
    finally:
        header.write_text(before)


def test_less_shared_memory_than_none_is_unknown() -> None:
    profile = make(ops=[op(0, 5, smem_static=-1), op(6, 9, smem_static=16)])
    assert profile.table("ops", detail=True)["smem_static"].to_list() == [None, 16]
