"""What the report asks a rank at a time is what all ranks together answer."""

import polars as pl

from stepscope import api
from stepscope.api.reporting import asker_of
from stepscope.cli.main import run

JOB = "--schedule ddp --pp 1 --ep 1 --dp 4 --layers 1 --steps 2 --write nsys"


def test_ranks_alone_are_all_ranks(tmp_path):
    assert run(["simulate", *JOB.split(), "-o", str(tmp_path)]) == 0
    (trace,) = tmp_path.glob("*.sqlite")
    profile = api.open(trace, cache=False)
    asker = asker_of(profile.view(in_one_part=True), [str(trace)])
    ranks = profile.rank_ids()
    asked = {"by": "host", "whole": True}
    apart = [answer.rows for answer in asker.ask_each("timeline", ranks, **asked)]
    assert len(apart) == len(ranks) > 1
    together = asker.ask("timeline", **asked).rows
    own = [c for c in together.columns if c != "common_start_ns"]  # one rank alone is on its own clock
    assert pl.concat(apart).select(own).equals(together.select(own))


def test_the_step_is_that_of_all_ranks(tmp_path):
    assert run(["simulate", *JOB.split(), "-o", str(tmp_path)]) == 0
    (trace,) = tmp_path.glob("*.sqlite")
    profile = api.open(trace, cache=False)
    asker = asker_of(profile.view(in_one_part=True), [str(trace)])
    (answer,) = asker.ask_each("timeline", profile.rank_ids(), by="host", step=True)
    assert answer.rows["rank"].unique().sort().to_list() == profile.rank_ids()
