"""What is written is there whole, or not at all: on a full disk, after a failure, and after a process was killed."""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from marks import slow_unless
from stepscope.cli.main import run
from stepscope.errors import BadInput
from stepscope.files import whole
from stepscope.simulate.job.scenario import Scenario
from stepscope.simulate.run import simulate_to

#: Bytes after which a file cannot grow.
LIMITS = (0, 1, 3_000, 40_000)
CANNOT = r"cannot write \((File too large|database or disk is full|disk I/O error)\)"
JOB = ("--schedule", "1f1b", "--pp", "2", "--ep", "1", "--layers", "2", "--micro-batches", "2", "--steps", "3")


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("job")
    simulate_to(Scenario(schedule="1f1b", pp=2, ep=1, layers=2, micro_batches=2, steps=3), folder, ("nsys", "kineto"))
    return folder / "node0.sqlite"


#: By name: the arguments for a profile and a place, and the names of what they write.
WRITERS: dict[str, Callable[[Path, Path], list[str]]] = {
    "answer": lambda trace, out: ["kernels", f"{trace}", "-o", f"{out}/a.json"],
    "parquet": lambda trace, out: ["timeline", f"{trace}", "-o", f"{out}/a.parquet"],
    "plan": lambda trace, out: ["capture", "plan", "--model", "qwen3-30b-a3b", "-o", f"{out}/plan.json"],
    "compare": lambda trace, out: ["compare", f"{trace}", "--to", f"{trace}", "-o", f"{out}/a.csv"],
    "report": lambda trace, out: ["report", f"{trace}", "-o", f"{out}/a.html"],
    "stats": lambda trace, out: ["stats", f"{trace}", "-r", "cuda_gpu_trace", "-f", "csv", "-o", f"{out}/a"],
    "recipe": lambda trace, out: ["recipe", "cuda_gpu_kern_sum", f"{trace}", "-o", f"{out}/a"],
    "save": lambda trace, out: ["gate", f"{trace}", "--save", f"{out}/b.json"],
    "junit": lambda trace, out: [
        "gate",
        f"{trace}",
        "--to",
        f"{trace}",
        "--allow-inconclusive",
        "--junit",
        f"{out}/j.xml",
    ],
    "flame": lambda trace, out: ["nvtx", f"{trace}", "--flame", f"{out}/flame.txt"],
    "perfetto": lambda trace, out: ["export", f"{trace}", "-o", f"{out}/a.pftrace", "--no-findings"],
    "chrome": lambda trace, out: ["export", f"{trace}", "-o", f"{out}/a.json.gz", "--no-findings"],
    "tables": lambda trace, out: ["export", f"{trace}", "-o", f"{out}/a.parquet"],
    "simulate": lambda trace, out: ["simulate", *JOB, "--write", "nsys,kineto", "-o", f"{out}/job"],
    "skills": lambda trace, out: ["skill", "install", "--to", f"{out}/skills"],
}


def written(folder: Path) -> dict[str, bytes]:
    """All files of a folder, hidden ones too, and folders with an end of their own."""
    found = {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}
    return found | {f"{p.relative_to(folder)}/": b"" for p in folder.rglob("*") if p.is_dir()}


