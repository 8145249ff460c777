"""Good inputs, small ones, of every format that is read: what mutants are made of."""

from __future__ import annotations

import gzip
import json
import lzma
import sqlite3
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

import reference_captures
from stepscope.simulate.job.scenario import Scenario
from stepscope.simulate.run import simulate_to

_DATA = Path(__file__).resolve().parents[1] / "data"
_JOB = Scenario(schedule="1f1b", pp=2, ep=1, dp=2, layers=2, micro_batches=2, steps=3)
#: Communication by payloads and by order; CUDA events; a rank alone.
_REAL = ("moe4/overlapped", "payloads/overlapped", "train/eager")
#: Larger ones are no better at finding faults, and slower.
_SMALL = 4 << 20
_TORCH = ("torch2.11_h200_broken", "torch2.13_broken")


@dataclass(frozen=True)
class Good:
    """Paths by format. A Kineto input is several files, one per rank; a capture is a folder with its manifest."""

    sqlite: list[Path]
    parquet: list[Path]
    kineto: list[list[Path]]
    log: Path
    capture: Path


def make(folder: Path) -> Good:
    """Write all of them below `folder`."""
    simulate_to(_JOB, folder / "job", ("nsys", "kineto"))
    databases = [_loosened(folder / "job" / "node0.sqlite", folder / "job.sqlite")]
    for name in _REAL:
        packed = (_DATA / "h200" / f"{name}.sqlite.xz").read_bytes()
        whole = folder / "whole.sqlite"
        whole.write_bytes(lzma.decompress(packed))
        databases.append(_loosened(whole, folder / f"{name.replace('/', '_')}.sqlite"))
    ranks = []
    for file in sorted((folder / "job").glob("rank*.json.gz"))[:2]:
        plain = folder / file.name.removesuffix(".gz")
        plain.write_bytes(gzip.decompress(file.read_bytes()))
        ranks.append(plain)
    traces = [ranks]
    for name in _TORCH:
        plain = folder / f"{name}.pt.trace.json"
        plain.write_bytes(gzip.decompress((_DATA / "compile" / f"{name}.pt.trace.json.gz").read_bytes()))
        traces.append([plain])
    return Good(
        sqlite=databases,
        parquet=[_as_parquet(databases[0]), _as_parquet(databases[1])],
        kineto=traces,
        log=_log(folder / "run.jsonl"),
        capture=reference_captures.unpack("alloc", "nsys", folder),
    )


def more(good: Good, traces: Path, folder: Path) -> Good:
    """With the small exports and traces below `traces`, each an input of its own."""
    folder.mkdir()
    databases, kineto = list(good.sqlite), list(good.kineto)
    for at, file in enumerate(sorted(traces.rglob("*"))):
        if not file.is_file() or file.stat().st_size > _SMALL:
            continue
        if file.suffix == ".sqlite":
            databases.append(_loosened(file, folder / f"{at}_{file.name}"))
        elif file.name.endswith(".json.gz") and file.stat().st_size < _SMALL // 4:
            plain = folder / f"{at}_{file.name.removesuffix('.gz')}"
            plain.write_bytes(gzip.decompress(file.read_bytes()))
            with suppress(ValueError):  # a trace that is broken already
                json.loads(plain.read_bytes())
                kineto.append([plain])
    return replace(good, sqlite=databases, kineto=kineto)


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
