"""The cache: what comes out is what went in, or is read again."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from fake_source import FakeSource, Log, Open
from polars.testing import assert_frame_equal, assert_series_equal

from stepscope.errors import BadInput
from stepscope.model.source import Chunk, Source
from stepscope.store import CachedSource, Disk, cached, flush


def everything(source: Source) -> dict[str, object]:
    answers = {
        "processes": source.processes(),
        "tables": source.tables(),
        "core": source.read("ops"),
        "detail": source.read("ops", "detail"),
        "missing": source.read("calls"),
        "info": source.info,
        "notes": list(source.quality.notes),
    }
    flush()
    return answers


def assert_same(a: dict[str, object], b: dict[str, object]) -> None:
    assert a.keys() == b.keys()
    for key, left in a.items():
        right = b[key]
        if isinstance(left, pl.DataFrame) and isinstance(right, pl.DataFrame):
            assert_frame_equal(left, right)
        elif isinstance(left, Chunk) and isinstance(right, Chunk):
            assert_frame_equal(left.frame, right.frame)
            assert_series_equal(left.names, right.names)
        else:
            assert left == right


def entries(cache_dir: Path) -> list[Path]:
    return sorted((cache_dir / "tables").iterdir())


def test_a_warm_open_does_not_open_the_profile(reopen: Open, trace: Path, log: Log) -> None:
    plain = everything(FakeSource(trace, Log()))
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
    from stepscope.store import content

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
    from stepscope.store import content

    before = content.key(trace)
    monkeypatch.setattr(content, "_readers", lambda: "changed")
    assert content.key(trace) != before
    monkeypatch.undo()
    monkeypatch.setattr(content, "MODEL_VERSION", -1)
    assert content.key(trace) != before


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def cut_one_byte(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def zeros(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def zero_block(path: Path) -> None:
    data = bytearray(path.read_bytes())
    at = data.index(b'"meta"')
    data[at : at + 64] = bytes(64)
    path.write_bytes(data)


def foreign(path: Path) -> None:
    path.write_bytes(b"SQLite format 3\0" + random.Random(0).randbytes(4096))


def longer(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"more")


def delete(path: Path) -> None:
    path.unlink()


def directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES = [truncate, cut_one_byte, empty, zeros, zero_block, foreign, longer, delete, directory]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("part", ["source", "ops.core", "ops.detail"])
def test_damage_is_rebuilt(damage: object, part: str, reopen: Open, cache_dir: Path) -> None:
    whole = everything(reopen())
    (victim,) = [p for p in entries(cache_dir) if p.name.endswith(f".{part}.tbl")]
    assert callable(damage)
    damage(victim)
    assert_same(everything(reopen()), whole)
    assert_same(everything(reopen()), whole)


def test_every_flipped_bit_is_found(reopen: Open, cache_dir: Path, log: Log) -> None:
    whole = everything(reopen())
    (victim,) = [p for p in entries(cache_dir) if p.name.endswith(".ops.core.tbl")]
    good = victim.read_bytes()
    for at in range(0, len(good), 7):
        flipped = bytearray(good)
        flipped[at] ^= 1 << (at % 8)
        victim.write_bytes(flipped)
        before = log.opened
        assert_same(everything(reopen()), whole)
        assert log.opened == before + 1
        assert victim.read_bytes() == good


def test_files_swapped_between_tables_and_profiles(reopen: Open, trace: Path, cache_dir: Path) -> None:
    whole = everything(reopen())
    other = trace.with_name("other.txt")
    other.write_text("1 2 foreign\n")
    everything(reopen(other))
    mine, theirs = (
        {p.name.split(".", 1)[1]: p for p in entries(cache_dir) if p.name.startswith(k)} for k in keys(cache_dir)
    )
    for name in mine:
        a, b = mine[name].read_bytes(), theirs[name].read_bytes()
        mine[name].write_bytes(b)
        theirs[name].write_bytes(a)
    assert_same(everything(reopen()), whole)
    shutil.copy(mine["ops.detail.tbl"], mine["ops.core.tbl"])
    assert_same(everything(reopen()), whole)


def keys(cache_dir: Path) -> list[str]:
    return sorted({p.name[:32] for p in entries(cache_dir)})


def test_the_least_recently_used_entry_goes_first(reopen: Open, trace: Path, cache_dir: Path) -> None:
    key_of = {}
    for n in range(3):
        path = trace.with_name(f"{n}.txt")
        path.write_text(f"{n} 9 k{n}\n")
        source = reopen(path)
        everything(source)
        key_of[n] = source._key
    del source
    for age, n in enumerate([1, 2, 0]):  # 1 was used longest ago
        for p in entries(cache_dir):
            if p.name.startswith(key_of[n]):
                os.utime(p, (1000 + age, 1000 + age))
    size = sum(p.stat().st_size for p in entries(cache_dir))
    path = trace.with_name("new.txt")
    path.write_text("3 9 new\n")
    everything(reopen(path, max_bytes=size + 1000))
    left = keys(cache_dir)
    assert key_of[1] not in left
    assert key_of[0] in left
    assert sum(p.stat().st_size for p in entries(cache_dir)) <= size + 1000


def test_an_entry_in_use_is_not_thrown_out(reopen: Open, trace: Path, cache_dir: Path) -> None:
    used = reopen()
    everything(used)
    size = sum(p.stat().st_size for p in entries(cache_dir))
    other = trace.with_name("other.txt")
    other.write_text("1 2 x\n")
    everything(reopen(other, max_bytes=size + 10))
    assert keys(cache_dir) == [used._key]


def test_what_is_larger_than_the_bound_is_not_kept(reopen: Open, trace: Path, cache_dir: Path, log: Log) -> None:
    plain = everything(FakeSource(trace, Log()))
    assert_same(everything(reopen(max_bytes=10)), plain)
    assert entries(cache_dir) == []
    assert_same(everything(reopen(max_bytes=10)), plain)
    assert log.opened == 2


def test_files_of_others_in_the_folder_are_left_alone(reopen: Open, cache_dir: Path, trace: Path) -> None:
    folder = cache_dir / "tables"
    folder.mkdir(parents=True)
    precious = [folder / "thesis.tex", folder / ("0" * 32), folder / f"{'0' * 32}.tbl.bak"]
    for path in precious:
        path.write_text("mine")
        os.utime(path, (1, 1))
    for n in range(4):
        path = trace.with_name(f"{n}.txt")
        path.write_text(f"{n} 9 k{n}\n")
        everything(reopen(path, max_bytes=9000))
    assert all(p.read_text() == "mine" for p in precious)


def test_leftovers_of_dead_processes_go(reopen: Open, cache_dir: Path) -> None:
    folder = cache_dir / "tables"
    folder.mkdir(parents=True)
    old, young = (folder / f"{'a' * 32}.ops.core.tbl.{n}.tmp" for n in ("old", "young"))
    for path in (old, young):
        path.write_text("half")
    os.utime(old, (1, 1))
    everything(reopen())
    assert not old.exists()
    assert young.exists()


def test_a_full_disk_is_no_error(reopen: Open, trace: Path, cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from stepscope.store import container

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(container, "write", full)
    assert_same(everything(reopen()), everything(FakeSource(trace, Log())))
    assert entries(cache_dir) == []


@pytest.mark.parametrize("blocked", ["file", "readonly", "tables is a file"])
def test_a_folder_that_cannot_be_used(
    blocked: str, trace: Path, tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "blocked"
    if blocked == "file":
        folder.write_text("in the way")
        folder = folder / "below"
    else:
        folder.mkdir()
        if blocked == "readonly":
            folder.chmod(0o500)
        else:
            (folder / "tables").write_text("in the way")
    monkeypatch.setenv("STEPSCOPE_CACHE_DIR", str(folder))
    for _ in range(2):
        source = cached(trace, lambda: FakeSource(trace, log))
        assert_same(everything(source), everything(FakeSource(trace, Log())))
    if blocked == "readonly":
        folder.chmod(0o700)


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from stepscope.store import disk

    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("STEPSCOPE_CACHE_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert disk.default_dir() == tmp_path / ".cache" / "stepscope"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert disk.default_dir() == tmp_path / ".cache" / "stepscope"
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert disk.default_dir() == Path("/x/stepscope")
    monkeypatch.setenv("STEPSCOPE_CACHE_DIR", "~/own")
    assert disk.default_dir() == tmp_path / "own"
    monkeypatch.setenv("STEPSCOPE_CACHE_MAX_BYTES", "123")
    assert disk.default_max_bytes() == 123
    monkeypatch.setenv("STEPSCOPE_CACHE_MAX_BYTES", "lots")
    assert disk.default_max_bytes() == 8 << 30


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


def test_what_is_read_of_a_changed_file_is_not_kept(reopen: Open, trace: Path, cache_dir: Path) -> None:
    source = reopen()
    trace.write_text("0 1 other\n")
    source.read("ops")
    flush()
    assert entries(cache_dir) == []


WORKER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from fake_source import FakeSource, Log
from stepscope.store import CachedSource, Disk, flush
path, folder = Path(sys.argv[2]), Path(sys.argv[3])
for _ in range(15):
    store = Disk(folder, 20_000)
    store.usable()
    source = CachedSource(path, lambda: FakeSource(path, Log()), store)
    assert source.read("ops").names.to_list() == sys.argv[4].split(), source.read("ops").names
    source.read("ops", "detail")
    flush()
    for file in (folder / "tables").glob(source._key + "*"):  # the next round writes again
        file.unlink(missing_ok=True)
"""


