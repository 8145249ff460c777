"""The harness itself: lengths of steps against simulated ones, its table of pairs, and what it makes of figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs import written
from promises import page, real, simulated
from promises.pair import Healthy, Pair, Said, figures
from stepscope.simulate.job.scenario import Scenario
from stepscope.simulate.truth import step_times


@pytest.mark.parametrize("tool", ["nsys", "kineto"])
def test_lengths_of_steps_are_those_of_the_job(tool: str) -> None:
    """From the end of a step to that of the next; the first is not counted."""
    shape = {"schedule": "ddp", "pp": 1, "dp": 2, "ep": 1, "layers": 2, "micro_batches": 2, "steps": 4}
    with written(Scenario(**shape, faults=("dataloader:stall_ms=5",)), (tool,)) as (job, folder):
        found = real.step_lengths(sorted(folder.iterdir()))
        truth = step_times(job)[1:]
    assert found == pytest.approx(truth, rel=0.002)


def test_captures_of_the_repository_are_there() -> None:
    for row in (*real.table()["pair"], *real.table()["healthy"]):
        names = [row["files"], *row.get("twins", {}).values()]
        assert all(real._found(name) for name in names if name.startswith("data:")), row["job"]


def test_every_fault_of_the_simulator_is_tried() -> None:
    full = simulated.cases("full")
    assert len(full) >= 1000
    assert {(c.fault, c.schedule) for c in full} >= {(f, s) for f in simulated.FAULTS for s in simulated.SHAPES}
    assert {c.fault for c in simulated.cases("quick")} == set(simulated.FAULTS)


def pair(truth: int, *said: Said, beside: int = 0) -> Pair:
    return Pair("job", "nsys", "slow", ("straggler",), truth, None, 1000, said, None, beside)


def test_what_was_not_found_was_promised_nothing() -> None:
    missed = pair(100, Said("host-sync", "0", 90, "certain"))
    assert (missed.error, missed.named_first, missed.must_be_first, missed.missed) == (-1.0, False, True, True)
    assert not pair(100, beside=200).must_be_first  # something larger is wrong with the twin
    assert not pair(20).material


def test_figures_of_some_pairs() -> None:
    said = [Said("straggler", "0", ns, "certain", 90, 110) for ns in (100, 105, 120)]
    told = figures([pair(100, s) for s in said] + [pair(130, said[0])])
    assert told is not None
    assert (told.n, told.covered, told.stated, told.first) == (4, 3, 4, 4)
    assert told.median == pytest.approx((0.05 + 0.2) / 2)
    assert told.worst == pytest.approx(30 / 130)


def test_a_healthy_job_has_no_fault() -> None:
    told = (Said("straggler", "0", 90, "certain"), Said("exposed-communication", "0", 90, "certain"))
    assert Healthy("job", "nsys", 1000, told).false == [told[0]]
    assert Healthy("job", "nsys", 1000, told, {"straggler": "it was swapped"}).false == []


def test_the_page_of_no_pairs_and_of_some() -> None:
    assert "## Healthy twins" in page.page([], [], [], [], "quick")
    text = page.page([pair(100, Said("straggler", "0", 40, "certain", 30, 50))], [], [], [], "quick")
    assert "| straggler | 40.0" not in text  # nanoseconds are shown as milliseconds
    assert "-60" in text and "### Misses" in text


def test_the_data_is_ours() -> None:
    """Small, and scrubbed: archives of one trace each."""
    for path in sorted((Path(real.DATA) / "promises").glob("*.tar.xz")):
        assert path.stat().st_size < 1_000_000
