"""`capture nccl`: the sweep on ranks of its own, on CPUs here; what it writes is what `collectives --ceiling` reads."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stepscope.analyses.collectives.ceiling import read_ceiling
from stepscope.cli.main import run


def go(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = run(["capture", "nccl", *words])
    said = capsys.readouterr()
    return status, said.out, said.err


def test_the_command_starts_a_rank_for_each_gpu(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    status, out, _ = go(
        capsys, "-o", str(tmp_path / "new"), "--nproc", "4", "--dry-run", "--python", "/env/bin/python3.11"
    )
    assert status == 0 and not (tmp_path / "new").exists()
    assert out.startswith("/env/bin/python3.11 -m torch.distributed.run --nnodes=1 --nproc-per-node=4 ")
    assert "link_sweep.py" in out and "--backend nccl --operations all_reduce,alltoall --least 1024" in out


def test_it_lies_beside_a_capture(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text("{}")
    status, out, _ = go(capsys, "-o", str(tmp_path), "--nproc", "2", "--dry-run")
    assert status == 0 and f" {tmp_path / 'nccl'} " in out


@pytest.mark.parametrize(
    ("words", "says"),
    (
        (("--op", "gossip", "--nproc", "2"), "--op gossip: not known"),
        (("--op", ",", "--nproc", "2"), "--op names nothing"),
        (("--min", "2MB", "--max", "1MB", "--nproc", "2"), "no sizes lie between"),
        (("--max", "much", "--nproc", "2"), "is not a size"),
        (("--python", "/bin/true", "--nproc", "2"), "--python /bin/true"),
        (("--nproc", "-1"), "give --nproc N"),
    ),
)
def test_what_cannot_be_measured_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, words: tuple[str, ...], says: str
) -> None:
    status, _, err = go(capsys, "-o", str(tmp_path / "new"), *words)
    assert status == 2 and says in err and "\n" not in err.strip()
    assert not (tmp_path / "new").exists()


def test_a_folder_with_something_in_it_is_left_alone(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("")
    status, _, err = go(capsys, "-o", str(tmp_path), "--nproc", "2")
    assert status == 2 and "already exists" in err


@pytest.mark.slow
def test_ranks_on_cpus_are_measured(capsys: pytest.CaptureFixture[str], tmp_path: Path, torch_python: str) -> None:
    """Bus bandwidth is the algorithm's times its factor among two ranks, and the file says that it was gloo."""
    folder = tmp_path / "sweep"
    words = ("--backend", "gloo", "--nproc", "2", "--python", torch_python, "--max", "64KiB", "--port", "29671")
    status, out, err = go(capsys, "-o", str(folder), *words, "--op", "all_reduce,alltoall,all_gather")
    assert status == 0, err
    assert sorted(p.name for p in folder.iterdir()) == [
        f"{n}_perf.txt" for n in ("all_gather", "all_reduce", "alltoall")
    ]
    assert f"--ceiling {folder}" in out
    ceiling = read_ceiling(folder)
    assert ceiling.by == "capture nccl (gloo on CPUs)"
    assert {kind: sizes.tolist() for kind, (sizes, _) in ceiling.of.items()} == {
        kind: [1024, 4096, 16384, 65536] for kind in ("all_gather", "all_reduce", "all_to_all")
    }
    for name, factor in (("all_reduce", 1.0), ("alltoall", 0.5), ("all_gather", 0.5)):
        text = (folder / f"{name}_perf.txt").read_text()
        assert re.search(r"^# stepscope capture nccl: gloo on CPUs: not what NCCL .*, 2 ranks on 1 node, torch ", text)
        rows = [line.split() for line in text.splitlines() if line[0] != "#"]
        for size, count, kind, micros, algbw, busbw in rows:
            assert (int(size), kind) == (4 * int(count), "float")
            assert float(algbw) == pytest.approx(int(size) / float(micros) / 1e3, rel=0.01)
            assert float(busbw) == pytest.approx(factor * float(algbw), rel=0.01)


@pytest.mark.slow
def test_a_sweep_that_fails_says_why(capsys: pytest.CaptureFixture[str], tmp_path: Path, torch_python: str) -> None:
    """NCCL without GPUs: one line, the log stays, and no file that looks like a measurement."""
    words = ("--nproc", "2", "--python", torch_python, "--port", "29672")
    status, _, err = go(capsys, "-o", str(tmp_path / "sweep"), *words)
    assert status == 2 and "the sweep failed" in err and "--backend gloo" in err and "\n" not in err.strip()
    assert [p.name for p in (tmp_path / "sweep").iterdir()] == ["log.txt"]
