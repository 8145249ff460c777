"""The cache: what comes out is what went in, and only what is needed is read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from stored import Open, assert_same, entries, everything, text_source

from fake import Log
from stepscope.errors import BadInput, Changed
from stepscope.model.source import Source
from stepscope.store import CachedSource, Disk, content, flush


def test_a_warm_open_does_not_open_the_profile(reopen: Open, trace: Path, log: Log) -> None:
    plain = everything(text_source(trace))
    assert_same(everything(reopen()), plain)
    assert log.opened == 1
    assert_same(everything(reopen()), plain)
    assert log.opened == 1


def test_parts_are_read_once_and_only_when_asked_for(reopen: Open, log: Log) -> None:
    reopen().read("ops")
    flush()
    second = reopen()
    second.read("ops")
    assert log.read == ["ops.core"]
    second.read("ops", "detail")
    second.read("ops", "detail")
    assert log.read == ["ops.core", "ops.detail"]


def test_notes_belong_to_what_was_read(reopen: Open) -> None:
    everything(reopen())
    warm = reopen()
    assert warm.quality.notes == ["noted when opened", "noted with the processes"]
    warm.read("ops", "detail")
    assert warm.quality.notes[2:] == ["noted with detail"]


def test_a_renamed_file_is_a_hit_under_its_new_name(reopen: Open, trace: Path, log: Log) -> None:
    everything(reopen())
    moved = trace.rename(trace.with_name("rank7.txt"))
    assert reopen(moved).info.file == str(moved)
    assert log.opened == 1


def test_content_changed_with_same_size_and_date(reopen: Open, trace: Path) -> None:
    everything(reopen())
    before = trace.stat()
    trace.write_text(trace.read_text().replace("gemm", "conv"))
    os.utime(trace, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert trace.stat().st_size == before.st_size
    assert reopen().read("ops").names.to_list() == ["conv", "nccl"]


def test_a_directory_is_its_names_and_contents(cache_dir: Path, tmp_path: Path) -> None:

    folder = tmp_path / "d"
    folder.mkdir()
    (folder / "a").write_text("x")
    (folder / "b").write_text("y")
    first = content.key(folder)
    (folder / "b").rename(folder / "c")
    second = content.key(folder)
    (folder / "a").write_text("xy")
    (folder / "c").write_text("")
    assert len({first, second, content.key(folder)}) == 3


def test_a_mended_reader_does_not_meet_old_tables(monkeypatch: pytest.MonkeyPatch, trace: Path) -> None:

    before = content.key(trace)
    monkeypatch.setattr(content, "_readers", lambda: "changed")
    assert content.key(trace) != before
    monkeypatch.undo()
    monkeypatch.setattr(content, "MODEL_VERSION", -1)
    assert content.key(trace) != before


def test_nothing_is_written_beside_the_trace(reopen: Open, trace: Path) -> None:
    before = {p: p.stat().st_mtime_ns for p in trace.parent.iterdir()}
    everything(reopen())
    everything(reopen())
    assert {p: p.stat().st_mtime_ns for p in trace.parent.iterdir()} == before


def test_a_file_that_changes_while_open(reopen: Open, trace: Path, cache_dir: Path) -> None:
    reopen().read("ops")
    flush()
    warm = reopen()
    trace.touch()
    warm.read("ops", "detail")  # touched, but the same
    flush()
    warm = reopen()
    for p in entries(cache_dir):
        p.unlink()
    trace.write_text("0 1 other\n")
    with pytest.raises(BadInput, match="changed while"):
        warm.read("ops", "detail")


def test_what_is_read_of_a_changed_file_is_neither_shown_nor_kept(reopen: Open, trace: Path, cache_dir: Path) -> None:
    source = reopen()
    trace.write_text("0 1 other\n")
    with pytest.raises(Changed, match="ask again"):
        source.read("ops")
    flush()
    assert entries(cache_dir) == []


def test_a_source_that_fails_to_open_fails_at_once(trace: Path, cache_dir: Path) -> None:
    def broken() -> Source:
        raise BadInput("x: broken", "mend it")

    store = Disk(cache_dir)
    store.usable()
    with pytest.raises(BadInput):
        CachedSource(trace, broken, store)
