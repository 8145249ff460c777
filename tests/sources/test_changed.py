"""A file that is replaced while it is read: its figures, or those of what replaced it, or none; never of both."""

from __future__ import annotations

import gzip
import json
import multiprocessing
import os
import pickle
import shutil
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from marks import slow_unless
from stepscope import api
from stepscope.api import share
from stepscope.errors import Changed
from stepscope.report.sections import overlap
from stepscope.simulate.job.scenario import Scenario
from stepscope.simulate.run import simulate_to
from stepscope.sources.nsys.parquet import ParquetTables
from stepscope.sources.nsys.sqlite import SqliteTables
from stepscope.sources.open import open_sources
from stepscope.store import cached, flush

JOB = Scenario(schedule="1f1b", pp=2, ep=1, layers=2, micro_batches=2, steps=2)
DATA = Path(__file__).resolve().parents[1] / "data"
KINDS = {
    "nsys-sqlite": "a.sqlite",
    "nsys-parquet": "a_pqtdir",
    "kineto": "a.pt.trace.json",
    "kineto-gz": "a.pt.trace.json.gz",
    "pftrace": "a.pftrace",
    "perfetto-export": "ours.pftrace",
    "chrome-export": "ours.json.gz",
    "export-folder": "ours.parquet",
    "pipeline-log": "a.jsonl",
    "ncu-csv": "a.csv",
    "snapshot": "a.pickle",
}
#: Moments of which each kind has more than this are taken at even distances.
MOST_MOMENTS = 3

# -- two contents of every kind ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Path]]:
    """By kind, two files or folders of one form and other figures."""
    root = tmp_path_factory.mktemp("pairs")
    first, second = (_all(root / str(n), n) for n in (1, 2))
    return {kind: (first[kind], second[kind]) for kind in KINDS}


def _all(folder: Path, n: int) -> dict[str, Path]:
    folder.mkdir()
    simulate_to(replace(JOB, steps=1 + n, seed=n), folder / "job", ("nsys", "kineto"))
    at = {kind: folder / name for kind, name in KINDS.items()}
    (folder / "job" / "node0.sqlite").rename(at["nsys-sqlite"])
    (folder / "job" / "rank0.pt.trace.json.gz").rename(at["kineto-gz"])
    at["kineto"].write_bytes(gzip.decompress(at["kineto-gz"].read_bytes()))
    _as_parquet(at["nsys-sqlite"], at["nsys-parquet"])
    shutil.copy(DATA / "pftrace" / ("gpu.pftrace", "cpu.pftrace")[n - 1], at["pftrace"])
    profile = api.open(at["nsys-sqlite"], cache=False)
    for kind in ("perfetto-export", "chrome-export", "export-folder"):
        profile.export(at[kind], findings=False)
    lines = [{"k": k, "rank": r, "tA0_ms": 10 * k + n, "tA1_ms": 10 * k + 4 + n} for k in range(20) for r in (0, 1)]
    at["pipeline-log"].write_text("".join(json.dumps(line) + "\n" for line in lines))
    rows = (DATA / "ncu" / "raw.csv").read_text().splitlines(keepends=True)
    at["ncu-csv"].write_text("".join(rows[: len(rows) - n]))
    frames = [{"name": "forward", "filename": "model.py", "line": n}]
    events = [
        {"action": "alloc", "addr": 4096 * i, "size": 512 * n, "stream": 0, "time_us": 10**6 + i, "frames": frames}
        for i in range(1, 40)
    ]
    at["snapshot"].write_bytes(pickle.dumps({"segments": [], "device_traces": [events]}, 4))
    return at


