"""Records that contradict each other: planted one by one into the export of a simulated job, they head every answer."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

import stepscope
from marks import slow_unless
from stepscope.derive.rank.data import ranks_of
from stepscope.derive.rank.recorded import recorded
from stepscope.errors import GateFailed
from stepscope.model.note import CONTRADICTORY
from stepscope.render.answer_markdown import to_markdown
from stepscope.render.findings import findings_text
from stepscope.render.table import to_text
from stepscope.simulate.job.scenario import Scenario
from stepscope.simulate.run import simulate_to
from stepscope.verify import verify

KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
QUESTIONS = ("breakdown", "overlap", "exposed", "idle", "kernels", "collectives", "stragglers", "diagnose", "info")


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recorded")
    simulate_to(Scenario(pp=2, ep=1, micro_batches=4, steps=3, layers=4), folder, ("nsys",))
    (file,) = folder.glob("*.sqlite")
    return file


@pytest.fixture
def planted(healthy: Path, tmp_path: Path) -> Callable[[str], stepscope.Profile]:
    def plant(statement: str) -> stepscope.Profile:
        file = Path(shutil.copy(healthy, tmp_path / "planted.sqlite"))
        with closing(sqlite3.connect(file)) as db:
            db.execute(statement)
            db.commit()
        return stepscope.open(file, cache=False)

    return plant


def codes(profile: stepscope.Profile, question: str = "breakdown") -> list[str]:
    return [n.code for n in stepscope.api.analyse(profile, question).doubts]


def lost_of(profile: stepscope.Profile) -> int:
    return sum(recorded(d).lost + recorded(d).lost_at_end for d in ranks_of(profile))


@pytest.mark.parametrize(
    "schedule", slow_unless("zero-bubble".__eq__, ["1f1b", "zero-bubble", "dualpipev", "fsdp", "ddp"])
)
def test_a_sound_capture_does_not(schedule: str, tmp_path: Path) -> None:
    pp, dp = (1, 2) if schedule in ("fsdp", "ddp") else (2, 1)
    scenario = Scenario(schedule=schedule, steps=2, layers=8, pp=pp, dp=dp, ep=1, micro_batches=4)
    simulate_to(scenario, tmp_path, ("nsys", "kineto"))
    for pattern in ("*.sqlite", "*.trace.json*"):
        paths = list(tmp_path.glob(pattern))
        assert paths
        assert codes(stepscope.open(*paths)) == []


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_third_of_the_kernels_is_gone(planted: Callable[[str], stepscope.Profile], question: str) -> None:
    profile = planted(f"DELETE FROM {KERNELS} WHERE correlationId % 3 = 0")
    assert codes(profile, question) == ["launches-without-op"]


def test_as_many_are_lost_as_were_taken(planted: Callable[[str], stepscope.Profile], healthy: Path) -> None:
    kept = f"SELECT count(*) FROM {KERNELS} WHERE correlationId % 5 = 0"
    with closing(sqlite3.connect(healthy)) as db:
        ((taken,),) = db.execute(kept).fetchall()
    profile = planted(f"DELETE FROM {KERNELS} WHERE correlationId % 5 = 0")
    assert taken > 0
    assert lost_of(profile) == taken


def test_the_last_ones_are_no_contradiction(planted: Callable[[str], stepscope.Profile]) -> None:
    """A capture may stop before the GPU does: `capture verify` says it, answers do not begin with it."""
    last = f"SELECT max(end) - 2000000 FROM {KERNELS}"
    profile = planted(f"DELETE FROM {KERNELS} WHERE start > ({last})")
    assert lost_of(profile) > 0
    assert codes(profile) == []


def test_ops_before_their_launch(planted: Callable[[str], stepscope.Profile]) -> None:
    profile = planted(f"UPDATE {KERNELS} SET start = start - 50000000, end = end - 50000000")
    assert codes(profile) == codes(profile, "diagnose") == ["ops-before-launch"]
    assert all(recorded(d).early == d.is_kernel.sum() for d in ranks_of(profile))


def test_one_id_for_all(planted: Callable[[str], stepscope.Profile]) -> None:
    profile = planted(f"UPDATE {KERNELS} SET correlationId = (SELECT min(correlationId) FROM {KERNELS})")
    assert "launches-shared" in codes(profile)


def test_names_are_gone(planted: Callable[[str], stepscope.Profile]) -> None:
    """Nothing tells communication from compute then; one name in a thousand kernels is a note."""
    profile = planted("DELETE FROM StringIds")
    assert codes(profile) == ["kernels-without-name"]
    assert all(recorded(d).unnamed == recorded(d).kernels > 0 for d in ranks_of(profile))
    one = planted(f"UPDATE {KERNELS} SET demangledName = -1, shortName = -1 WHERE rowid = 3")
    assert codes(one) == []


def test_one_place_for_two_ranks(planted: Callable[[str], stepscope.Profile]) -> None:
    profile = planted("UPDATE NVTX_EVENTS SET text = replace(text, 'pp=1/2', 'pp=0/2') WHERE text LIKE 'rank=%'")
    assert codes(profile) == ["coordinates-twice"]
    assert "ranks 0-1" in stepscope.api.analyse(profile, "breakdown").notes[0]


def test_it_is_said_before_any_figure(planted: Callable[[str], stepscope.Profile]) -> None:
    profile = planted(f"DELETE FROM {KERNELS} WHERE correlationId % 3 = 0")
    table = stepscope.api.analyse(profile, "breakdown")
    texts = [to_text(table), findings_text(stepscope.api.analyse(profile, "diagnose")), to_markdown(table).decode()]
    for text in texts:
        lines = [line for line in text.splitlines() if line.strip("* ")]
        (at,) = (i for i, line in enumerate(lines) if line.strip("*").startswith("not to be trusted"))
        assert at <= 2, text
    assert table.summary["statement"].startswith("Not to be trusted")


def test_verify_fails_where_answers_doubt(planted: Callable[[str], stepscope.Profile]) -> None:
    profile = planted(f"DELETE FROM {KERNELS} WHERE correlationId % 3 = 0")
    with pytest.raises(GateFailed) as failed:
        verify(profile, profile.paths)
    failing = failed.value.result.rows.filter(status="failed")["check"].to_list()
    assert "nothing dropped" in failing


def test_verify_fails_on_names_that_are_gone(planted: Callable[[str], stepscope.Profile]) -> None:
    profile = planted("DELETE FROM StringIds")
    with pytest.raises(GateFailed) as failed:
        verify(profile, profile.paths)
    assert "have no name" in failed.value.result.rows.filter(check="records")["found"][0]


def test_comparing_says_it_of_its_side(planted: Callable[[str], stepscope.Profile], healthy: Path) -> None:
    profile = planted(f"DELETE FROM {KERNELS} WHERE correlationId % 3 = 0")
    notes = stepscope.api.compare(stepscope.open(healthy), profile).notes
    assert any(n.code in CONTRADICTORY and n.startswith("new: ") for n in notes)
