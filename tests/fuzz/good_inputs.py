"""Good inputs, small ones, of every format that is read: what mutants are made of."""

from __future__ import annotations

import gzip
import json
import lzma
import os
import sqlite3
import tarfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from stepscope import api, store
from stepscope.simulate.hang.faults import parse
from stepscope.simulate.hang.job import HangJob
from stepscope.simulate.hang.run import simulate_hang
from stepscope.simulate.job.scenario import Scenario
from stepscope.simulate.run import simulate_to

_TESTS = Path(__file__).resolve().parents[1]
_DATA = _TESTS / "data"
_MODEL = _TESTS.parent / "src" / "stepscope" / "model"
#: One rank, a pipeline of two, and one with replicas: the fewer events, the more inputs.
_JOBS = {
    "one": Scenario(schedule="1f1b", pp=1, ep=1, dp=1, layers=1, micro_batches=1, steps=3),
    "pipeline": Scenario(schedule="1f1b", pp=2, ep=1, dp=1, layers=2, micro_batches=2, steps=2),
    "mesh": Scenario(schedule="1f1b", pp=2, ep=1, dp=2, layers=2, micro_batches=2, steps=3),
}
#: Real ones: a rank alone with CUDA events; communication by order, and by payloads.
_REAL = {"eager": "train/eager", "moe4": "moe4/overlapped", "payloads": "payloads/overlapped"}
_TRACES = ("compile/torch2.13_whole", "compile/torch2.11_h200_whole", "h200/memory/qwen3_kineto", "ncu/probe/probe")
_SNAPSHOTS = ("retry", "qwen3_oom", "late")
_LIMITS = "[limits]\nstep = 2.0\ncomm_exposed = 1.0\n[limits.stage]\nstage2_f = 0.5\n[limits.family]\ngemm = 1\n"
#: Kernels of a page, rows of its long form.
_PAGE_ROWS = {"raw": 6, "details": 120}


@dataclass(frozen=True)
class Good:
    """One input: its files, and how often it is taken, by how long a question about it takes."""

    name: str
    paths: tuple[Path, ...]
    weight: float = 1.0


@dataclass
class Inputs:
    """Good inputs by kind; `folder` has what several of them need."""

    folder: Path
    kinds: dict[str, list[Good]] = field(default_factory=dict)

    def add(self, kind: str, name: str, *paths: Path, weight: float = 1.0) -> None:
        self.kinds.setdefault(kind, []).append(Good(f"{kind} {name}", paths, weight))

    def one(self, kind: str, name: str) -> Good:
        return next(g for g in self.kinds[kind] if g.name == f"{kind} {name}")


def make(folder: Path) -> Inputs:
    """Write all of them below `folder`."""
    folder.mkdir(parents=True)
    inputs = Inputs(folder)
    _timelines(inputs)
    _measured(inputs)
    _texts(inputs)
    _kept(inputs)
    return inputs


def _timelines(inputs: Inputs) -> None:
    folder, common = inputs.folder, {"one": 10.0, "pipeline": 4.0, "mesh": 0.2}
    for name, job in _JOBS.items():
        simulate_to(job, folder / name, ("nsys", "kineto"))
        database = _loosened(folder / name / "node0.sqlite", folder / f"{name}.sqlite")
        inputs.add("sqlite", name, database, weight=common[name])
        if name != "mesh":
            inputs.add("parquet", name, _as_parquet(database), weight=common[name])
        ranks = [_unpacked(file, folder) for file in sorted((folder / name).glob("rank*.json.gz"))]
        inputs.add("kineto", name, *ranks, weight=common[name])
        if name == "pipeline":
            for how in ("pids", "arguments", "names"):
                inputs.add("kineto", f"merged by {how}", _merged(ranks, folder / f"merged_{how}.json", how))
    for name, file in _REAL.items():
        whole = folder / "whole.sqlite"
        whole.write_bytes(lzma.decompress((_DATA / "h200" / f"{file}.sqlite.xz").read_bytes()))
        inputs.add("sqlite", name, _loosened(whole, folder / f"{name}.sqlite"), weight=0.5 if name == "eager" else 0.05)
    stacks = _unpacked(_DATA / "source" / "backtrace.sqlite.gz", folder)
    inputs.add("sqlite", "stacks", _loosened(stacks, folder / "stacks.sqlite"), weight=0.3)
    for name in _TRACES:
        inputs.add("kineto", Path(name).name, _unpacked(_DATA / f"{name}.pt.trace.json.gz", folder), weight=2)
    for name in ("cpu", "gpu"):
        packed = _DATA / "pftrace" / f"{name}.pftrace"
        inputs.add("pftrace", name, _unpacked(packed, folder), weight=3)
    _exports(inputs)