def _as_parquet(database: Path, folder: Path) -> None:
    folder.mkdir()
    with closing(sqlite3.connect(database)) as db:
        for (table,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            cursor = db.execute(f'SELECT * FROM "{table}"')
            columns = [d[0] for d in cursor.description]
            rows = cursor.fetchall()
            if rows and not table.startswith("ENUM_"):
                pl.DataFrame(rows, columns, orient="row", infer_schema_length=None).write_parquet(
                    folder / f"{table}.parquet"
                )


# -- what is read, and when ----------------------------------------------------------------------------------------


class Moments:
    """Counts the moments at which a path is opened or asked, and does something at one of them."""

    def __init__(self) -> None:
        self.path: Path | None = None
        self._busy = False

    def start(self, path: Path, at: int = -1, do: Callable[[], None] = lambda: None) -> None:
        self.path, self.count, self._at, self._do = path, 0, at, do

    def stop(self) -> int:
        self.path = None
        return self.count

    def passed(self) -> None:
        if self.path is None or self._busy:
            return
        self._busy = True
        try:
            if self.count == self._at:
                self._do()
            self.count += 1
        finally:
            self._busy = False

    def audit(self, event: str, given: tuple[Any, ...]) -> None:
        """Of Python: files opened by name, databases connected to."""
        if self.path is not None and event in ("open", "sqlite3.connect") and isinstance(given[0], str | bytes | Path):
            name = os.fsdecode(given[0]).removeprefix("file://")
            if name.startswith(str(self.path)):
                self.passed()


MOMENTS = Moments()
sys.addaudithook(MOMENTS.audit)  # there is no taking it away: it does nothing unless started


@pytest.fixture
def moments(monkeypatch: pytest.MonkeyPatch) -> Iterator[Moments]:
    """With those that Python does not see: what the drivers open by themselves."""
    for owner, name in ((SqliteTables, "_arrow"), (ParquetTables, "_scan")):
        plain = getattr(owner, name)

        def patched(self: Any, *args: Any, plain: Any = plain) -> Any:
            MOMENTS.passed()
            return plain(self, *args)

        monkeypatch.setattr(owner, name, patched)
    yield MOMENTS
    MOMENTS.stop()


def contents(path: Path, wrap: Any = None) -> dict[str, Any]:
    """All that a source says, a moment between any two questions."""
    (source,) = open_sources(path, wrap=wrap)
    said: dict[str, Any] = {"processes": source.processes()}
    for table in sorted(source.tables()):
        for part in ("core", "detail"):
            MOMENTS.passed()
            chunk = source.read(table, part)  # type: ignore[arg-type]
            said[f"{table}.{part}"] = chunk.frame
            said[f"{table}.{part}.names"] = chunk.names.to_frame()
    return said


def same(a: dict[str, Any], b: dict[str, Any]) -> bool:
    try:
        assert a.keys() == b.keys()
        for key in a:
            assert_frame_equal(a[key], b[key])
    except AssertionError:
        return False
    return True


def put(source: Path, path: Path) -> None:
    """A copy in the place of what is there, at once."""
    beside = path.with_name("beside")
    if source.is_dir():
        shutil.copytree(source, beside)
        shutil.rmtree(path, ignore_errors=True)
    else:
        shutil.copy2(source, beside)
    beside.rename(path)


def put_slowly(source: Path, path: Path) -> None:
    """The bytes written over those that are there: the same file, with other content; of a folder, half the files."""
    if source.is_dir():
        for file in sorted(source.iterdir())[::2]:
            (path / file.name).write_bytes(file.read_bytes())
    else:
        path.write_bytes(source.read_bytes())


def asked(path: Path, wrap: Any) -> dict[str, Any] | None:
    """What was read; None where it was refused, in one line that names the file and what to do."""
    try:
        return contents(path, wrap)
    except Changed as refusal:
        assert str(refusal) == f"{path}: changed while it was read; ask again"
        return None


def quick(kind: str, how: Callable[[Path, Path], None]) -> bool:
    """Both ways of changing a file on one format of each family, the other formats by one of them."""
    return (how is put_slowly and kind != "nsys-parquet") or kind in ("kineto", "snapshot", "pipeline-log")


@pytest.mark.parametrize(
    ("kind", "how"),
    slow_unless(quick, KINDS, [put, put_slowly]),
    ids=lambda v: v if isinstance(v, str) else {put: "replaced", put_slowly: "overwritten"}[v],
)
def test_no_moment_mixes_two_contents(
    kind: str,
    how: Callable[[Path, Path], None],
    pairs: dict[str, tuple[Path, Path]],
    moments: Moments,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Read with the cache and without it, in turns."""
    monkeypatch.setenv("STEPSCOPE_CACHE_DIR", str(tmp_path / "cache"))
    old, new = pairs[kind]
    path = tmp_path / old.name
    put(old, path)
    moments.start(path)
    first = contents(path)
    count = moments.stop()
    second = contents(new)
    assert count >= 3
    assert not same(first, second)
    refused = 0
    for n, at in enumerate(sorted({round(i * (count - 1) / (MOST_MOMENTS - 1)) for i in range(MOST_MOMENTS)})):
        wrap = (cached, None)[n % 2]
        shutil.rmtree(tmp_path / "cache", ignore_errors=True)
        put(old, path)
        moments.start(path, at, lambda: how(new, path))
        got = asked(path, wrap)
        moments.stop()
        flush()
        refused += got is None
        assert got is None or same(got, first) or same(got, second), at
        for whole, right in ((old, first), (new, second)) if wrap is not None else ():
            put(whole, path)
            assert same(contents(path, wrap), right), f"the cache is of two contents, {at}"
    assert refused


def test_a_set_of_files_replaced_together(tmp_path: Path, moments: Moments) -> None:
    """Every file is of one content, but ranks of two jobs do not belong together."""
    for n in (1, 2):
        simulate_to(replace(JOB, seed=n), tmp_path / str(n), ("kineto",))
    folder = tmp_path / "job"
    folder.mkdir()

    def put_all(n: int) -> None:
        for file in (tmp_path / str(n)).glob("rank*"):
            put(file, folder / file.name)

    def figures(place: Path) -> pl.DataFrame:
        return api.open(place, cache=False).breakdown(whole=True).rows

    whole = [figures(tmp_path / str(n)) for n in (1, 2)]
    refused, at = 0, 0
    while True:
        put_all(1)
        moments.start(folder / "rank1.pt.trace.json.gz", at, lambda: put_all(2))
        try:
            got = figures(folder)
            assert any(got.equals(right) for right in whole), at
        except Changed:
            refused += 1
        if moments.stop() <= at:
            break
        at += 1
    assert refused


@pytest.mark.parametrize("kept", [True, False])
def test_workers_read_what_was_opened(kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They keep files open; whoever takes over from one that died opens them anew. Here it is this process."""
    for n in (1, 2):
        simulate_to(replace(JOB, seed=n), tmp_path / str(n), ("kineto",))
    monkeypatch.setitem(multiprocessing.current_process()._config, "daemon", True)  # which may have no others
    profile = api.open(tmp_path / "1", jobs=2, cache=False)
    assert profile.map(lambda part: part.ops.height > 0) == [True, True]
    put(tmp_path / "2" / "rank1.pt.trace.json.gz", tmp_path / "1" / "rank1.pt.trace.json.gz")
    if not kept:
        share._kept.clear()
    with pytest.raises(Changed, match=r"rank1.*ask again"):
        profile.map(lambda part: part.ops.height)


def test_a_cut_torch_trace_is_of_what_was_opened(
    pairs: dict[str, tuple[Path, Path]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = pairs["kineto"]
    path = tmp_path / old.name
    put(old, path)
    profile = api.open(path, cache=False)
    profile.breakdown()
    put(new, path)
    with pytest.raises(Changed):
        profile.export(tmp_path / "cut.pt.trace.json", index=0)
    assert sorted(p.name for p in tmp_path.iterdir()) == [path.name]


def test_a_file_that_is_touched_is_still_the_same(pairs: dict[str, tuple[Path, Path]], tmp_path: Path) -> None:
    """Through the cache, which knows the content."""
    path = tmp_path / "a.sqlite"
    put(pairs["nsys-sqlite"][0], path)
    (source,) = open_sources(path, wrap=cached)
    source.processes()
    path.touch()
    source.read("ops")
    path.chmod(0o600)
    source.check()
    source.read("calls")


def test_another_name_of_a_file_changes_nothing(pairs: dict[str, tuple[Path, Path]], tmp_path: Path) -> None:
    """`capture merge` gives it one, while somebody reads it without the cache."""
    path, other = tmp_path / "a.sqlite", tmp_path / "merged.sqlite"
    put(pairs["nsys-sqlite"][0], path)
    (source,) = open_sources(path)
    other.hardlink_to(path)
    source.read("ops")
    other.unlink()
    source.read("calls")
    other.hardlink_to(path)
    put_slowly(pairs["nsys-sqlite"][1], path)
    with pytest.raises(Changed):
        source.read("ops")


@pytest.mark.parametrize("wrap", [None, cached], ids=["read", "cached"])
@pytest.mark.slow
def test_a_race(
    wrap: Any, pairs: dict[str, tuple[Path, Path]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody replaces the file again and again, at any moment."""
    monkeypatch.setenv("STEPSCOPE_CACHE_DIR", str(tmp_path / "cache"))
    old, new = pairs["nsys-sqlite"]
    right = contents(old), contents(new)
    path = tmp_path / "a.sqlite"
    put(old, path)
    over = threading.Event()

    def replace_again() -> None:
        for n in range(10**6):
            put((new, old)[n % 2], path)
            if over.wait(0.013 + n % 7 / 100):
                return

    other = threading.Thread(target=replace_again)
    other.start()
    try:
        until, answers = time.monotonic() + 0.8, []
        while time.monotonic() < until or len(answers) < 5:
            answers.append(asked(path, wrap))
    finally:
        over.set()
        other.join()
    flush()
    assert all(got is None or any(same(got, whole) for whole in right) for got in answers)
    for file, whole in zip((old, new), right, strict=True):
        put(file, path)
        assert same(contents(path, wrap), whole)


def test_reports_refuse_it_whole(
    pairs: dict[str, tuple[Path, Path]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page whose sections are of two contents is no page, whatever else a section may lack."""
    path = tmp_path / "a.sqlite"
    put(pairs["nsys-sqlite"][0], path)
    profile = api.open(path, cache=False)

    def replaced(_: Any) -> Any:
        put(pairs["nsys-sqlite"][1], path)
        return profile.table("off_cpu")

    monkeypatch.setattr(overlap, "make", replaced)
    with pytest.raises(Changed):
        profile.report(tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()
