"""The manifest: what differs between runs, and nothing private."""

from __future__ import annotations

import pytest

from stepscope.capture import manifest
from stepscope.errors import BadInput


def test_only_allowed_variables_get_in():
    env = {"NCCL_ALGO": "Ring", "HF_TOKEN": "hf_abcdefgh12345678", "AWS_SECRET_ACCESS_KEY": "x", "HOME": "/home/me",
           "WANDB_API_KEY": "k", "NCCL_SECRET_SAUCE": "s", "OMP_NUM_THREADS": "hf_abcdefgh12345678"}  # fmt: skip
    assert manifest.safe_environment(env) == {"NCCL_ALGO": "Ring", "OMP_NUM_THREADS": "***"}


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (["train.py", "--lr", "1e-3"], ["train.py", "--lr", "1e-3"]),
        (["train.py", "--api-key", "abc", "--lr=1"], ["train.py", "--api-key", "***", "--lr=1"]),
        (["train.py", "--wandb-token=abc"], ["train.py", "--wandb-token=***"]),
        (["env", "DB_PASSWORD=x", "MY_THING=y"], ["env", "DB_PASSWORD=***", "MY_THING=***"]),
        (["env", "NCCL_ALGO=Tree"], ["env", "NCCL_ALGO=Tree"]),
        (["curl", "https://me:pw@host/x"], ["curl", "https://***@host/x"]),
        (["run", "ghp_0123456789abcdef"], ["run", "***"]),
        (["run", "trainer.secret=abc"], ["run", "trainer.secret=***"]),
    ],
)  # fmt: skip
def test_commands_without_secrets(given, kept):
    assert manifest.safe_command(given) == kept


def test_what_differs():
    a = {"scenario": {"mesh": {"pp": 2, "ep": 2}, "versions": {"torch": "2.8"}}, "captured": {"took_s": 1}}
    b = {"scenario": {"mesh": {"pp": 2, "ep": 4}, "versions": {"torch": "2.8"}}, "captured": {"took_s": 2}}
    assert manifest.differences(a, b) == [("mesh.ep", 2, 4)]


def test_there_and_back(tmp_path):
    assert manifest.read(tmp_path) is None
    manifest.write(tmp_path, {"scenario": {}, "captured": {}})
    assert manifest.read(tmp_path) == {"schema": manifest.SCHEMA, "scenario": {}, "captured": {}}
    (tmp_path / manifest.FILE).write_text("{")
    with pytest.raises(BadInput, match="cannot be read"):
        manifest.read(tmp_path)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({"captured": {}}, "missing required field `scenario`"),
        ({"scenario": {}}, "missing required field `captured`"),
        ({"scenario": {"ranks": "4"}, "captured": {}}, "scenario.ranks: Expected `int | null`, got `str`"),
        ({"scenario": {"ranks": -1}, "captured": {}}, "scenario.ranks: Expected `int` >= 0"),
        ({"scenario": {"traced": 1}, "captured": {}}, "scenario.traced: Expected `array | null`, got `int`"),
        ({"scenario": {"machine": []}, "captured": {}}, "scenario.machine: Expected `object`, got `array`"),
        ({"scenario": {}, "captured": []}, "captured: Expected `object`, got `array`"),
        ({"scenario": {}, "captured": {"step_ns": {"0": [["x", True]]}}}, "captured.step_ns"),
    ],
)
def test_another_form_is_refused_by_name(tmp_path, content, says):
    manifest.write(tmp_path, content)
    with pytest.raises(BadInput) as refused:
        manifest.read(tmp_path)
    assert says in str(refused.value) and str(tmp_path / manifest.FILE) in str(refused.value)


def test_nested_too_deeply(tmp_path):
    (tmp_path / manifest.FILE).write_text('{"schema": ' + "[" * 5000 + "]" * 5000 + "}")
    with pytest.raises(BadInput, match="cannot be read"):
        manifest.read(tmp_path)