def _merged(ranks: list[Path], path: Path, how: str) -> Path:
    """Traces of several ranks as one, as tools that merge them tell ranks apart."""
    content, events = {}, []
    for rank, file in enumerate(ranks):
        content = json.loads(file.read_text("utf-8"))
        for event in content.pop("traceEvents"):
            if how == "arguments":
                event["args"] = {**event.get("args", {}), "rank": rank}
            elif isinstance(event.get("pid"), int):
                event["pid"] += 10_000 * (rank + 1)
            events.append(event)
        pids = sorted({e["pid"] for e in events if isinstance(e.get("pid"), int) and e["pid"] // 10_000 == rank + 1})
        if how == "names":
            name = {"ph": "M", "name": "process_name", "ts": 0, "tid": 0, "args": {"name": f"RANK {rank} - all"}}
            events += [{**name, "pid": pid} for pid in pids]
    content.pop("distributedInfo", None)
    path.write_text(json.dumps({**content, "traceEvents": events}), "utf-8")
    return path


def _exports(inputs: Inputs) -> None:
    profile = api.open(inputs.one("sqlite", "one").paths[0], cache=False)
    for kind, ending in (("pftrace", ".pftrace"), ("chrome", ".json"), ("folder", ".parquet")):
        path = inputs.folder / f"exported{ending}"
        profile.export(path, to={"pftrace": "perfetto", "chrome": "chrome", "folder": "parquet"}[kind])
        inputs.add(kind, "exported", _unpacked(path, inputs.folder / "plain") if kind == "pftrace" else path)


def _measured(inputs: Inputs) -> None:
    for page, rows in _PAGE_ROWS.items():
        lines = (_DATA / "ncu" / f"{page}.csv").read_text("utf-8").splitlines(keepends=True)
        path = inputs.folder / f"{page}.csv"
        path.write_text("".join(lines[:rows]), "utf-8")
        inputs.add("ncu-csv", page, path)
    report = inputs.folder / "full.ncu-rep"
    report.write_bytes(lzma.decompress((_DATA / "ncu" / "probe" / "full.ncu-rep.xz").read_bytes()))
    inputs.add("ncu-rep", "full", report)
    _flights(inputs)
    for name, weight in zip(_SNAPSHOTS, (10, 1, 0.5), strict=True):
        packed = _DATA / "h200" / "memory" / f"{name}.snapshot.pickle.gz"
        inputs.add("snapshot", name, _unpacked(packed, inputs.folder), weight=weight)


def _flights(inputs: Inputs) -> None:
    """Dumps of two jobs that hang: pickles with a log, JSON without timing."""
    for name, fault, options in (("pickle", "oom", {}), ("json", "order", {"timing": False, "batched": True})):
        job = HangJob(tp=2, pp=2, dp=1, layers=1, steps=3, seed=6, **options)
        simulate_hang(job, parse(fault)).write(inputs.folder / f"flight_{name}", (name,))
        paths = sorted(p for p in (inputs.folder / f"flight_{name}").iterdir() if p.name != "truth.json")
        inputs.add("flight", name, *paths)


def _texts(inputs: Inputs) -> None:
    folder = inputs.folder
    inputs.add("log", "run", _log(folder / "run.jsonl"))
    for name in ("torch2.11_broken", "torch2.13_broken"):
        inputs.add("compile-log", name, _DATA / "compile" / f"{name}.log")
    for preset in sorted((_MODEL / "trainers").glob("*.toml")):
        inputs.add("labels", preset.stem, preset)
    for preset in sorted((_MODEL / "presets").glob("*.toml")):
        inputs.add("model", preset.stem, preset)
    inputs.add("taxonomy", "own", _MODEL / "taxonomy.toml")
    limits = folder / "limits.toml"
    limits.write_text(_LIMITS, "utf-8")
    inputs.add("limits", "all", limits)


def _kept(inputs: Inputs) -> None:
    """What stepscope itself wrote: a baseline, a capture with its manifest, a cache."""
    folder = inputs.folder
    one = inputs.one("sqlite", "one").paths[0]
    inputs.add("baseline", "one", api.save_baseline(one, str(folder / "baseline.json"), cache=False))
    with tarfile.open(_DATA / "moe_reference" / "alloc.nsys.tar.xz") as packed:
        packed.extract("./manifest.json", folder / "capture", filter="data")
    inputs.add("manifest", "alloc", folder / "capture" / "manifest.json")
    traces = [one, *inputs.one("kineto", "qwen3_kineto").paths]
    with cache_at(folder / "cache"):
        for path in traces:
            profile = api.open(path)
            api.analyse(profile, "diagnose")
        store.flush()
    inputs.add("cache", "both", folder / "cache", *traces)


@contextmanager
def cache_at(folder: Path) -> Iterator[None]:
    """The cache directory, for a while."""
    before = os.environ.get("STEPSCOPE_CACHE_DIR")
    os.environ["STEPSCOPE_CACHE_DIR"] = str(folder)
    try:
        yield
    finally:
        os.environ.pop("STEPSCOPE_CACHE_DIR")
        if before is not None:
            os.environ["STEPSCOPE_CACHE_DIR"] = before


def _unpacked(file: Path, folder: Path) -> Path:
    plain = folder / f"{file.parent.name}_{file.name.removesuffix('.gz')}"
    plain.parent.mkdir(exist_ok=True)
    data = file.read_bytes()
    plain.write_bytes(gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data)
    return plain


def _loosened(source: Path, target: Path) -> Path:
    """A copy whose tables take any value: nsys declares NOT NULL and primary keys."""
    with closing(sqlite3.connect(target)) as db:
        db.execute("ATTACH ? AS old", [str(source)])
        for (table,) in db.execute("SELECT name FROM old.sqlite_master WHERE type = 'table'").fetchall():
            columns = [c for (c,) in db.execute(f"SELECT name FROM pragma_table_info('{table}', 'old')")]
            # What the codes of a column mean is written into every export, and read by none of our readers.
            named = not table.startswith("ENUM_")
            if named and columns and db.execute(f'SELECT 1 FROM old."{table}" LIMIT 1').fetchone():
                db.execute(f'CREATE TABLE "{table}" ({", ".join(columns_sql(columns))})')
                db.execute(f'INSERT INTO "{table}" SELECT * FROM old."{table}"')
        db.commit()
    return target


def columns_sql(columns: list[str]) -> list[str]:
    """Declarations without a type: SQLite then stores what it is given."""
    return [f'"{c}"' for c in columns]


def _as_parquet(database: Path) -> Path:
    """The tables as `nsys export --type=parquetdir` writes them, one file each."""
    folder = database.with_suffix("").with_name(database.stem + "_pqtdir")
    folder.mkdir()
    with closing(sqlite3.connect(database)) as db:
        for (table,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            cursor = db.execute(f'SELECT * FROM "{table}"')
            names = [d[0] for d in cursor.description]
            columns = dict(zip(names, map(list, zip(*cursor.fetchall(), strict=True)), strict=True))
            frame = pl.DataFrame({name: pl.Series(name, column, strict=False) for name, column in columns.items()})
            frame.write_parquet(folder / f"{table}.parquet")
    return folder


def _log(path: Path) -> Path:
    lines: list[dict[str, object]] = [{"unit": "ms", "queue_depth": 2}]
    for k in range(8):
        lines += [
            {"k": k, "rank": 0, "tA0": 10 * k, "tA1": 10 * k + 2.5, "tSend": 10 * k + 2.5},
            {"k": k, "rank": 0, "tRecv_ms": 10 * k + 7, "tDecode_ms": 10 * k + 8, "tEmit_us": 10_000 * k + 8_500},
            {"k": k, "rank": 4, "role": "leader", "tB0_ns": 10**7 * k + 10**9, "tB1_ns": 10**7 * k + 10**9 + 4 * 10**6},
            {"block": "attention", "ms": 1.25, "synchronized": k % 2 == 0, "k": k},
        ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return path