@contextmanager
def no_larger(bytes: int) -> Iterator[None]:
    """Every file that grows beyond this cannot be written: for all libraries, at the same byte each time."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize(
    "name", slow_unless(lambda name: name not in ("report", "perfetto", "compare", "junit", "chrome"), WRITERS)
)
def test_a_write_that_fails_leaves_nothing(
    name: str, trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = written(trace.parent)
    arguments = WRITERS[name](trace, tmp_path)
    assert run(arguments) == 0, capsys.readouterr().err
    right = written(tmp_path)
    assert right
    failed = 0
    for limit in LIMITS:
        out = tmp_path / str(limit)
        out.mkdir()
        capsys.readouterr()
        with no_larger(limit):
            status = run(WRITERS[name](trace, out))
        said = capsys.readouterr().err.strip()
        failed += status != 0
        assert status in (0, 2)
        if status == 0:
            assert written(out).keys() == right.keys()
        elif name == "skills":  # one by one, each whole
            assert written(out).items() <= right.items()
        else:
            assert written(out) == {}
        if status == 2:
            assert re.search(
                r"cannot write \((File too large|database or disk is full|disk I/O error)\)", said.splitlines()[-1]
            )
            assert "this is a bug" not in said
    assert failed
    assert written(trace.parent) == before


@pytest.mark.parametrize(
    "name", slow_unless(("answer", "save").__contains__, ["answer", "report", "save", "perfetto", "tables"])
)
def test_what_was_there_stays(name: str, trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = WRITERS[name](trace, tmp_path)
    assert run(arguments) == 0
    before = written(tmp_path)
    with no_larger(10):
        assert run(arguments) == 2
    assert written(tmp_path) == before
    assert run(arguments) == 0
    assert written(tmp_path).keys() == before.keys()


def test_recipes_and_jobs_stay_as_they_were(trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In a folder that holds other things, too."""
    for name, more in (("recipe", ["--force"]), ("simulate", [])):
        arguments = [*WRITERS[name](trace, tmp_path), *more]
        assert run(arguments) == 0
        place = next(p for p in tmp_path.iterdir() if p.is_dir())
        (place / "mine.txt").write_text("mine")
        before = written(tmp_path)
        with no_larger(10):
            assert run(arguments) == 2
        assert written(tmp_path) == before
        assert run(arguments) == 0
        assert written(tmp_path) == before
        for file in place.iterdir():
            file.unlink()
        place.rmdir()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48k", "none", str(folder)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("nothing can be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk(small_disk: Path, trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("report", "recipe", "perfetto", "simulate", "tables"):
        capsys.readouterr()
        (small_disk / "filling").write_bytes(b"x" * 40_000)
        status = run(WRITERS[name](trace, small_disk))
        said = capsys.readouterr().err
        assert status == 2
        assert "cannot write (" in said
        assert "free some space" in said
        assert sorted(written(small_disk)) == ["filling"]


# -- the owner ---------------------------------------------------------------------------------------------------------


def test_what_is_built_is_not_there_before_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    with whole.building(path) as beside:
        beside.write_text("new")
        assert not path.exists()
    assert written(tmp_path) == {"a.txt": b"new"}
    with pytest.raises(KeyboardInterrupt), whole.building(path) as beside:
        beside.write_text("newer")
        raise KeyboardInterrupt
    assert written(tmp_path) == {"a.txt": b"new"}


def test_remains_of_the_dead_go_and_those_of_the_living_stay(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    program = (
        "import sys, time, pathlib; from stepscope.files import whole\n"
        f"with whole.building(pathlib.Path({str(path)!r})) as beside:\n"
        "    beside.write_text('other'); print('there', flush=True); time.sleep(60)\n"
    )
    other = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == b"there\n"
        whole.write(path, b"mine")
        assert len(list(tmp_path.iterdir())) == 2
    finally:
        other.send_signal(signal.SIGKILL)
        other.communicate()
    assert len(list(tmp_path.iterdir())) == 2
    whole.write(path, b"mine again")
    assert written(tmp_path) == {"a.txt": b"mine again"}


@pytest.mark.filterwarnings("ignore")  # a file that was just opened is closed by nobody in particular
@pytest.mark.skipif(
    signal.getsignal(signal.SIGINT) is not signal.default_int_handler, reason="started where Ctrl-C is ignored"
)
def test_a_signal_at_any_line_leaves_nothing(tmp_path: Path) -> None:
    """Ctrl-C between any two lines of the owner's code."""
    lines = 0

    def at(number: int) -> bool:
        """Interrupt when so many lines have run; whether there were as many."""
        nonlocal lines
        lines = 0

        def trace(frame: FrameType, event: str, _: object) -> Any:
            nonlocal lines
            if not frame.f_code.co_filename.endswith(("files/whole.py", "files/signals.py")):
                return None
            if event == "line":
                lines += 1
                if lines == number:
                    signal.raise_signal(signal.SIGINT)
            return trace

        sys.settrace(trace)
        try:
            whole.write(tmp_path / "a.txt", b"new")
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(None)
        return lines >= number

    number = 1
    while at(number):
        assert [p.name for p in tmp_path.iterdir()] in ([], ["a.txt"]), number
        number += 1
    assert number > 40


def test_writers_of_one_file_do_not_disturb_each_other(tmp_path: Path) -> None:
    path, failures = tmp_path / "a.txt", []

    def work(n: int) -> None:
        try:
            for _ in range(30):
                whole.write(path, bytes([n]) * 10_000)
        except BadInput as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert list(written(tmp_path)) == ["a.txt"]
    assert len(set(path.read_bytes())) == 1


def test_links_modes_and_long_names(tmp_path: Path) -> None:
    real = tmp_path / "real.txt"
    real.write_text("old")
    real.chmod(0o640)
    (tmp_path / "link").symlink_to(real)
    whole.write(tmp_path / "link", b"new")
    assert real.read_bytes() == b"new"
    assert (tmp_path / "link").is_symlink()
    assert real.stat().st_mode & 0o777 == 0o640
    name = tmp_path / ("é" * 120)
    whole.write(name, b"long")
    assert name.read_bytes() == b"long"
    plain = tmp_path / "plain"
    plain.write_text("")
    whole.write(tmp_path / "usual", b"")
    assert (tmp_path / "usual").stat().st_mode == plain.stat().st_mode


def test_pipes_are_written_to(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = subprocess.Popen(["cat", str(tmp_path / "pipe")], stdout=subprocess.PIPE)
    whole.write(tmp_path / "pipe", b"through")
    assert reader.communicate()[0] == b"through"
    assert (tmp_path / "pipe").is_fifo()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_a_file_that_may_not_be_written_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    path.chmod(0o444)
    with pytest.raises(BadInput, match="Permission denied"):
        whole.write(path, b"new")
    assert path.read_text() == "old"