def test_processes_at_once(trace: Path, cache_dir: Path) -> None:
    other = trace.with_name("other.txt")
    other.write_text("1 2 foreign\n")
    here = str(Path(__file__).parent)
    jobs = [
        subprocess.Popen([sys.executable, "-c", WORKER, here, str(p), str(cache_dir), names], stderr=subprocess.PIPE)
        for p, names in ((trace, "gemm nccl"), (trace, "gemm nccl"), (other, "foreign"))
    ]
    for job in jobs:
        _, errors = job.communicate(timeout=60)
        assert job.returncode == 0, errors.decode()


def test_the_cache_is_written_by_a_process_that_just_ends(trace: Path, cache_dir: Path, reopen: Open, log: Log) -> None:
    program = (
        "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[1]); from fake_source import *\n"
        "from stepscope.store import cached\n"
        "p = Path(sys.argv[2]); cached(p, lambda: FakeSource(p, Log())).read('ops')"
    )
    subprocess.run(
        [sys.executable, "-c", program, str(Path(__file__).parent), str(trace)],
        check=True,
        env={**os.environ, "STEPSCOPE_CACHE_DIR": str(cache_dir)},
    )
    reopen().read("ops")
    assert log.opened == 0


def test_a_source_that_fails_to_open_fails_at_once(trace: Path, cache_dir: Path) -> None:
    def broken() -> Source:
        raise BadInput("x: broken", "mend it")

    store = Disk(cache_dir)
    store.usable()
    with pytest.raises(BadInput):
        CachedSource(trace, broken, store)
