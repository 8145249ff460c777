"""One process matches communication once, however many questions a report asks."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from stepscope import api
from stepscope.derive.comm import across, calls
from stepscope.report import Asker, gather
from stepscope.simulate.job.scenario import Scenario
from stepscope.simulate.run import simulate_to


@pytest.mark.slow
def test_a_report_matches_and_aligns_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = Scenario(schedule="1f1b", pp=2, dp=2, nodes=2, layers=2, micro_batches=2, steps=2)
    simulate_to(scenario, tmp_path, ("nsys",))
    runs: Counter[str] = Counter()
    for module, name in ((across, "match"), (across, "align"), (calls, "all_sides")):
        original = getattr(module, name)

        def counted(*args, _name=name, _original=original):
            runs[_name] += 1
            return _original(*args)

        monkeypatch.setattr(module, name, counted)
    profile = api.open(tmp_path, cache=False).view(in_one_part=True)
    asker = Asker(lambda name, **options: api.analyse(profile, name, **options), (str(tmp_path),))
    report = gather(asker, "stepscope report", drawn=True)
    assert report.findings is not None and not [m for m in report.missing if "Collectives" in m.title]
    assert runs == {"match": 1, "align": 1, "all_sides": 1}


def test_views_share_what_is_known_of_a_rank(tmp_path: Path) -> None:
    from stepscope.derive.rank.data import ranks_of

    simulate_to(Scenario(schedule="ddp", pp=1, ep=1, dp=2, nodes=2, layers=2, steps=2), tmp_path, ("nsys",))
    whole = api.open(tmp_path, cache=False).view(in_one_part=True)
    first, second = ranks_of(whole)
    assert list(ranks_of(whole.view([1]))) == [second]
    assert list(ranks_of(whole.view())) == [first, second]
    apart = api.open(tmp_path, cache=False)
    assert list(ranks_of(apart.view([1]))) != list(ranks_of(apart))[1:]
