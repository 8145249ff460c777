"""Files that are not what they should be: one line that names the file and the fix; and nothing written, ever."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from nsys_files import KERNEL, RUNTIME, call, kernel, strings, write

from stepscope.errors import BadInput
from stepscope.model.profile import Profile
from stepscope.sources.detect import is_parquet_export
from stepscope.sources.nsys import is_sqlite, open_parquet, open_sqlite
from stepscope.sources.open import open_sources


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
    assert not is_parquet_export(tmp_path)


def test_a_directory_of_other_parquet_files(tmp_path: Path) -> None:
    import polars as pl

    pl.DataFrame({"x": [1]}).write_parquet(tmp_path / "mine.parquet")
    assert "not an nsys export" in refusal(tmp_path)


def test_a_damaged_parquet_file(tmp_path: Path, shared: Path) -> None:
    directory = tmp_path / "export_pqtdir"
    shutil.copytree(shared / "h200/payloads/overlapped_pqtdir", directory)
    assert is_parquet_export(directory)
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


def one_kernel(path: Path, *values: object) -> Path:
    """start, end, device, stream, process and name of a single kernel, as they are given."""
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"CREATE TABLE {KERNEL} (start, end, deviceId, streamId, globalPid, demangledName)")
        db.execute(f"INSERT INTO {KERNEL} VALUES (?, ?, ?, ?, ?, ?)", values)
        db.commit()
    return path


def test_ops_without_names_are_said(tmp_path: Path) -> None:
    """Without the string table nothing tells communication from compute: never silently."""
    profile = Profile(open_sources(one_kernel(tmp_path / "a.sqlite", 1, 2, 0, 7, 16777216, 5)))
    ops = profile.ops
    assert profile.names.gather(ops["name"]).to_list() == ["(no name)"]
    assert "ops: 1 row without name: treated as (no name), and counted as compute" in profile.notes


def test_a_view_in_place_of_a_table_is_refused(tmp_path: Path) -> None:
    """It can be endless, as this one is; a view of another name is nobody's business."""
    path = one_kernel(tmp_path / "a.sqlite", 1, 2, 0, 7, 16777216, 5)
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE VIEW mine AS SELECT 1")
        Profile(open_sources(path)).table("ops")
        endless = "WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n) SELECT id, 'x' AS value FROM n"
        db.execute(f"CREATE VIEW StringIds AS {endless}")
    assert "a.sqlite: StringIds is a view, not a table of an export; export the report again" in refusal(path)


def test_a_kernel_table_that_no_nsys_wrote_is_refused_in_one_line(tmp_path: Path) -> None:
    path = one_kernel(tmp_path / "a.sqlite", "yesterday", 2, 0, 7, 16777216, 5)
    with pytest.raises(BadInput, match=r"a\.sqlite: ops: none of 1 rows is usable \(rows without a time\); export"):
        Profile(open_sources(path)).table("ops")


def test_values_of_another_type_are_unknown_and_counted(tmp_path: Path) -> None:
    rows = [kernel(at, at + 5) for at in (10, 20, 30, 40, 50)]
    rows[1]["start"], rows[2]["streamId"], rows[3]["start"], rows[4]["deviceId"] = "20", b"7", 40.0, 0.5
    path = write(tmp_path / "a.sqlite", {"StringIds": strings("gemm"), KERNEL: rows})
    profile = Profile(open_sources(path))
    assert profile.ops.select("start_ns", "stream", "device").rows() == [
        (10, 7, 0),
        (30, -1, 0),
        (40, 7, 0),  # a whole number, however it is stored
        (50, 7, 0),
    ]
    assert set(profile.notes) >= {
        f"{KERNEL}.start: 1 value is not of its type: treated as unknown",
        f"{KERNEL}.streamId: 1 value is not of its type: treated as unknown",
        f"{KERNEL}.deviceId: 1 value is not of its type: treated as unknown",
        "ops: left out 1 row without a time",
        "ops: 1 row without device: treated as 0",
    }


def test_a_missing_column_of_times_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a.sqlite", {KERNEL: [{"start": 1, "globalPid": 16777216}]})
    assert f"{KERNEL} has no column end" in refusal(path)
