"""`capture ncu`: the command that a timeline asks for, what it costs, and every way in which it cannot work."""

from __future__ import annotations

import lzma
import re
import shlex
import stat
import sys
from pathlib import Path

import pytest

from fake import call, copy, make
from stepscope.api.suspects import suspects_of
from stepscope.capture import ncu
from stepscope.cli.main import run
from stepscope.derive.windows.spec import WindowSpec
from stepscope.errors import BadInput, CannotAnswer

DATA = Path(__file__).parents[1] / "data/ncu"
PROBE = str(DATA / "probe/probe.pt.trace.json.gz")
TRAIN = str(DATA / "train/train.pt.trace.json.gz")

#: An ncu that runs the command, and leaves a page in place of a report.
NCU = """#!{python}
import shutil, subprocess, sys
argv = sys.argv[1:]
if argv[0] == "--import":
    sys.stdout.write(open("{page}").read()); sys.exit(0)
out = argv[argv.index("--export") + 1]
print("{said}")
subprocess.run(argv[argv.index("--export") + 2:])
{after}
"""


@pytest.fixture
def fake(tmp_path: Path):
    """A stand-in for ncu, and the program to measure."""

    def make(said: str = "==PROF== Connected", after: str = 'open(out + ".ncu-rep", "wb").write(b"NVR")') -> str:
        page = tmp_path / "page.csv"
        page.write_bytes(lzma.decompress((DATA / "probe/raw.csv.xz").read_bytes()))
        path = tmp_path / "ncu"
        path.write_text(NCU.format(python=sys.executable, page=page, said=said, after=after))
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return str(path)

    return make


def go(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = run(["capture", "ncu", *words])
    said = capsys.readouterr()
    return status, said.out, said.err


def dry(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[str, list[str]]:
    status, out, _ = go(capsys, *words, "--dry-run", "--", "python", "train.py", "--steps", "9")
    assert status == 0
    return " ".join(out.split()), shlex.split(out.splitlines()[-1])


def option(words: list[str], name: str) -> str:
    return words[words.index(name) + 1]


def test_suspects_are_what_takes_the_time(capsys: pytest.CaptureFixture[str]) -> None:
    out, words = dry(capsys, "--from", TRAIN)
    pattern = option(words, "--kernel-name").removeprefix("regex:")
    functions = ["scatter_rows", "nvjet_sm90_tst_320x128_64x3_1x2_h_bz_coopB_NTT"]
    assert all(re.search(pattern, name) for name in functions)
    assert not re.search(pattern, "vectorized_elementwise_kernel")
    assert words[-4:] == ["python", "train.py", "--steps", "9"]
    assert option(words, "--filter-mode") == "per-launch-config"
    # Four layers launch it four times a step: two steps pass, then one launch is measured.
    assert (option(words, "--launch-skip"), option(words, "--launch-count")) == ("8", "1")
    assert "6 kernel functions with 89 % of the compute of step 5" in out
    assert "up to 6 launches will be measured, about 26 passes each, some 16 s" in out


def test_identical_layers_once_and_other_works_too(capsys: pytest.CaptureFixture[str], shared: Path) -> None:
    """Products whose launches are of two or three lengths are measured until each was seen."""
    _, words = dry(capsys, "--from", str(shared / "traces/h200/train/eager.sqlite"))
    assert option(words, "--launch-count") == "3"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--for", "bound"], ["--set", "basic"]),
        (["--for", "everything"], ["--set", "full"]),
        (["--for", "roofline"], ["--set", "roofline", "--section", "SourceCounters"]),
        (["--set", "detailed"], ["--set", "detailed"]),
    ],
)
def test_the_set_is_chosen_for_the_question(
    capsys: pytest.CaptureFixture[str], options: list[str], expected: list[str]
) -> None:
    _, words = dry(capsys, "--from", PROBE, "--anchor", "step", *options)
    assert words[1 : 1 + len(expected)] == expected


def test_restricted_to_a_range(capsys: pytest.CaptureFixture[str]) -> None:
    _, words = dry(capsys, "--from", PROBE, "--anchor", "step", "--range", "step 2", "--warmup", "0")
    assert option(words, "--nvtx-include") == "step 2/"
    assert option(words, "--launch-skip") == "0"


