"""The command that a finding cites prints the figures of its evidence, for the same window: on every trace there is."""

from __future__ import annotations

import gzip
import html
import json
import lzma
import shlex
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import cited
from fake import call, make, nvtx, op
from faultcases import profile_of, scenario
from marks import slow_unless
from stepscope import api, questions
from stepscope.api.options import window_spec
from stepscope.cli.main import run
from stepscope.errors import CannotAnswer
from stepscope.findings.case import Case
from stepscope.findings.citation import ALIGNED, NO_WINDOW, NOT_THE_STEP
from stepscope.findings.citation import cited as command_line
from stepscope.findings.finding import Finding
from stepscope.model.profile import Profile
from stepscope.model.units import about

DATA = Path(__file__).parents[1] / "data"
TRACES = sorted(
    str(path.relative_to(DATA))
    for folder in ("compile", "h200", "moe_reference", "promises", "source")
    for path in (DATA / folder).rglob("*.?z")
)


def unpacked(packed: Path, folder: Path) -> Path:
    """A trace, or the folder of those of a job."""
    if packed.name.endswith(".tar.xz"):
        with tarfile.open(packed) as file:
            file.extractall(folder, filter="data")
        return folder
    read = {".xz": lzma.decompress, ".gz": gzip.decompress}[packed.suffix]
    (folder / packed.stem).write_bytes(read(packed.read_bytes()))
    return folder / packed.stem


def of_a_kind(trace: str) -> bool:
    """Of captures that differ in their fault alone, a healthy one and one with a slow rank."""
    folder, name = trace.split("/")[0], Path(trace).name
    return folder not in ("moe_reference", "promises") or name.startswith(("straggler", "fp32"))


@pytest.mark.parametrize("trace", slow_unless(of_a_kind, TRACES))
def test_every_trace(trace: str, tmp_path: Path) -> None:
    profile = api.open(unpacked(DATA / trace, tmp_path), cache=False)
    try:
        wrong = [text for one in cited.every(profile) for text in one.wrong]
    except CannotAnswer as why:
        assert "no GPU activity" in str(why)
    else:
        assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "trace",
    slow_unless(
        lambda trace: "h100x2" in trace,
        ["public/amd_merged_all.json.gz", "public/h100x2_before.sqlite", "h200/hf/hf4_straggler.sqlite"],
    ),
)
def test_traces_of_others(shared: Path, trace: str) -> None:
    wrong = [text for one in cited.every(api.open(shared / "traces" / trace, cache=False)) for text in one.wrong]
    assert not wrong, "\n".join(wrong)


FAULTS = {
    "straggler": ("1f1b", "straggler:rank=2,factor=1.4"),
    "expert-imbalance": ("dualpipev", "imbalance:rank=1,factor=2"),
    "slow-link": ("fsdp", "slow-link:ranks=0-1,factor=5"),
}


@pytest.mark.parametrize("finding", slow_unless(lambda finding: finding == "expert-imbalance", FAULTS))
@pytest.mark.slow
def test_ranks_that_are_compared(finding: str) -> None:
    """The trainers of `dualpipev` mark chunks, those of `1f1b` and `fsdp` steps. A peer is shown beside the rank."""
    schedule, fault = FAULTS[finding]
    with profile_of(scenario(schedule, fault, **({"nodes": 1} if finding == "slow-link" else {}))) as profile:
        found = list(cited.every(profile))
    wrong = [text for one in found for text in one.wrong]
    assert not wrong, "\n".join(wrong)
    named = next(one.finding for one in found if one.finding.id == finding)
    assert len({place.rank for place in named.where[:2]}) == 2


@pytest.fixture(scope="module")
def straggling() -> Iterator[api.Profile]:
    with profile_of(scenario("1f1b", "straggler:rank=2,factor=1.4")) as profile:
        yield profile


@pytest.mark.slow
def test_uneven_stages() -> None:
    with profile_of(scenario("1f1b", layers=5)) as profile:
        found = list(cited.every(profile))
    assert "compute-imbalance" in {one.finding.id for one in found}
    assert not [text for one in found for text in one.wrong]


@pytest.mark.parametrize(
    ("asked", "repeated"),
    [
        ({"index": 0}, "--index 0"),
        pytest.param({"index": -1}, "--index -1", marks=pytest.mark.slow),
        pytest.param({"whole": True}, "--whole", marks=pytest.mark.slow),
        ({"anchor": "^(step|no such) 1$"}, "--anchor '^(step|no such) 1$'"),
        pytest.param(
            {"start": 1_000_000, "end": 9_000_000}, "--start @1000000ns --end @9000000ns", marks=pytest.mark.slow
        ),
    ],
)
def test_the_window_that_was_asked_for(asked: dict[str, Any], repeated: str, straggling: api.Profile) -> None:
    found = list(cited.every(straggling, window_spec(**asked)))
    assert found
    assert all(repeated in one.line for one in found)
    assert not [text for one in found for text in one.wrong]


