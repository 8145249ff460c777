"""What was meant is said where it is close, and only there."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepscope.cli.main import run


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["overlp", "x"], "Did you mean overlap?"),
        (["kern", "x"], "Did you mean kernels?"),
        (["diff", "x", "y"], "Did you mean compare?"),
        (["analyze", "x"], "Did you mean rules?"),
        (["verify", "x"], "Did you mean capture verify?"),
        (["capture", "plann"], "Did you mean plan?"),
        (["skill", "shw"], "Did you mean show?"),
        (["diagnose", "x", "--json"], "Did you mean --format json? See `stepscope diagnose --help`"),
        (["breakdown", "x", "--window", "2"], "Did you mean --index N?"),
        (["capture", "plan", "--model"], "requires an argument. See `stepscope capture plan --help`"),
        (["info", "x", "--ranks", "3"], "Did you mean --rank? See `stepscope info --help`"),
        (["diagnose", "x", "--only", "stragler"], "did you mean straggler?"),
        (["diagnose", "x", "--fail-on", "data_stall"], "did you mean data-stall?"),
        (["stats", "-r", "cuda_gpu_kernsum", "x"], "did you mean cuda_gpu_kern_sum?"),
        (["recipe", "nccl_summ", "x"], "did you mean nccl_sum?"),
        (["gate", "x", "--to", "y", "--limit", "comm-exposed=1"], "did you mean comm_exposed?"),
        (["simulate", "--fault", "stragler:rank=1", "-o", "x"], "did you mean straggler?"),
        (["skill", "show", "analyse-profile"], "did you mean analyze-profile?"),
        (["capture", "plan", "--model", "qwen3-30b"], "did you mean qwen3-32b?"),
    ],
)
def test_close_names_are_suggested(stepscope, arguments, says):
    ran = stepscope(*arguments)
    assert ran.status == 2
    assert says in ran.err


@pytest.mark.parametrize(
    "arguments", [["open", "x"], ["trace", "x"], ["info", "x", "--colour"], ["info", "x", "--host", "a"]]
)
def test_others_are_not(stepscope, arguments):
    ran = stepscope(*arguments)
    assert ran.status == 2
    assert "mean" not in ran.err


def test_a_profile_alone_is_diagnosed(stepscope, tmp_path: Path):
    ran = stepscope(tmp_path)
    asked = stepscope("diagnose", tmp_path)
    assert ran.status == 0
    assert asked.out.splitlines()[-1] in ran.out  # the same conclusion, in fewer words
    for command in ("diagnose", "report", "stragglers"):
        assert f"stepscope {command} {tmp_path}" in ran.out


def test_a_number_is_no_file_but_a_step(capfd: pytest.CaptureFixture[str]):
    assert run(["breakdown", "--step", "2"]) == 2
    assert capfd.readouterr().err == "stepscope: 2: no such file; a step is chosen by --index 2\n"


def test_a_missing_profile_is_no_command(capfd: pytest.CaptureFixture[str], tmp_path: Path):
    assert run([str(tmp_path / "nothing.sqlite")]) == 2
    out, err = capfd.readouterr()
    assert not out and "no such file" in err
