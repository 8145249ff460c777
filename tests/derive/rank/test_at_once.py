"""Ranks in threads: the same answers, in the same order, and the same failures; work that nobody wants stops."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from fake import call, make, op
from stepscope import api, progress
from stepscope.derive.rank import at_once
from stepscope.derive.rank.at_once import of_each
from stepscope.derive.rank.data import ranks_of
from stepscope.errors import CannotAnswer
from stepscope.files import cores
from stepscope.model.profile import Profile
from stepscope.simulate.job.scenario import Scenario
from stepscope.simulate.run import simulate_to

RANKS = 40


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> Profile:
    """Ranks whose few ops are worth a thread, on a machine of two cores."""
    monkeypatch.setattr(at_once, "_WORTH_OPS", 1)
    monkeypatch.setenv(cores.ENV, "2")
    ops = [op(10 + r, 20 + r, call=1, proc=r) for r in range(RANKS)]
    calls = [call(1 + r, 2 + r, 1) | {"proc": r} for r in range(RANKS)]
    return make([{"proc": r, "rank": r} for r in range(RANKS)], ops=ops, calls=calls)


def test_answers_come_in_the_order_of_the_ranks(many):
    threads = set()

    def start(data):
        threads.add(threading.get_ident())
        return data.rank, int(data.start[0])

    assert of_each(many, ranks_of(many), start) == [(r, 10 + r) for r in range(RANKS)]
    assert len(threads) > 1


def test_one_core_is_one_thread(many, monkeypatch):
    monkeypatch.setenv(cores.ENV, "1")
    threads = of_each(many, ranks_of(many), lambda data: threading.get_ident())
    assert set(threads) == {threading.get_ident()}


def test_the_first_rank_that_fails_says_why(many):
    def fails(data):
        if data.rank in (7, 9, 33):
            raise CannotAnswer(f"rank {data.rank}")
        return data.rank

    with pytest.raises(CannotAnswer, match="rank 7"):
        of_each(many, ranks_of(many), fails)


def test_work_that_nobody_wants_stops_in_the_threads_too(many):
    asked = []

    def derive(data):
        asked.append(data.rank)
        progress.check()

    with pytest.raises(progress.Stopped), progress.wanted(lambda: len(asked) > 2):
        of_each(many, ranks_of(many), derive)
    assert len(asked) < RANKS


def test_what_a_rank_asks_of_others_is_not_shared_out_again(many):
    def inner(data):
        return of_each(many, ranks_of(many), lambda _: threading.get_ident())

    answers = of_each(many, ranks_of(many), inner)
    assert all(len(set(threads)) == 1 for threads in answers[1:16])


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("at-once")
    simulate_to(Scenario(pp=2, ep=1, micro_batches=4, steps=3, layers=4), folder, ("nsys",))
    (file,) = folder.glob("*.sqlite")
    return file


@pytest.mark.parametrize("question", ["idle", "launches", "critical-path", "diagnose"])
def test_questions_answer_alike_in_threads_and_without(question, simulated, monkeypatch):
    answers = []
    for threads, worth in (("1", 1 << 60), ("2", 1)):
        monkeypatch.setenv(cores.ENV, threads)
        monkeypatch.setattr(at_once, "_WORTH_OPS", worth)
        answer = api.analyse(api.open(simulated, cache=False), question)
        answers.append((answer.rows.to_dicts(), answer.summary, answer.notes))
    assert answers[0] == answers[1]
