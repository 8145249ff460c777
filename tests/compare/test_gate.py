"""Gates: limits, what fails, what cannot be decided, baselines, and what CI is shown."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from pairs import scenario
from stepscope import api
from stepscope.cli.main import run
from stepscope.compare.gate import FAILED, OPEN, PASSED, _status, parse_limits
from stepscope.compare.verdict import Step
from stepscope.errors import BadInput, CannotAnswer, GateFailed
from stepscope.simulate.run import simulate_to

STEP = Step(1000, 1000, 0.0, 0.0, 20, 20, "step")


@pytest.fixture(scope="module")
def traces(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("traces")
    for name, more in {
        "base": {"seed": 1},
        "again": {"seed": 2},
        "slow": {"seed": 3, "faults": ("straggler:rank=0,factor=1.06",)},
        "once": {"seed": 4, "steps": 1},
        "slow_once": {"seed": 6, "steps": 1, "faults": ("straggler:rank=0,factor=1.06",)},
        "other": {"seed": 5, "seq": 8192},
    }.items():
        simulate_to(scenario(**more), folder / name)
    return folder


@pytest.mark.parametrize(
    ("grown", "low", "high", "limit", "status"),
    [
        (0.0, -0.5, 0.5, 2.0, PASSED),
        (1.5, 1.0, 2.5, 2.0, PASSED),  # grown, but not beyond the limit
        (3.0, 2.5, 3.5, 2.0, FAILED),
        (3.0, 0.2, 5.8, 2.0, FAILED),  # noisy, but no noise
        (3.0, -1.0, 7.0, 2.0, OPEN),  # more than allowed, or nothing at all
        (0.0, -4.0, 4.0, 2.0, OPEN),  # a change of the limit would not have been seen
        (-9.0, -13.0, -5.0, 2.0, PASSED),  # surely not slower, however noisy
        (5.0, None, None, 2.0, OPEN),
        (0.1, -0.2, 0.4, 0.0, OPEN),
        (-0.1, -0.4, 0.2, 0.0, PASSED),
        (0.3, 0.1, 0.5, 0.0, FAILED),
    ],
)
def test_failed_is_beyond_the_limit_and_the_noise(grown, low, high, limit, status):
    assert _status(grown, low, high, limit, STEP)[0] == status


def test_limits_come_from_a_file_and_flags_count_more(tmp_path):
    file = tmp_path / "gate.toml"
    file.write_text(
        "[limits]\nstep = 1.5\ncomm_exposed = 1\n[limits.stage]\nstage2_f = 0.5\n[limits.family]\ngemm = 3\n"
    )
    found = {limit.check: limit.pct for limit in parse_limits(file, ["step=4%"])}
    assert found == {"step": 4.0, "comm_exposed": 1.0, "stage:stage2_f": 0.5, "family:gemm": 3.0}
    assert {limit.check: limit.pct for limit in parse_limits(None, [])} == {"step": 2.0}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("step", "write NAME=PERCENT"),
        ("step=fast", "not a percentage"),
        ("step=-1", "out of range"),
        ("steps=1", "did you mean step?"),
        ("stage:=1", "not known"),
        ("step=nan", "out of range"),
    ],
)
def test_a_limit_that_is_none(text, says):
    with pytest.raises(BadInput, match=says):
        parse_limits(None, [text])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("step = 2", "expected one table"),
        ("[limits]\n", "expected one table"),
        ("[limits]\nstep = 'much'\n", "not a number"),
        ("[limits]\nstep = true\n", "not a number"),
        ("[limits\n", "not valid TOML"),
        ("limits = " + "[" * 5000, "too deep"),
        ("[limits]\nstep = 2\n[more]\nx = 1\n", "and nothing else"),
        ("[limits]\nspeed = 2\n", "not known"),
    ],
)
def test_a_file_of_limits_that_is_none(tmp_path, text, says):
    file = tmp_path / "gate.toml"
    file.write_text(text)
    with pytest.raises(BadInput, match=says):
        parse_limits(file, [])


def test_no_change_passes_and_a_slow_run_fails(traces):
    passed = api.gate(traces / "base", traces / "again", limits=["step=2", "idle=1", "family:gemm=1"], cache=False)
    assert passed.rows["status"].to_list() == [PASSED] * 4
    assert passed.summary["pass"] is True
    with pytest.raises(GateFailed, match=r"^the gate failed: step: \+[45]\.\d % of the step") as failed:
        api.gate(traces / "base", traces / "slow", cache=False)
    assert failed.value.exit_status == 1
    rows = {r["check"]: r for r in failed.value.result.rows.to_dicts()}
    assert rows["step"]["status"] == FAILED
    assert rows["step"]["diff_ns"] == rows["step"]["new_ns"] - rows["step"]["base_ns"]


def test_what_cannot_be_decided_fails_unless_allowed(traces):
    with pytest.raises(GateFailed, match="one step per side is not enough") as failed:
        api.gate(traces / "once", traces / "slow_once", cache=False)
    assert failed.value.hint is not None and "--allow-inconclusive" in failed.value.hint
    allowed = api.gate(traces / "once", traces / "slow_once", allow_inconclusive=True, cache=False)
    assert allowed.summary["pass"] is True


def test_another_job_is_not_compared_silently(traces):
    with pytest.raises(GateFailed) as failed:
        api.gate(traces / "base", traces / "other", limits=["step=900"], cache=False)
    assert failed.value.result.rows.row(0, named=True)["why"] == "another job (setup seq)"


def test_a_limit_on_what_neither_side_has(traces):
    with pytest.raises(CannotAnswer, match="neither side has it"):
        api.gate(traces / "base", traces / "again", limits=["stage:stage2_f=1"], cache=False)


@pytest.mark.slow
def test_a_baseline_gives_what_the_profile_gives(traces, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = api.save_baseline(traces / "base", "main", cache=False)
    assert path == Path(".stepscope/baselines/main.json")
    assert path.stat().st_size < 8_000
    limits = ["step=20", "compute=10", "family:gemm=5"]
    saved = api.gate(path, traces / "slow", limits=limits, cache=False)
    direct = api.gate(traces / "base", traces / "slow", limits=limits, cache=False)
    assert saved.rows.to_dicts() == direct.rows.to_dicts()
    assert saved.summary["statement"] == direct.summary["statement"]
    for by in ("part", "family"):
        rows = [api.compare(base, traces / "slow", by=by, cache=False).rows for base in (path, traces / "base")]
        assert rows[0]["diff_ns"].to_list() == rows[1]["diff_ns"].to_list()
    with pytest.raises(CannotAnswer, match="a baseline does not keep what --by kernel needs"):
        api.compare(path, traces / "slow", by="kernel", cache=False)


def test_a_baseline_holds_nothing_of_the_machine(traces, tmp_path):
    path = api.save_baseline(traces / "base", str(tmp_path / "b.json"), cache=False)
    text = path.read_text()
    assert str(traces) not in text and str(tmp_path) not in text and "host" not in text


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ('{"schema": "stepscope-baseline/3", "runs": []}', "written by a newer stepscope"),
        ('{"schema": "stepscope-baseline/1", "runs": []}', "from its first op to the next step's"),
        ('{"schema": "stepscope-baseline/2"}', "not a valid baseline"),
        ('{"schema": "stepscope-baseline/2", "runs": [{}], "facts": {}, "spec": {}}', "not a valid baseline"),
        ('{"schema": "stepscope/1"}', "no baseline"),
        ("[]", "no baseline"),
        ("not JSON", "cannot be read as a baseline"),
        ("[" * 100_000, "cannot be read as a baseline"),
    ],
)
def test_a_file_that_is_no_baseline(traces, tmp_path, capfd, content, says):
    file = tmp_path / "b.json"
    file.write_text(content)
    assert run(["gate", str(traces / "base"), "--baseline", str(file)]) == 2
    err = capfd.readouterr().err
    assert says in err and len(err.splitlines()) == 1


def test_the_command_saves_compares_and_reports(traces, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    assert run(["gate", str(traces / "base"), "--save", "main"]) == 0
    assert capfd.readouterr().out.startswith("saved .stepscope/baselines/main.json (")
    files = ["--markdown", "gate.md", "--junit", "gate.xml"]
    assert run(["gate", str(traces / "slow"), "--baseline", "main", *files]) == 1
    out, err = capfd.readouterr()
    assert err.startswith("stepscope: the gate failed: step: +")
    assert "\nthe step is " in out
    markdown = Path("gate.md").read_text()
    assert markdown.startswith("### stepscope gate: failed\n")
    assert "| step | ❌ failed |" in markdown
    root = ElementTree.parse("gate.xml").getroot()
    suite = root.find("testsuite")
    assert root.tag == "testsuites" and suite is not None
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("2", "1", "0")
    failure = suite.find("testcase[@name='step']/failure")
    assert failure is not None and failure.get("type") == "failed" and "limit 2 %" in str(failure.get("message"))
    assert run(["gate", str(traces / "again"), "--baseline", "main", *files]) == 0
    assert Path("gate.md").read_text().startswith("### stepscope gate: passed\n")
    assert ElementTree.parse("gate.xml").getroot().get("failures") == "0"


def test_two_profiles_and_json(traces, capfd):
    assert run(["gate", str(traces / "base"), "--to", str(traces / "again"), "--format", "json"]) == 0
    answer = json.loads(capfd.readouterr().out)
    assert answer["command"] == "gate" and answer["summary"]["pass"] is True
    assert [r["check"] for r in answer["rows"]] == ["comparable", "step"]


def test_inconclusive_is_skipped_in_junit_where_allowed(traces, tmp_path, capfd):
    xml = tmp_path / "gate.xml"
    both = ["gate", str(traces / "once"), "--to", str(traces / "slow_once"), "--junit", str(xml)]
    assert run(both) == 1
    assert ElementTree.parse(xml).getroot().get("failures") == "1"
    assert run([*both, "--allow-inconclusive"]) == 0
    root = ElementTree.parse(xml).getroot()
    assert (root.get("failures"), root.get("skipped")) == ("0", "1")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["gate"], "nothing to compare with"),
        (["gate", "{base}"], "give --baseline NAME"),
        (["gate", "--baseline", "main"], "no profile to check"),
        (
            ["gate", "{base}", "--baseline", "nowhere"],
            "no such baseline; save one: stepscope gate PROFILE --save nowhere",
        ),
        (["gate", "{base}", "--baseline", "main", "--to", "{base}"], "give one of them"),
        (["gate", "{base}", "--save", "a b"], "not a name for a baseline"),
        (["gate", "--save", "main"], "no profile to save"),
        (["gate", "{base}", "--save", "main", "--to", "{base}"], "compares nothing"),
        (["gate", "{base}", "--to", "{base}", "--limit", "step"], "write NAME=PERCENT"),
        (["gate", "{base}", "--to", "{base}", "--limits", "nowhere.toml"], "cannot read it"),
        (["gate", "{base}", "--to", "{base}", "--markdown", "nowhere/x.md"], "no directory nowhere"),
        (["gate", "{base}", "--to", "{base}", "--junit", "."], "is a directory"),
        (["gate", "{base}", "--to"], "--to names no profile"),
    ],
)
def test_misuse_is_one_line(traces, tmp_path, monkeypatch, capfd, arguments, says):
    monkeypatch.chdir(tmp_path)
    assert run([a.format(base=traces / "base") for a in arguments]) == 2
    out, err = capfd.readouterr()
    assert out == "" and says in err and len(err.splitlines()) == 1


def test_a_baseline_of_several_runs_judges_one(traces, tmp_path):
    path = api.save_baseline([traces / "base", traces / "again"], str(tmp_path / "two.json"), cache=False)
    short = api.gate(path, traces / "once", limits=["step=20"], cache=False)
    assert short.summary["step"]["base_n"] == 2
    assert any("runs have 1 to 20 steps" in note for note in short.notes)
    assert api.open(traces / "again").gate(base=path, limits=["step=20"]).summary["pass"] is True


@pytest.mark.slow
def test_limits_of_the_pace(tmp_path):
    """A checkpoint every tenth step that takes longer moves no median: the mean and the 99th percentile tell."""
    for name, ms in (("base", 20), ("same", 20.2), ("slower", 60)):
        fault = f"checkpoint:every=10,ms={ms}"
        simulate_to(scenario(7, steps=41, faults=(fault,)), tmp_path / name)
    base = tmp_path / "base"
    assert api.gate(base, tmp_path / "slower", limits=["step=2"], cache=False).summary["pass"] is True
    assert api.gate(base, tmp_path / "same", limits=["p99=5", "mean=10"], cache=False).summary["pass"] is True
    for limit in ("p99=5", "mean=2"):
        with pytest.raises(GateFailed) as failed:
            api.gate(base, tmp_path / "slower", limits=[limit], cache=False)
        row = failed.value.result.rows.filter(failed.value.result.rows["check"] == limit.partition("=")[0])
        assert row["diff_ns"][0] == pytest.approx(40e6 if "p99" in limit else 4e6, rel=0.1)


def test_p99_of_few_steps_is_not_decided(traces):
    with pytest.raises(GateFailed) as failed:
        api.gate(traces / "base", traces / "once", limits=["p99=5"], cache=False)
    assert "p99 is just the longest" in str(failed.value)
