"""Long lists: people see the rows that matter, programs see all, and `--top` means the same everywhere."""

from __future__ import annotations

import csv
import io
import json

import polars as pl
import pytest

from fake import call, make, nvtx, op
from stepscope import api, questions
from stepscope.cli.main import run
from stepscope.errors import BadInput
from stepscope.model.result import LONG, MANY, SHOWN, Result
from stepscope.render import render

GAPS = [(7 * k) % 41 + 1 for k in range(40)]  # every length from 1 to 40, mixed


@pytest.fixture
def profile():
    ops, calls, t = [], [], 100
    for k, gap in enumerate([0, *GAPS], 1):
        t += gap
        ops.append(op(t, t + 10, f"kernel_{k:02}", call=k))
        calls.append(call(k, k + 1, k))
        t += 10
    return make(ops=ops, calls=calls, ranges=[nvtx(0, 50, "step 0")])


def test_people_see_ten_and_programs_all(profile):
    result = api.analyse(profile, "idle", whole=True)
    assert result.rows["gap_ns"].to_list() == GAPS
    text = render(result, "table").decode()
    shown = [line for line in text.splitlines() if "queue" in line and "kernel_" in line]
    assert [int(line.split()[4]) for line in shown] == sorted(GAPS, reverse=True)[:SHOWN]
    assert "… and 30 more (--top 0 shows all)" in text
    markdown = render(result, "md").decode()
    assert sum("kernel_" in line for line in markdown.splitlines()) == SHOWN and "… and 30 more" in markdown
    assert len(json.loads(render(result, "json"))["rows"]) == 40
    assert len(list(csv.DictReader(io.StringIO(render(result, "csv").decode())))) == 40
    assert pl.read_parquet(io.BytesIO(render(result, "parquet"))).height == 40


def test_whoever_says_how_many_gets_so_many_in_every_format(profile):
    three = api.analyse(profile, "idle", whole=True, top=3)
    assert three.rows["gap_ns"].to_list() == sorted(GAPS, reverse=True)[:3]
    assert len(json.loads(render(three, "json"))["rows"]) == 3
    assert "… and 37 more" in render(three, "table").decode()
    everything = api.analyse(profile, "idle", whole=True, top=0)
    text = render(everything, "table").decode()
    assert sum("kernel_" in line for line in text.splitlines()) == 40 and "more (" not in text
    with pytest.raises(BadInput, match="--top -1"):
        api.analyse(profile, "idle", whole=True, top=-1)


def test_steps_paths_and_trees_keep_their_order():
    rows = pl.DataFrame({"order": range(40), "dur_ns": GAPS})
    shown = Result(rows, ranked_by="dur_ns").for_people().rows
    longest = sorted(range(40), key=lambda k: -GAPS[k])[:SHOWN]
    assert shown["order"].to_list() == sorted(longest)


def test_a_list_that_is_not_long_is_shown_whole():
    rows = pl.DataFrame({"ns": range(LONG)})
    assert Result(rows, ranked_by="ns").for_people().rows.height == LONG
    assert Result(rows, ranked_by="ns").for_people().more is None
    many = pl.DataFrame({"ns": [None, *range(LONG)]}, schema={"ns": pl.Int64})
    assert Result(many, ranked_by="ns").for_people().rows["ns"].to_list() == list(range(LONG - 1, LONG - 1 - SHOWN, -1))
    assert Result(many).for_people().rows.height == LONG + 1  # ranks and windows are cut only where there are hundreds
    ranks = Result(pl.DataFrame({"rank": range(MANY + 7)})).for_people()
    assert ranks.rows["rank"].to_list() == list(range(MANY))
    assert ranks.more == "… and 7 more (--top 0 shows all)"
    assert Result(many, ranked_by="").for_people().rows["ns"].to_list() == [None, *range(SHOWN - 1)]


def test_every_command_has_it(capsys):
    for name in questions.names():
        assert run([name, "--help"]) == 0
        assert "--top N" in capsys.readouterr().out, name
        assert all(option.name != "top" for option in questions.get(name).options)


def test_ranked_by_names_a_column(profile):
    """Whatever an option makes of the rows, they have the column by which they are said to matter."""
    for name in questions.names():
        analysis = questions.get(name)
        for variant in (None, *(v for v in analysis.variants if v.startswith("by="))):
            options = {"by": variant.removeprefix("by=")} if variant else {}
            try:
                result = api.analyse(profile, name, **options)
            except Exception:
                continue
            assert not result.ranked_by or result.ranked_by in result.rows.columns, (name, variant)


@pytest.mark.parametrize("format", ["table", "md"])
def test_rows_may_be_chosen_by_a_column_that_is_not_shown(format):
    """Of many measured kernels people see those of most time, though `total_ns` has no room in the table."""
    rows = pl.DataFrame(
        {"kernel": range(40), "name": ["k"] * 40, "dur_ns": [1] * 40, "total_ns": GAPS, "roof_pct": 1.0}
    )
    text = render(Result(rows, command="roofline", ranked_by="total_ns"), format).decode()
    assert f"… and {40 - SHOWN} more" in text and "total" not in text
    numbers = [int(line.strip("| ").split()[0]) for line in text.splitlines() if " k " in line or "`k`" in line]
    assert [GAPS[k] for k in numbers] == sorted(GAPS, reverse=True)[:SHOWN]
