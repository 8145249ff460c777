"""Who gets the time first: the table names what there is, leads nowhere in circles, and credits a stretch once."""

from __future__ import annotations

from pathlib import Path

import pytest

from fake import call, make, nvtx, op
from stepscope.derive.windows.spec import WindowSpec
from stepscope.findings import detectors as folder
from stepscope.findings import order
from stepscope.findings.case import Case
from stepscope.findings.order import ORDER, After, credited_before
from stepscope.findings.registry import DETECTORS, WITHOUT_FINDING, detectors

US = 1000


def test_every_detector_is_registered_under_its_id() -> None:
    files = {file.stem for file in Path(folder.__file__).parent.glob("*.py")} - {"__init__"}
    assert {id.replace("-", "_") for id in DETECTORS} == files
    assert tuple(d.id for d in detectors()) == DETECTORS == tuple(sorted(DETECTORS))


def test_what_is_credited_before_has_a_remedy() -> None:
    with_remedy = {d.id for d in detectors() if d.remedy is not None} | WITHOUT_FINDING.keys()
    for row in ORDER:
        assert row.finding in DETECTORS
        assert set(row.causes) <= with_remedy
        assert row.why and "\n" not in row.why


def test_nothing_is_credited_before_itself() -> None:
    """A remedy may itself rest on a credit (that of `host-sync` does), so that circles would never end."""

    def reached(finding: str, kind: str, path: tuple[tuple[str, str], ...]) -> None:
        assert (finding, kind) not in path, path
        for cause in credited_before(finding, kind):
            reached(cause, "", (*path, (finding, kind)))

    for row in ORDER:
        assert len(set(credited_before(row.finding, row.kind))) == len(credited_before(row.finding, row.kind))
        reached(row.finding, row.kind, ())


def test_a_stretch_is_credited_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host collects garbage for 100 µs while it fetches its batch for 300: one stretch within the other.

        host  | fetch 0 ------------------ 300 |  launch 310-313
                      gc 100 -- 200
        GPU                                        315 --- 355

    Each alone is worth its own length. Once input is there, no more is to be had from the collector; without the
    collector, 200 µs of fetching are left.
    """
    tables = {
        "ops": [op(315 * US, 355 * US, call=1)],
        "calls": [call(310 * US, 313 * US, id=1)],
        "ranges": [
            nvtx(0, 300 * US, "next batch"),
            nvtx(100 * US, 200 * US, "gc.collect"),
            nvtx(0, 400 * US, "step 0"),
        ],
    }

    def credits(*rows: After) -> tuple[int, int]:
        monkeypatch.setattr(order, "ORDER", rows)
        case = Case(make(**tables), WindowSpec(index=0))
        return case.credit("data-stall"), case.credit("gc-pause")

    assert credits() == (300 * US, 100 * US)
    assert credits(After("gc-pause", ("data-stall",), "…")) == (300 * US, 0)
    assert credits(After("data-stall", ("gc-pause",), "…")) == (200 * US, 100 * US)
