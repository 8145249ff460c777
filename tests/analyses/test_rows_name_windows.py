"""With `--index all` every row says which it is of; CSV and Parquet say it always.

The truth is the same question asked of one window: rows of `--index all` that name window k are those of `--index k`.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Any

import polars as pl
import pytest

from fake import call, comm, make, nvtx, op
from faultcases import profile_of, scenario
from stepscope import api, questions
from stepscope.errors import BadInput, CannotAnswer
from stepscope.model.result import OfWindow, Result, names
from stepscope.render import render

NAMES = names(OfWindow)
#: Questions whose rows are windows or steps themselves; what each of the others is asked with.
STEPS = ("iterations", "window")
ASKED: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in questions.names() if questions.get(name).windowed and name not in STEPS),
    *(("idle", {"by": by}) for by in ("cause", "range")),
    *(("launches", {"by": by}) for by in ("stream", "rank", "time")),
    *(("concurrency", {"by": by}) for by in ("pair", "stream", "exposed", "op")),
    *(("collectives", {"by": by}) for by in ("group", "op", "size")),
    *(("timeline", {"by": by}) for by in ("part",)),
    ("nvtx", {"by": "name"}),
    ("kernels", {"by": "family"}),
    ("breakdown", {"tree": True}),
    ("overlap", {"by": "purpose"}),
    ("overlap", {"across": True}),
]
#: What these say of the trace is that they cannot be asked of it, or of several steps.
REFUSED = ("critical-path", "diagnose", "mfu", "pipeline", "source")


@pytest.fixture(scope="module")
def job() -> Iterator[api.Profile]:
    with profile_of(scenario("fsdp", steps=3)) as profile:
        yield profile


@pytest.mark.parametrize(("name", "options"), [a for a in ASKED if a[0] not in REFUSED], ids=str)
def test_rows_are_those_of_each_window_alone(job: api.Profile, name: str, options: dict[str, Any]) -> None:
    every = api.analyse(job, name, step=True, index="all", **options).rows
    assert set(NAMES) <= set(every.columns) and every["index"].unique().sort().to_list() == [0, 1, 2]
    for k in range(3):
        one = api.analyse(job, name, step=True, index=k, **options).rows
        mine = every.filter(pl.col("index") == k)
        if "inside" in mine.columns:  # an op that runs into a step it was not launched in is a row of its own step only
            one, mine = one.filter("inside"), mine.filter("inside")
        assert (mine["window"] == "step").all() and mine["label"].unique().to_list() == [f"step {k}"]
        assert not set(NAMES) & set(one.columns), "a single window is named above the rows"
        order = list(one.columns)
        assert mine.select(order).sort(order).equals(one.sort(order))


@pytest.mark.parametrize("name", REFUSED)
def test_others_refuse_several_windows_or_this_trace(job: api.Profile, name: str) -> None:
    with pytest.raises((BadInput, CannotAnswer)):
        api.analyse(job, name, index="all")


def test_one_step_is_named_too() -> None:
    """Whoever asks for all steps finds the same columns, however many there are."""
    rows = api.analyse(two_ranks("step 5", "step 5"), "overlap", index="all").rows
    assert rows.select(NAMES).unique().rows() == [("step", 0, "step 5")]
    assert api.analyse(two_ranks("step 5", "step 5"), "breakdown", by="step").rows["label"].to_list() == ["step 5"] * 2


def flat(result: Result) -> list[dict[str, str]]:
    rows = list(csv.DictReader(io.StringIO(render(result, "csv").decode())))
    parquet = pl.read_parquet(io.BytesIO(render(result, "parquet")))
    assert parquet.columns == list(rows[0])
    assert [str(v) for v in parquet["label"].to_list()] == [r["label"] or "None" for r in rows]
    return rows


def two_ranks(*labels: str) -> Any:
    """Two ranks, each with a chunk of its own: two ops, of which one communicates."""
    tables: dict[str, list[Any]] = {"ops": [], "calls": [], "ranges": []}
    for rank, label in enumerate(labels):
        of: dict[str, Any] = {"proc": rank}
        tables["calls"] += [call(1, 2, 1) | of, call(3, 4, 2) | of]
        tables["ops"] += [op(10, 40, call=1, **of), comm(20, 60, call=2, **of)]
        tables["ranges"] += [nvtx(0, 9, label, **of)]
    return make(**tables)


def test_csv_and_parquet_carry_the_window_of_each_rank() -> None:
    labels = [f"forward chunk {k} (phase0) backward chunk 0 (phase1)" for k in (3, 4)]
    rows = flat(api.analyse(two_ranks(*labels), "overlap"))
    assert [(r["rank"], r["window"], r["index"], r["label"]) for r in rows] == [
        ("0", "chunk", "0", labels[0]),
        ("1", "chunk", "0", labels[1]),
    ]


def test_a_row_over_ranks_has_what_their_windows_share() -> None:
    """Ranks whose chunks differ: the row has no label, rather than one of them."""
    labels = [f"forward chunk {k} (phase0) backward chunk 0 (phase1)" for k in (3, 4)]
    (row,) = flat(api.analyse(two_ranks(*labels), "overlap", across=True))
    assert (row["window"], row["index"], row["label"]) == ("chunk", "0", "")
    (row,) = flat(api.analyse(two_ranks("step 5", "step 5"), "overlap", across=True))
    assert (row["window"], row["index"], row["label"]) == ("step", "0", "step 5")


def test_rows_without_a_window_say_none() -> None:
    text = render(api.analyse(two_ranks("step 5", "step 5"), "setup"), "csv").decode()
    assert not set(NAMES) & set(text.splitlines()[0].split(","))


def test_an_answer_without_rows_is_a_file_without_rows() -> None:
    result = api.analyse(two_ranks("step 5", "step 5"), "exposed", start=12, end=15)
    assert result.rows.height == 0
    assert render(result, "csv").decode().splitlines()[0].endswith("window,index,label")
    assert pl.read_parquet(io.BytesIO(render(result, "parquet"))).height == 0


def test_a_table_says_which_step_a_row_is_of(job: api.Profile) -> None:
    answer = api.analyse(job, "breakdown", index="all", rank=0)
    for format in ("table", "md"):
        lines = render(answer, format).decode().splitlines()  # type: ignore[arg-type]
        assert all(any(f"step {k}" in line and "0" in line for line in lines) for k in range(3))