def test_ranks_that_were_asked_for(straggling: api.Profile) -> None:
    """Of two ranks the median step may be another than of all: the command names them too."""
    rows = api.analyse(straggling, "diagnose", rank="2-3", least=0.0).rows.to_dicts()
    assert rows
    for row in rows:
        assert "--rank 2" in row["command"] or "--rank 3" in row["command"], row["command"]
        cited.run(straggling, row["command"])


@pytest.mark.slow
def test_every_front_end_cites_files_rules_window_and_ranks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same command line in the table, JSON, Markdown, both reports and Python; and it runs as it stands."""
    rules = tmp_path / "my labels.toml"  # a name that a shell would break
    rules.write_text("stage = 'layer\\d+'\n", "utf-8")
    with profile_of(scenario("1f1b", "straggler:rank=2,factor=1.4")) as profile:
        folder = str(profile.paths[0].parent)
        asked = [folder, "--labels", str(rules), "--rank", "2-3", "--index", "0"]
        python = api.open(folder, labels=rules, cache=False).diagnose(rank="2-3", index=0).rows["command"].to_list()
        for line in python:
            words = shlex.split(line)
            assert words[:1] == ["stepscope"] and words[2:5] == [folder, "--labels", str(rules)]
            assert words[words.index("--rank") + 1] in ("2", "3", "2-3") and words[-2:] == ["--index", "0"]

        def printed(*words: str) -> str:
            assert run([*words, "--no-cache"]) == 0, capsys.readouterr().err
            return capsys.readouterr().out

        assert [row["command"] for row in json.loads(printed("diagnose", *asked, "--format", "json"))["rows"]] == python
        page = tmp_path / "page.html"
        printed("report", *asked, "-o", str(page))
        front_ends = {
            "table": printed("diagnose", *asked),
            "md": printed("diagnose", *asked, "--format", "md"),
            "report.md": printed("report", *asked),
            "report.html": html.unescape(page.read_text("utf-8")),
        }
        for name, text in front_ends.items():
            missing = [line for line in python if "".join(line.split()) not in "".join(text.split())]
            assert not missing, f"{name}: {missing}"
        assert python
        for line in python:
            answer = json.loads(printed(*shlex.split(line)[1:], "--format", "json"))
            assert {w["index"] for w in answer["window"]} <= {0} and answer["rows"], line
            assert {w["rank"] for w in answer["window"]} <= {2, 3}


def job(*ranks: tuple[int, ...]) -> Profile:
    """Ranks whose steps take so many microseconds: one kernel each, launched at once."""
    ops, calls, ranges = [], [], []
    for rank, lengths in enumerate(ranks):
        at = 0
        for k, length in enumerate(lengths):
            calls.append(call(at, at + 500, k + 1) | {"proc": rank})
            ops.append(op(at + 1_000, at + length * 1_000, call=k + 1) | {"proc": rank})
            ranges.append(nvtx(at, at + length * 1_000, f"step {k}") | {"proc": rank})
            at += length * 1_000
    return make(ops=ops, calls=calls, ranges=ranges)


def test_the_step_of_one_rank_is_named() -> None:
    """Of all ranks together step 1 is the median, of rank 0 alone step 2: with `--rank`, the step needs a number."""
    profile = job((5, 50, 60, 70), (5, 60, 45, 75))
    assert [api.analyse(profile, "breakdown", rank=r).window[0]["index"] for r in (0, 1)] == [2, 1]
    case = Case(profile, window_spec())
    given = Finding("x", "", 1, "low", "", "", ("kernels", "--rank 0"))
    assert command_line(case, given) == "stepscope kernels PROFILE --rank 0 --index 1"
    assert command_line(case, replace(given, command=("kernels", ""))) == "stepscope kernels PROFILE"
    assert command_line(case, replace(given, command=("overlap", ""))) == "stepscope overlap PROFILE --step"


def test_a_wrong_figure_is_seen() -> None:
    """The test above must be able to fail."""
    answer = api.analyse(job((10, 20, 30)), "breakdown")
    assert cited.printed(answer.rows["compute_ns"][0], answer)
    assert not cited.printed(answer.rows["compute_ns"][0] + 1, answer)
    assert cited.quoted(1_500_000, f"for {about(1_500_000)} of it")
    assert not cited.quoted(1_500_000, "for 1.6 ms of it")


def test_commands_are_known_by_their_windows() -> None:
    known = [questions.get(name) for name in questions.names()]
    assert {a.name for a in known if not a.windowed} == set(NO_WINDOW)
    aligned = {a.name for a in known if any(o.name == "align" for o in a.options)}
    assert aligned - {"diagnose"} == set(ALIGNED)
    assert set(NOT_THE_STEP) <= {a.name for a in known}
