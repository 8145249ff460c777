"""What a user may name, and what is refused: one line that names the file and the fix."""

from __future__ import annotations

import gzip
import json
import os
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from stepscope.errors import BadInput
from stepscope.model.source import Source
from stepscope.sources.detect import kind_of
from stepscope.sources.open import find_profiles, open_sources

TRACE = json.dumps({"schemaVersion": 1, "traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 2}]})


def sqlite(path: Path) -> Path:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
    connection.close()
    return path


def kineto(path: Path) -> Path:
    path.write_bytes(gzip.compress(TRACE.encode()) if path.suffix == ".gz" else TRACE.encode())
    return path


def report(path: Path) -> Path:
    path.write_bytes(b"NVIDIA Tegra Profiler Report 1.\n")
    return path


def parquet(path: Path) -> Path:
    path.mkdir()
    pl.DataFrame({"id": [0], "value": ["x"]}).write_parquet(path / "StringIds.parquet")
    return path


def found(*paths: str | Path) -> list[str]:
    return [path.name for path, _ in find_profiles(paths)]


def refused(*paths: str | Path) -> str:
    with pytest.raises(BadInput) as caught:
        find_profiles(paths)
    text = str(caught.value)
    assert "\n" not in text
    assert caught.value.hint
    return text


# -- what is found ---------------------------------------------------------------------------------------------------


def test_kinds_are_told_by_content_not_by_name(tmp_path: Path) -> None:
    assert kind_of(sqlite(tmp_path / "trace.json")) == "nsys-sqlite"
    assert kind_of(kineto(tmp_path / "a.sqlite")) == "kineto"
    assert kind_of(report(tmp_path / "b.txt")) == "nsys-rep"
    assert kind_of(parquet(tmp_path / "c.json.gz")) == "nsys-parquet"
    plain_name = tmp_path / "packed.json"
    plain_name.write_bytes(gzip.compress(b"\xef\xbb\xbf \n" + TRACE.encode()))
    assert kind_of(plain_name) == "kineto"


@pytest.mark.parametrize("head", ['{"data":["[Unknown]","[kernel.kallsyms]"]}\n{"Type":80}\n', 'data: "[Unknown]"\n'])
def test_events_that_nsys_exports_are_named_as_what_they_are(tmp_path: Path, head: str) -> None:
    """The first bytes of what nsys 2023.4.4 writes with `--type json` and `--type text`."""
    file = tmp_path / "run.json"
    file.write_text(head)
    with pytest.raises(BadInput, match="nsys export of serialized events") as caught:
        open_sources([file])
    assert "--type sqlite" in caught.value.hint


def test_several_files_come_in_natural_order_however_named(tmp_path: Path) -> None:
    names = [f"rank{n}.sqlite" for n in (0, 1, 2, 10)]
    for name in names:
        sqlite(tmp_path / name)
    assert found(*(tmp_path / n for n in sorted(names))) == names
    assert found(tmp_path) == names
    assert found(str(tmp_path / "*.sqlite")) == names
    assert found(str(tmp_path / "rank1*.sqlite"), tmp_path / "rank0.sqlite") == ["rank0.sqlite", *names[1::2]]
    assert found(str(tmp_path / "**" / "rank2.sqlite")) == ["rank2.sqlite"]


def test_numbers_in_folders_count_too(tmp_path: Path) -> None:
    for node in ("node2", "node10"):
        (tmp_path / node).mkdir()
        sqlite(tmp_path / node / "x.sqlite")
    assert [p.parent.name for p, _ in find_profiles([str(tmp_path / "*" / "x.sqlite")])] == ["node2", "node10"]


def test_a_name_with_brackets_is_a_name_first(tmp_path: Path) -> None:
    sqlite(tmp_path / "run[1].sqlite")
    sqlite(tmp_path / "run1.sqlite")
    assert found(tmp_path / "run[1].sqlite") == ["run[1].sqlite"]
    assert found(tmp_path / "run[12].sqlite") == ["run1.sqlite"]


def test_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    sqlite(tmp_path / "a.sqlite")
    assert found("~/a.sqlite") == ["a.sqlite"]
    assert found("~/*.sqlite") == ["a.sqlite"]


def test_other_files_of_a_directory_are_ignored(tmp_path: Path) -> None:
    sqlite(tmp_path / "a.sqlite")
    (tmp_path / "README.md").write_text("notes")
    (tmp_path / "truth.json").write_text('{"overlap": []}')
    (tmp_path / "empty.log").write_text("")
    (tmp_path / ".hidden.sqlite").write_text("")
    (tmp_path / "a.sqlite-journal").write_text("")
    (tmp_path / "plots").mkdir()
    assert found(tmp_path) == ["a.sqlite"]


def test_of_one_report_the_quickest_export_is_taken(tmp_path: Path) -> None:
    report(tmp_path / "a.nsys-rep")
    sqlite(tmp_path / "a.sqlite")
    parquet(tmp_path / "a_pqtdir")
    report(tmp_path / "b.nsys-rep")
    parquet(tmp_path / "b_pqtdir")
    report(tmp_path / "c.nsys-rep")
    assert found(tmp_path) == ["a.sqlite", "b_pqtdir", "c.nsys-rep"]


def test_a_parquet_export_is_one_profile(tmp_path: Path) -> None:
    assert found(parquet(tmp_path / "p")) == ["p"]


def test_a_link_is_the_file_it_points_to(tmp_path: Path) -> None:
    target = sqlite(tmp_path / "a.sqlite")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "rank0").symlink_to(target)
    assert found(tmp_path / "links") == ["rank0"]


# -- what is refused -------------------------------------------------------------------------------------------------


def test_nothing_given() -> None:
    assert "no profile given" in refused()


def test_missing_file(tmp_path: Path) -> None:
    assert "nope.sqlite: no such file" in refused(tmp_path / "nope.sqlite")


@pytest.mark.parametrize("url", ["s3://bucket/run/rank0.sqlite", "gs://bucket/*.json", Path("https://host/a.sqlite")])
def test_urls(url: str | Path) -> None:
    assert re.search("(s3|gs|https):/.*: a URL; only files are read; (copy|download) it first", refused(url))


def test_no_match(tmp_path: Path) -> None:
    assert "*.sqlite: nothing matches" in refused(str(tmp_path / "*.sqlite"))


def test_dangling_link(tmp_path: Path) -> None:
    (tmp_path / "a.sqlite").symlink_to(tmp_path / "gone.sqlite")
    assert "gone.sqlite, which is missing" in refused(tmp_path / "a.sqlite")
    assert "a.sqlite" in refused(tmp_path)


def test_unusable_paths() -> None:
    refused("a\0b")
    refused("x" * 5000)


@pytest.mark.parametrize("name", ["a.sqlite", "a.json", "a.nsys-rep", "anything"])
def test_empty_file(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"")
    assert f"{name}: the file is empty" in refused(tmp_path / name)


def test_broken_files_among_good_ones_are_not_ignored(tmp_path: Path) -> None:
    sqlite(tmp_path / "rank0.sqlite")
    (tmp_path / "rank1.sqlite").write_bytes(b"")
    assert "rank1.sqlite: the file is empty" in refused(tmp_path)
    (tmp_path / "rank1.sqlite").write_bytes(b"\0" * 100)
    assert "rank1.sqlite: not a profile" in refused(tmp_path)


def test_directories_of_nothing(tmp_path: Path) -> None:
    assert "no profile in this directory" in refused(tmp_path)
    (tmp_path / "thesis.tex").write_text("unrelated")
    (tmp_path / "package.json").write_text('{"name": "x"}')
    assert "no profile in this directory" in refused(tmp_path)


@pytest.mark.parametrize("link", [None, "symlink_to", "hardlink_to"])
def test_the_same_file_twice(tmp_path: Path, link: str | None) -> None:
    path = sqlite(tmp_path / "a.sqlite")
    other = path
    if link:
        other = tmp_path / "b.sqlite"
        getattr(other, link)(path)
    assert ("same file" if link else "given twice") in refused(path, other)
    assert "a.sqlite" in refused(path, str(tmp_path / "*.sqlite"))


def test_two_profilers_in_one_directory(tmp_path: Path) -> None:
    """All of them are found; that they are two captures of one job, api tells (tests/api/test_two_captures.py)."""
    flat, below = tmp_path / "flat", tmp_path / "below"
    for folder in (flat, below / "nsys", below / "torch", below / "other"):
        folder.mkdir(parents=True)
    for n in range(2):
        kineto(flat / f"rank{n}.pt.trace.json.gz")
        sqlite(flat / f"node{n}.sqlite")
        kineto(below / "torch" / f"rank{n}.pt.trace.json.gz")
        sqlite(below / "nsys" / f"node{n}.sqlite")
        sqlite(below / "other" / f"node{n}.sqlite")
    assert len(found(flat)) == 4
    made = {path.parent.name for path, _ in find_profiles([below])}
    assert made == {"nsys", "torch"}  # by capture run --backend both
    assert len(found(str(flat / "*.sqlite"))) == 2


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"PAR1....", "single parquet file"),
        (b"PK\3\4", "zip"),
        (b"\x28\xb5\x2f\xfd", "zstd"),
        (b"\x80\5\x95", "pickle"),
        (gzip.compress(b"SQLite format 3\0" + bytes(100), mtime=0), "gzip-compressed SQLite"),
        (gzip.compress(b"a,b\n1,2\n", mtime=0), "not a profile"),
        (b"\x1f\x8b broken", "not a profile"),
        (b"a,b\n1,2\n", "not a profile"),
    ],
)
def test_what_it_is_instead(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "x.dat"
    path.write_bytes(content)
    assert said in refused(path)


def test_a_report_without_its_header(tmp_path: Path) -> None:
    (tmp_path / "a.nsys-rep").write_bytes(b"\0" * 100)
    assert "not a whole nsys report" in refused(tmp_path / "a.nsys-rep")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_no_permission(tmp_path: Path) -> None:
    path = sqlite(tmp_path / "a.sqlite")
    path.chmod(0)
    assert "a.sqlite: no permission" in refused(path)
    assert "a.sqlite: no permission" in refused(tmp_path)
    path.chmod(0o600)
    tmp_path.chmod(0)
    try:
        assert refused(tmp_path)
    finally:
        tmp_path.chmod(0o700)


def test_no_permission_as_any_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = sqlite(tmp_path / "a.sqlite")

    def denied(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", denied)
    assert "a.sqlite: no permission" in refused(path)
    assert "a.sqlite: no permission" in refused(tmp_path)


def test_special_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "not a regular file" in refused(tmp_path / "pipe")
    refused(tmp_path)  # and does not wait for the pipe


# -- opening ---------------------------------------------------------------------------------------------------------


def test_the_wrapper_decides_whether_a_file_is_opened(tmp_path: Path) -> None:
    paths = [sqlite(tmp_path / f"{n}.sqlite") for n in range(5)]
    seen = []

    def wrap(path: Path, opener: Callable[[], Source]) -> Source:
        seen.append(path)
        return path  # type: ignore[return-value]

    assert open_sources(paths, wrap=wrap) == paths  # type: ignore[comparison-overlap]
    assert sorted(seen) == paths


def test_sqlite_that_is_no_export_is_refused_and_untouched(tmp_path: Path) -> None:
    path = tmp_path / "shop.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE orders (id INTEGER)")
    connection.close()
    before = (sorted(tmp_path.iterdir()), path.read_bytes(), path.stat().st_mtime_ns)
    with pytest.raises(BadInput, match=r"shop\.sqlite"):
        open_sources(tmp_path)[0].processes()
    assert (sorted(tmp_path.iterdir()), path.read_bytes(), path.stat().st_mtime_ns) == before


def test_one_bad_file_of_many_is_named(tmp_path: Path) -> None:
    for n in range(3):
        sqlite(tmp_path / f"rank{n}.sqlite")

    def wrap(path: Path, opener: Callable[[], Source]) -> Source:
        if path.name == "rank1.sqlite":
            raise BadInput(f"{path}: broken", "mend it")
        return path  # type: ignore[return-value]

    with pytest.raises(BadInput, match="rank1"):
        open_sources(tmp_path, wrap=wrap)


def test_opened_sources_are_the_files(tmp_path: Path) -> None:
    kineto(tmp_path / "rank1.json")
    kineto(tmp_path / "rank0.json.gz")
    sources = open_sources(str(tmp_path))
    assert [s.path.name for s in sources] == ["rank0.json.gz", "rank1.json"]
    assert [s.info.format for s in sources] == ["kineto", "kineto"]


def test_a_path_that_is_nearly_right_is_named(tmp_path):
    (tmp_path / "node0.sqlite").touch()
    with pytest.raises(BadInput, match=r"no such file; did you mean .*/node0\.sqlite\?"):
        find_profiles([tmp_path / "node.sqlite"])
    with pytest.raises(BadInput, match="no such file; check the path"):
        find_profiles([tmp_path / "other.json"])
