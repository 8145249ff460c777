"""A profile in other processes, in threads and under asyncio; and printed."""

from __future__ import annotations

import asyncio
import multiprocessing
import pickle
import subprocess
import sys
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import pytest

import stepscope
from stepscope import api
from stepscope.cli.main import run
from stepscope.simulate.job.scenario import Scenario
from stepscope.simulate.run import simulate_to


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("processes")
    shape = {"schedule": "fsdp", "pp": 1, "dp": 2, "ep": 1, "nodes": 2, "layers": 2, "micro_batches": 2, "steps": 3}
    simulate_to(Scenario(**shape, seed=7), folder, ("nsys",))
    return folder


@pytest.fixture(scope="module")
def profile(folder):
    return stepscope.open(folder, cache=False)


def _exposed(profile):
    return profile.overlap().rows["exposed_ns"].sum()


def test_a_pickled_profile_is_opened_again(profile):
    again = pickle.loads(pickle.dumps(profile))
    assert again is not profile and again.paths == profile.paths
    assert again.overlap().rows.equals(profile.overlap().rows)
    view = pickle.loads(pickle.dumps(profile.view([1])))
    assert view.rank_ids() == [1] and view.overlap().rows.equals(profile.overlap(rank=1).rows)


def test_runs_of_one_folder_are_pickled_apart(profile):
    (one, other), _ = api.open_runs(*profile.paths, runs="file", cache=False)
    assert [pickle.loads(pickle.dumps(p)).paths for p in (one, other)] == [one.paths, other.paths]


def test_answers_can_be_pickled(profile):
    answer = profile.overlap()
    again = pickle.loads(pickle.dumps(answer))
    assert again.rows.equals(answer.rows) and str(again) == str(answer)


@pytest.mark.slow
def test_a_spawned_process_answers(profile):
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        assert pool.submit(_exposed, profile).result() == _exposed(profile)


def test_a_daemonic_process_reads_files_by_itself(folder, profile, monkeypatch):
    """A worker of somebody's `multiprocessing.Pool`: it may not have processes of its own."""
    monkeypatch.setitem(multiprocessing.current_process()._config, "daemon", True)
    assert _exposed(stepscope.open(folder, cache=False, jobs=2)) == _exposed(profile)


#: Asks in this process, then in a fork of it.
_FORKED = """
import os, sys, warnings
warnings.simplefilter("ignore")
import stepscope
profile = stepscope.open(sys.argv[1], cache=False)
profile.overlap()
if os.fork() == 0:
    for ask in (profile.breakdown, lambda: profile.ranges, lambda: stepscope.open(sys.argv[1])):
        try:
            ask()
        except stepscope.StepscopeError as error:
            print(error, flush=True)
    os._exit(0)
os.wait()
"""
#: Forks before anything was asked: what many servers do.
_BEFORE = """
import os, sys
import stepscope
if os.fork() == 0:
    print(stepscope.open(sys.argv[1], cache=False).overlap().rows["exposed_ns"].sum(), flush=True)
    os._exit(0)
os.wait()
"""


#: Polars was used before, by somebody else.
_OF_POLARS = """
import os, sys, warnings
warnings.simplefilter("ignore")
import polars
polars.DataFrame({"a": [1], "b": [2]}).select(polars.col("a").sum(), polars.col("b").sum())
if os.fork() == 0:
    import stepscope
    from stepscope.files import forks
    forks._ENDS_S = 0.5
    try:
        stepscope.open(sys.argv[1], cache=False)
    except stepscope.StepscopeError as error:
        print(error, flush=True)
    os._exit(0)
os.wait()
"""
#: A profile that is handed to workers of a pool that forks: unpickling must not end them, the pool would wait for ever.
_POOLED = """
import sys, warnings
from multiprocessing import get_context
warnings.simplefilter("ignore")
import stepscope
def ask(profile):
    return profile.overlap().rows.height
profile = stepscope.open(sys.argv[1], cache=False)
with get_context("fork").Pool(1) as pool:
    try:
        pool.map(ask, [profile])
    except stepscope.StepscopeError as error:
        print(error)
"""


def _said(script: str, folder: Path) -> list[str]:
    command = [sys.executable, "-c", script, str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout.splitlines()


@pytest.mark.skipif(sys.platform == "win32", reason="has no fork")
@pytest.mark.parametrize(("script", "count"), [(_FORKED, 3), (_OF_POLARS, 1), (_POOLED, 1)])
def test_a_fork_is_refused_in_one_line(folder, script, count):
    lines = _said(script, folder)
    assert len(lines) == count and len(set(lines)) == 1
    assert "forked" in lines[0] and 'get_context("spawn")' in lines[0]


@pytest.mark.skipif(sys.platform == "win32", reason="has no fork")
def test_a_fork_before_anything_was_asked_answers(folder, profile):
    assert _said(_BEFORE, folder) == [str(_exposed(profile))]


QUESTIONS = ("overlap", "breakdown", "idle", "exposed", "kernels", "stragglers", "streams", "window")


def test_threads_share_a_profile(folder, profile):
    """All ask at once; each gets what it gets alone."""
    fresh = stepscope.open(folder, cache=False)
    ready = threading.Barrier(len(QUESTIONS))

    def ask(name):
        ready.wait(60)
        return api.analyse(fresh, name).rows

    with ThreadPoolExecutor(len(QUESTIONS)) as pool:
        answers = list(pool.map(ask, QUESTIONS))
    for name, rows in zip(QUESTIONS, answers, strict=True):
        assert rows.equals(api.analyse(profile, name).rows), name


def test_asyncio_asks_in_threads(profile):
    async def both():
        return await asyncio.gather(asyncio.to_thread(profile.overlap), asyncio.to_thread(profile.breakdown))

    overlap, breakdown = asyncio.run(both())
    assert overlap.rows.equals(profile.overlap().rows) and breakdown.rows.equals(profile.breakdown().rows)


@pytest.mark.parametrize("name", ["overlap", "diagnose", "info", "kernels"])
def test_print_shows_what_the_command_prints(folder, profile, name, capsys):
    assert run([name, str(folder), "--no-cache"]) == 0
    assert str(api.analyse(profile, name)) + "\n" == capsys.readouterr().out