def test_a_benchmark_without_a_timeline(
    capsys: pytest.CaptureFixture[str], fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All kinds of kernels, once each and from the first launch on; or those of a name."""
    said, argv = dry(capsys)
    assert said.startswith("One launch of each kind of kernel that the program launches, about 26 passes each")
    assert "--kernel-name" not in argv and argv[argv.index("--launch-skip") + 1] == "0"
    assert (
        argv[argv.index("--filter-mode") + 1] == "per-launch-config" and argv[argv.index("--launch-count") + 1] == "1"
    )
    _, argv = dry(capsys, "--kernel", "^scatter", "--warmup", "3")
    assert argv[argv.index("--kernel-name") + 1] == "regex:^scatter" and argv[argv.index("--launch-skip") + 1] == "3"
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *_: None)
    out = tmp_path / "m"
    status, text, err = go(capsys, "--ncu", fake(), "-o", str(out), "--csv", "--", sys.executable, "-c", "pass")
    assert status == 0, err
    assert re.search(r"next:\n  stepscope roofline .*m\.", text)
    assert go(capsys, "--from", TRAIN, "--kernel", "x", "--dry-run", "--", "true")[0] == 2
    assert go(capsys, "--kernel", "(", "--dry-run", "--", "true")[0] == 2


def test_fewer_or_more_suspects(capsys: pytest.CaptureFixture[str]) -> None:
    out, words = dry(capsys, "--from", PROBE, "--anchor", "step", "--most", "1")
    assert option(words, "--kernel-name") == "regex:^(fma_chain)$"
    assert "1 kernel function with 30 %" in out
    _, words = dry(capsys, "--from", PROBE, "--anchor", "step", "--share", "100")
    assert option(words, "--kernel-name").count("|") == 5


def test_it_runs_and_says_what_to_ask_next(
    capsys: pytest.CaptureFixture[str], fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *_: None)  # without ncu-report: the page is read
    done = tmp_path / "done"
    status, out, err = go(
        capsys, "--from", PROBE, "--anchor", "step", "--ncu", fake(), "-o", str(tmp_path / "cap"), "--",
        sys.executable, "-c", f"open({str(done)!r}, 'w')",
    )  # fmt: skip
    assert (status, err) == (0, "")
    assert done.exists()
    assert "6 launches measured" in out
    assert out.splitlines()[-1].strip() == f"stepscope kernels {PROBE} {tmp_path / 'cap.raw.csv'}"
    assert "Connected" in (tmp_path / "cap.log").read_text()


@pytest.mark.parametrize(
    ("said", "after", "line"),
    [
        ("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission", "", "ERR_NVGPUCTRPERM"),
        ("==WARNING== No kernels were profiled.", "", "no launch matched"),
        ("==ERROR== The application returned an error code (1).", "", "wrote no report: ==ERROR== The application"),
    ],
)
def test_what_went_wrong_is_one_line(
    capsys: pytest.CaptureFixture[str], fake, tmp_path: Path, said: str, after: str, line: str
) -> None:
    program = fake(said, after)
    status, _, err = go(
        capsys, "--from", PROBE, "--anchor", "step", "--ncu", program, "-o", str(tmp_path / "c"), "--", "true"
    )
    assert status == 2
    assert line in err
    assert len(err.splitlines()) == 1


def test_no_ncu_here(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ncu, "_PLACES", ())
    status, _, err = go(capsys, "--from", PROBE, "--anchor", "step", "--ncu", "ncu-of-nobody", "--", "true")
    assert status == 2
    assert "no Nsight Compute here" in err
    assert "--dry-run" in err


def test_no_command(capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = go(capsys, "--from", PROBE)
    assert status == 2
    assert "no command to run" in err


def test_from_a_report_is_from_no_timeline(capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = go(capsys, "--from", str(DATA / "raw.csv"), "--", "true")
    assert status == 3
    assert "has no timeline" in err


@pytest.mark.parametrize(
    ("parameters", "capabilities", "allowed"),
    [
        ("RmProfilingAdminOnly: 1", "0000000000000000", False),
        ("RmProfilingAdminOnly: 1", "000001ffffffffff", True),
        ("RmProfilingAdminOnly: 0", "0000000000000000", True),
    ],
)
def test_counters_that_are_kept_to_administrators(
    tmp_path: Path, parameters: str, capabilities: str, allowed: bool
) -> None:
    (tmp_path / "params").write_text(f"Something: 3\n{parameters}\n")
    (tmp_path / "status").write_text(f"Name: x\nCapEff:\t{capabilities}\n")
    if allowed:
        ncu.require_permission(tmp_path / "params", tmp_path / "status")
        return
    with pytest.raises(BadInput, match="RestrictProfilingToAdminUsers"):
        ncu.require_permission(tmp_path / "params", tmp_path / "status")
    ncu.require_permission(tmp_path / "absent", tmp_path / "status")


@pytest.mark.parametrize("given", [("--share", "0"), ("--most", "-3")])
def test_options_that_leave_nothing_to_measure(given: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = go(capsys, "--from", TRAIN, *given, "--dry-run", "--", "python", "train.py")
    assert status == 2 and "leave no kernel to measure" in err


def test_where_no_rank_computes_there_is_nothing_to_measure() -> None:
    profile = make(ops=[copy(0, 9, call=1)], calls=[call(0, 1, 1)])
    for span in ({"whole": True}, {"start": 5, "end": 7}, {"start": 10, "end": 12}):
        with pytest.raises(CannotAnswer, match="no rank computes in this window"):
            suspects_of(profile, WindowSpec(**span), 80.0, 8)
