"""Reports: by a real nsys where there is one, and by stand-ins that behave like others."""

from __future__ import annotations

import gc
import shutil
import tempfile
from pathlib import Path

import pytest
from nsys_files import KERNEL, kernel, texts, write

from stepscope.errors import BadInput
from stepscope.sources.nsys import is_report, open_report, open_sqlite

needs_nsys = pytest.mark.skipif(shutil.which("nsys") is None, reason="nsys is not on the PATH")


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where exports go."""
    directory = tmp_path / "tmp"
    directory.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    return directory


@pytest.fixture
def report(tmp_path: Path) -> Path:
    directory = tmp_path / "user"
    directory.mkdir()
    path = directory / "run.nsys-rep"
    path.write_bytes(b"a report")
    return path


def stand_in(tmp_path: Path, export: str, flags: str = "") -> Path:
    program = tmp_path / "nsys"
    program.write_text(
        f"""#!/bin/sh
case "$1$2" in
--version) echo "NVIDIA Nsight Systems version 2031.1.2.3-0" ;;
export--help) echo "usage: nsys export {flags}" ;;
*) echo "$@" > {tmp_path}/arguments
   for argument; do case "$argument" in --output=*) output="${{argument#--output=}}" ;; esac; done
   {export} ;;
esac
"""
    )
    program.chmod(0o755)
    return program


def test_an_export_goes_to_a_directory_of_ours_and_is_gone_with_the_source(
    tmp_path: Path, temporary: Path, report: Path
) -> None:
    ready = write(tmp_path / "ready.sqlite", {KERNEL: [kernel(1, 2)]})
    nsys = stand_in(tmp_path, f'cp {ready} "$output"', "--include-blobs= --include-json=")
    source = open_report(report, nsys)
    assert (source.path, source.info.file, source.info.format) == (report, "run.nsys-rep", "nsys-rep")
    assert source.read("ops").frame.height == 1
    assert len(list(temporary.iterdir())) == 1
    arguments = (tmp_path / "arguments").read_text()
    assert "--type=sqlite" in arguments
    assert "--include-blobs=true --include-json=true" in arguments
    assert [path.name for path in report.parent.iterdir()] == ["run.nsys-rep"]
    del source
    gc.collect()
    assert list(temporary.iterdir()) == []


def test_flags_that_an_older_nsys_does_not_know_are_not_given(tmp_path: Path, report: Path) -> None:
    ready = write(tmp_path / "ready.sqlite", {KERNEL: [kernel(1, 2)]})
    open_report(report, stand_in(tmp_path, f'cp {ready} "$output"'))
    assert "--include" not in (tmp_path / "arguments").read_text()


def test_an_nsys_older_than_the_report(tmp_path: Path, temporary: Path, report: Path) -> None:
    nsys = stand_in(tmp_path, 'echo "Importer error: unsupported report version" >&2; exit 1')
    with pytest.raises(BadInput) as caught:
        open_report(report, nsys)
    assert str(caught.value).startswith(f"{report}: nsys 2031.1.2.3 cannot export this report (Importer error")
    assert "--nsys PATH" in str(caught.value)
    assert list(temporary.iterdir()) == []


def test_no_nsys(report: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(BadInput, match="nsys was not found; give its path with --nsys PATH"):
        open_report(report)
    with pytest.raises(BadInput, match="/nowhere/nsys was not found"):
        open_report(report, "/nowhere/nsys")


def test_no_report(tmp_path: Path) -> None:
    assert not is_report(tmp_path / "none.nsys-rep")
    with pytest.raises(BadInput, match="no such file"):
        open_report(tmp_path / "none.nsys-rep")


@needs_nsys
def test_what_is_no_report_at_all(report: Path) -> None:
    with pytest.raises(BadInput, match="cannot export this report"):
        open_report(report)


@needs_nsys
def test_a_real_report_of_2021_like_its_own_export(shared: Path) -> None:
    path = shared / "public/a100_saxpy_mpi.rank0.nsys-rep"
    assert is_report(path)
    source = open_report(path)
    then = open_sqlite(shared / "public/a100_saxpy_mpi.rank0.sqlite")
    assert source.info.epoch_ns == then.info.epoch_ns
    for table in ("ops", "calls"):
        assert texts(source, table).equals(texts(then, table))
    # MPI calls are ranges in exports of 2021, and have tables of their own since.
    mpi = texts(then, "ranges").filter(domain="MPI")
    host = texts(source, "host").filter(kind="mpi")
    assert host.select("name", "start_ns", "end_ns").equals(mpi.select("name", "start_ns", "end_ns"))
