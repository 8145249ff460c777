"""Files that are not what they should be: one line that names the file and the fix; and nothing written, ever."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from nsys_files import KERNEL, RUNTIME, call, kernel, strings, write

from stepscope.errors import BadInput
from stepscope.sources.nsys import is_parquet_dir, is_sqlite, open_parquet, open_sqlite


def refusal(path: Path) -> str:
    with pytest.raises(BadInput) as caught:
        source = open_parquet(path) if path.is_dir() else open_sqlite(path)
        source.processes()
        for table in source.tables():
            source.read(table)
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    return message


def big(path: Path) -> Path:
    rows = [kernel(at, at + 1) for at in range(20_000)]
    return write(path, {"StringIds": strings("gemm"), KERNEL: rows, RUNTIME: [call(1, 2)]})


def test_no_file(tmp_path: Path) -> None:
    assert "cannot be read" in refusal(tmp_path / "none.sqlite")
    assert not is_sqlite(tmp_path / "none.sqlite")


def test_an_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    path.touch()
    assert "empty" in refusal(path)
    assert not is_sqlite(path)


def test_not_a_database(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    path.write_text("start,end\n1,2\n")
    assert "not an SQLite database" in refusal(path)


def test_a_header_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    path.write_bytes(b"SQLite format 3\0")
    assert "not an SQLite database" in refusal(path)


def test_another_database(tmp_path: Path) -> None:
    path = write(tmp_path / "a.sqlite", {"bookmarks": [{"url": "x"}]})
    assert "not an nsys export" in refusal(path)


def test_a_database_without_tables(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 1")
    assert "not an nsys export" in refusal(path)


def test_an_export_of_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"CREATE TABLE {KERNEL} (start, end, globalPid)")
    assert "holds no GPU activity" in refusal(path)


def test_a_truncated_export(tmp_path: Path) -> None:
    path = big(tmp_path / "a.sqlite")
    path.write_bytes(path.read_bytes()[:-5000])
    assert "cut short" in refusal(path)


def test_a_damaged_export(tmp_path: Path) -> None:
    path = big(tmp_path / "a.sqlite")
    data = bytearray(path.read_bytes())
    for at in range(3 * 4096, len(data), 4096):
        data[at : at + 4096] = b"\xff" * 4096
    path.write_bytes(data)
    assert "damaged" in refusal(path)


def test_a_damaged_export_found_while_reading(tmp_path: Path) -> None:
    path = big(tmp_path / "a.sqlite")
    source = open_sqlite(path)
    source.processes()
    data = bytearray(path.read_bytes())
    middle = len(data) // 4096 // 2 * 4096
    data[middle : middle + 8 * 4096] = b"\xff" * 8 * 4096
    path.write_bytes(data)
    with pytest.raises(BadInput, match="damaged"):
        source.read("ops")


def test_a_directory_of_nothing(tmp_path: Path) -> None:
    assert "not an nsys export" in refusal(tmp_path)
    assert not is_parquet_dir(tmp_path)


def test_a_directory_of_other_parquet_files(tmp_path: Path) -> None:
    import polars as pl

    pl.DataFrame({"x": [1]}).write_parquet(tmp_path / "mine.parquet")
    assert "not an nsys export" in refusal(tmp_path)


def test_a_damaged_parquet_file(tmp_path: Path, shared: Path) -> None:
    directory = tmp_path / "export_pqtdir"
    shutil.copytree(shared / "h200/payloads/overlapped_pqtdir", directory)
    assert is_parquet_dir(directory)
    file = directory / "CUPTI_ACTIVITY_KIND_RUNTIME.parquet"
    file.chmod(0o644)
    file.write_bytes(file.read_bytes()[:-1000])
    assert "CUPTI_ACTIVITY_KIND_RUNTIME.parquet: cannot be read" in refusal(directory)


@pytest.mark.parametrize("wal", [False, True])
def test_nothing_is_written_next_to_the_file(tmp_path: Path, wal: bool) -> None:
    path = write(tmp_path / "a b?#%.sqlite", {"StringIds": strings("gemm"), KERNEL: [kernel(1, 2)]}, wal=wal)
    before = (path.read_bytes(), path.stat().st_mtime_ns, sorted(p.name for p in tmp_path.iterdir()))
    assert (path.read_bytes()[18] == 2) == wal
    source = open_sqlite(path)
    assert source.processes().height == 1
    assert source.read("ops").frame.height == 1
    assert (path.read_bytes(), path.stat().st_mtime_ns, sorted(p.name for p in tmp_path.iterdir())) == before


def test_changes_in_a_log_beside_the_file_are_not_read_but_told(tmp_path: Path) -> None:
    path = write(tmp_path / "a.sqlite", {KERNEL: [kernel(1, 2)]}, wal=True)
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"INSERT INTO {KERNEL} SELECT * FROM {KERNEL}")
        db.commit()
        source = open_sqlite(path)
        assert source.read("ops").frame.height == 1
        assert source.quality.notes[0] == "a.sqlite-wal holds changes that were never merged into the file: not read"


def test_ops_without_names_are_said(tmp_path):
    """Without the string table nothing tells communication from compute: never silently."""
    path = tmp_path / "a.sqlite"
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, streamId, globalPid, demangledName)")
        db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1, 2, 0, 7, 16777216, 5)")
        db.commit()
    source = open_sqlite(path)
    source.read("ops")
    assert source.quality.notes == ["1 GPU ops have no name in StringIds: they count as compute, whatever they are"]


def test_a_kernel_table_that_no_nsys_wrote_is_refused_in_one_line(tmp_path):
    path = tmp_path / "a.sqlite"
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, streamId, globalPid, demangledName)")
        db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ('yesterday', 2, 0, 7, 16777216, 5)")
        db.commit()
    with pytest.raises(BadInput, match=r"a\.sqlite: its ops cannot be read .*export the report again"):
        open_sqlite(path).read("ops")
