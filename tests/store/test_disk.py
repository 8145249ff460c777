"""The folder of the cache: bounded, shared, and never in the way."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from stored import Open, assert_same, entries, everything, keys, text_source

from fake import Log
from stepscope.files.whole import lock
from stepscope.store import cached


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
    plain = everything(text_source(trace))
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
    old, young, left, written = (folder / f"{'a' * 32}.ops.core.tbl.{n}.tmp" for n in ("old", "new", "left", "locked"))
    for path in (old, young, left, written):
        path.write_text("half")
    now = time.time()
    os.utime(old, (1, 1))
    os.utime(left, (now - 5, now - 5))
    os.utime(written, (now - 5, now - 5))
    with written.open("rb") as file:
        assert lock(file.fileno())
        everything(reopen())
    assert [p.exists() for p in (old, young, left, written)] == [False, True, False, True]


def test_a_full_disk_is_no_error(reopen: Open, trace: Path, cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from stepscope.store import container

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(container, "write", full)
    assert_same(everything(reopen()), everything(text_source(trace)))
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
        source = cached(trace, lambda: text_source(trace, log))
        assert_same(everything(source), everything(text_source(trace)))
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


#: Where this test's helpers lie, for programs of their own.
HERE = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
WORKER = f"""
import sys
from pathlib import Path
sys.path[:0] = {HERE}
from stored import text_source
from stepscope.store import CachedSource, Disk, flush
path, folder = Path(sys.argv[1]), Path(sys.argv[2])
for _ in range(15):
    store = Disk(folder, 20_000)
    store.usable()
    source = CachedSource(path, lambda: text_source(path), store)
    assert source.read("ops").names.to_list() == sys.argv[3].split(), source.read("ops").names
    source.read("ops", "detail")
    flush()
    for file in (folder / "tables").glob(source._key + "*"):  # the next round writes again
        file.unlink(missing_ok=True)
"""


@pytest.mark.slow
def test_processes_at_once(trace: Path, cache_dir: Path) -> None:
    other = trace.with_name("other.txt")
    other.write_text("1 2 foreign\n")
    jobs = [
        subprocess.Popen([sys.executable, "-c", WORKER, str(p), str(cache_dir), names], stderr=subprocess.PIPE)
        for p, names in ((trace, "gemm nccl"), (trace, "gemm nccl"), (other, "foreign"))
    ]
    for job in jobs:
        _, errors = job.communicate(timeout=60)
        assert job.returncode == 0, errors.decode()


def test_the_cache_is_written_by_a_process_that_just_ends(trace: Path, cache_dir: Path, reopen: Open, log: Log) -> None:
    program = (
        f"import sys; from pathlib import Path; sys.path[:0] = {HERE}; from stored import *\n"
        "from stepscope.store import cached\n"
        "p = Path(sys.argv[1]); cached(p, lambda: text_source(p)).read('ops')"
    )
    subprocess.run(
        [sys.executable, "-c", program, str(trace)],
        check=True,
        env={**os.environ, "STEPSCOPE_CACHE_DIR": str(cache_dir)},
    )
    reopen().read("ops")
    assert log.opened == 0
