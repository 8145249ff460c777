"""The traces that are measured, made once by `stepscope simulate` and kept under .bench/."""

from __future__ import annotations

import gzip
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

HOME = Path(__file__).resolve().parents[1] / ".bench"

_KERNELS = 1_000_000
#: Kernels of one rank whose torch.profiler trace has about a million events.
_KINETO_KERNELS = 240_000

_ONE_RANK = ("--schedule", "ddp", "--pp", "1", "--ep", "1")

_RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
_KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"


def million() -> Path:
    """An nsys export of a million kernels on 8 ranks, with 2.3 million calls."""

    def make(folder: Path, target: Path) -> None:
        _simulate(folder, "--kernels", str(_KERNELS), "--write", "nsys")
        with closing(_fast(folder / "node0.sqlite")) as db:
            _add_calls(db)
        (folder / "node0.sqlite").rename(target)

    return _made("million.sqlite", make)


def million_of_one() -> Path:
    """The same of one rank: a million kernels, with 2.3 million calls."""

    def make(folder: Path, target: Path) -> None:
        _simulate(folder, *_ONE_RANK, "--kernels", str(_KERNELS), "--write", "nsys")
        with closing(_fast(folder / "node0.sqlite")) as db:
            _add_calls(db)
        (folder / "node0.sqlite").rename(target)

    return _made("million-of-one.sqlite", make)


def small() -> Path:
    """An nsys export of 20,000 kernels on 8 ranks: what a process is asked about before it is timed."""

    def make(folder: Path, target: Path) -> None:
        _simulate(folder, "--kernels", "20000", "--write", "nsys")
        (folder / "node0.sqlite").rename(target)

    return _made("small.sqlite", make)


def small_kineto() -> Path:
    """The same as a torch.profiler trace of one rank."""

    def make(folder: Path, target: Path) -> None:
        _simulate(folder, *_ONE_RANK, "--kernels", "5000", "--write", "kineto")
        target.parent.mkdir(exist_ok=True)
        (folder / "rank0.pt.trace.json.gz").rename(target)

    return _made("small-kineto/rank0.pt.trace.json.gz", make)


def two_million() -> Path:
    """An nsys export of two million kernels on 8 ranks, as it is simulated."""

    def make(folder: Path, target: Path) -> None:
        _simulate(folder, "--kernels", str(2 * _KERNELS), "--write", "nsys")
        (folder / "node0.sqlite").rename(target)

    return _made("two-million.sqlite", make)


def ten_million() -> Path:
    """The same ten times over, one after the other."""

    def make(folder: Path, target: Path) -> None:
        copy = folder / "ten.sqlite"
        shutil.copy(million(), copy)
        with closing(_fast(copy)) as db:
            span = db.execute(f"SELECT max(end) FROM {_KERNEL}").fetchone()[0] + 1_000_000
            ids = db.execute(f"SELECT max(correlationId) FROM {_RUNTIME}").fetchone()[0] + 1
            for table, key in ((_KERNEL, "globalPid"), (_RUNTIME, "globalTid"), ("NVTX_EVENTS", "globalTid")):
                shift = {"start": f"start + n * {span}", "end": f"end + n * {span}"}
                shift["correlationId"] = f"correlationId + n * {ids}"
                _rebuild(db, table, _repeated(db, table, shift, 10) + f" ORDER BY {key}, start")
        copy.rename(target)

    return _made("ten-million.sqlite", make)


def kineto() -> Path:
    """A torch.profiler trace of a million events, as plain JSON."""

    def make(folder: Path, target: Path) -> None:
        _simulate(folder, *_ONE_RANK, "--kernels", str(_KINETO_KERNELS), "--write", "kineto")
        with gzip.open(folder / "rank0.pt.trace.json.gz") as packed, (folder / "plain").open("wb") as plain:
            shutil.copyfileobj(packed, plain, 1 << 20)
        target.parent.mkdir(exist_ok=True)
        (folder / "plain").rename(target)

    return _made("kineto/rank0.pt.trace.json", make)


def _made(name: str, make: Callable[[Path, Path], None]) -> Path:
    """The trace of that name, made if it is not there: in a folder of its own, so that half a trace is never taken."""
    target = HOME / name
    if not target.exists():
        folder = HOME / f"{target.stem}.making"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        print(f"making {target.relative_to(HOME.parent)} …", file=sys.stderr)
        make(folder, target)
        shutil.rmtree(folder)
    return target


def _simulate(folder: Path, *options: str) -> None:
    program = Path(sys.executable).with_name("stepscope")
    subprocess.run([program, "simulate", *options, "-o", folder], check=True, stdout=subprocess.DEVNULL)


def _fast(path: Path) -> sqlite3.Connection:
    """A connection that does not care for crashes: the file can be made again."""
    db = sqlite3.connect(path, isolation_level=None)
    db.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA temp_store = MEMORY;")
    return db


def _add_calls(db: sqlite3.Connection) -> None:
    """Calls that launch nothing, to 2.3 per kernel: real programs query, record and allocate between launches."""
    kernels = db.execute(f"SELECT count(*) FROM {_KERNEL}").fetchone()[0]
    calls = db.execute(f"SELECT count(*) FROM {_RUNTIME}").fetchone()[0]
    ids = db.execute(f"SELECT max(correlationId) FROM {_RUNTIME}").fetchone()[0] + 1
    name = db.execute("SELECT max(id) FROM StringIds").fetchone()[0] + 1
    db.execute("INSERT INTO StringIds (id, value) VALUES (?, 'cudaEventQuery_v3020')", (name,))
    extra = 2.3 * kernels / calls - 1
    rows = [f"SELECT * FROM {_RUNTIME}"]
    for n in range(1, int(extra) + 2):
        share = min(1.0, extra - (n - 1))
        changed = {
            "start": f"end + {n * 200}",
            "end": f"end + {n * 200 + 100}",
            "nameId": str(name),
            "correlationId": f"{n * ids} + rowid",
        }
        where = f"WHERE (rowid * 2654435761) % 1000 < {int(share * 1000)}"
        rows.append(f"SELECT {_columns(db, _RUNTIME, changed)} FROM {_RUNTIME} {where}")
    _rebuild(db, _RUNTIME, " UNION ALL ".join(rows) + " ORDER BY globalTid, start")


def _columns(db: sqlite3.Connection, table: str, changed: dict[str, str]) -> str:
    names = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
    return ", ".join(f'{changed.get(n, chr(34) + n + chr(34))} AS "{n}"' for n in names)


def _repeated(db: sqlite3.Connection, table: str, changed: dict[str, str], times: int) -> str:
    numbers = f"WITH RECURSIVE k(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM k WHERE n < {times - 1})"
    return f"{numbers} SELECT {_columns(db, table, changed)} FROM {table}, k"


def _rebuild(db: sqlite3.Connection, table: str, select: str) -> None:
    """Replace the rows of `table` by those of `select`, in its order."""
    declaration = db.execute("SELECT sql FROM sqlite_master WHERE name = ?", (table,)).fetchone()[0]
    db.execute(f"ALTER TABLE {table} RENAME TO old_rows")
    db.execute(declaration)
    db.execute(f"INSERT INTO {table} {select.replace(f'FROM {table}', 'FROM old_rows')}")
    db.execute("DROP TABLE old_rows")
