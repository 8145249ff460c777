"""Answers do not depend on the budget: what does not fit is read by parts, kept in files, and derived again."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from stepscope import api, questions
from stepscope.api.nsys import stats
from stepscope.errors import BadInput, StepscopeError
from stepscope.files import budget
from stepscope.model import memo, spill
from stepscope.model import profile as model

STATS = ("cuda_gpu_trace", "cuda_api_sum", "nvtx_gpu_proj_sum")


@pytest.fixture(scope="module")
def traces(tmp_path_factory) -> Path:
    """A job of a few ranks, whose calls and copies nsys's tables do not have in order."""
    folder = tmp_path_factory.mktemp("job")
    words = ["simulate", "--dp", "1", "--pp", "2", "--kernels", "1500", "--write", "nsys", "-o", str(folder)]
    subprocess.run([sys.executable, "-m", "stepscope", *words], check=True, capture_output=True)
    return folder


@pytest.fixture
def cramped(monkeypatch):
    """There is room for nothing: all columns go to files, ranks let go of their arrays whenever they can."""
    looks = []
    monkeypatch.setattr(budget, "roomy", lambda more, held=0: looks.append(more))
    monkeypatch.setattr(budget, "tight", lambda: True)
    monkeypatch.setattr(spill, "_SMALL", 0)
    monkeypatch.setattr(spill, "_TOGETHER", 0)
    monkeypatch.setattr(model, "_LOOK_S", 0.0)
    monkeypatch.setattr(memo, "_LARGE", 0)
    return looks


def answers(folder: Path) -> dict[str, object]:
    """By question: rows, notes and summary, or the refusal."""
    profile = api.open(folder, cache=False)
    found: dict[str, object] = {}
    for name in questions.names():
        try:
            result = api.analyse(profile, name)
            found[name] = _rounded([result.rows.to_dicts(), result.summary, sorted(map(str, result.notes))])
        except StepscopeError as error:
            found[name] = str(error)
    for report in STATS:
        found[report] = stats(profile, report).rows.to_dicts()
    found["sql"] = api.sql(
        profile, "SELECT rank, role, count(*) AS n FROM ops GROUP BY ALL ORDER BY ALL"
    ).rows.to_dicts()
    return found


def _rounded(answer: object) -> object:
    """Polars adds floats in any order: the last digits of a mean are not the same twice."""
    return json.loads(json.dumps(answer, default=str), parse_float=lambda text: round(float(text), 6))


@pytest.mark.slow
def test_every_answer_is_the_same(traces, request, monkeypatch, tmp_path):
    monkeypatch.setattr(budget, "total", lambda: 1 << 60)
    expected = answers(traces)
    assert not isinstance(expected["diagnose"], str)
    looks = request.getfixturevalue("cramped")
    lettings = []
    real = model.Profile.at_work
    monkeypatch.setattr(model.Profile, "at_work", lambda self, rank: (lettings.append(rank), real(self, rank)))
    written = []
    column = spill._map
    monkeypatch.setattr(spill, "_map", lambda *of: written.append(of[1]) or column(*of))
    found = answers(traces)
    assert looks and lettings and {"start_ns", "rank", "correlation"} <= set(written)
    assert {name for name in expected if found[name] != expected[name]} == set()


@pytest.mark.slow
def test_an_export_is_the_same(traces, request, monkeypatch, tmp_path):
    monkeypatch.setattr(budget, "total", lambda: 1 << 60)
    for name in ("job.pftrace", "job.json"):
        api.open(traces, cache=False).export(tmp_path / name, findings=False)
    request.getfixturevalue("cramped")
    for name in ("job.pftrace", "job.json"):
        api.open(traces, cache=False).export(tmp_path / f"small-{name}", findings=False)
        assert (tmp_path / f"small-{name}").read_bytes() == (tmp_path / name).read_bytes()


@pytest.mark.slow
def test_the_budget_of_open_is_of_the_process(traces):
    try:
        api.open(traces, cache=False, memory="1GiB")
        assert budget.total() == 1 << 30
        with pytest.raises(BadInput, match="is not a size; write 1GiB or 500MB"):
            api.open(traces, memory="a lot")
    finally:
        budget.keep(None)


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the limit is Linux's")
def test_a_command_keeps_to_a_limit_of_the_system(tmp_path):
    """Half a million calls under a limit of data that holds the interpreter and little else."""
    words = ["simulate", "--kernels", "200000", "--write", "nsys", "-o", str(tmp_path)]
    subprocess.run([sys.executable, "-m", "stepscope", *words], check=True, capture_output=True)
    told = {}
    for memory, limit in (("64GiB", resource.RLIM_INFINITY), ("256MiB", 1 << 30)):
        ask = ["window", str(tmp_path), "--no-cache", "--format", "json", "--memory", memory]
        asked = [sys.executable, "-m", "stepscope", *ask]
        run = subprocess.run(
            asked,
            capture_output=True,
            check=True,
            preexec_fn=lambda limit=limit: resource.setrlimit(resource.RLIMIT_DATA, (limit, limit)),
        )
        told[memory] = run.stdout
    assert told["256MiB"] == told["64GiB"]
