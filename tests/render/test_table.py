"""Tables: what is above and below them, and how they fit."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepscope.model.result import Result
from stepscope.model.source import SourceInfo
from stepscope.render import layout
from stepscope.render.table import to_text


def window(rank: int, label: str = "step 4", index: int = 4) -> dict:
    return {"rank": rank, "pid": 1, "label": label, "index": index, "count": 9, "gpu_start_ns": 0, "gpu_end_ns": 7_000}


def result(rows: pl.DataFrame, **more) -> Result:
    return Result(rows, command="ask", sources=[SourceInfo("a.sqlite", "nsys-sqlite")], ranks=2, **more)


SMALL = pl.DataFrame(
    {"rank": [0, 1], "stage": ["stage2_f", None], "exposed_ns": [1_500, 20], "overlap_pct": [58.4, None]}
)


def test_a_small_table():
    assert to_text(result(SMALL, window=[window(0), window(1)], notes=["12 ranges dropped"])) == (
        "ask: a.sqlite (nsys-sqlite), 2 ranks\n"
        "window: step 4 (#4 of 9) on ranks 0-1: 7.000 µs of GPU time\n"
        "\n"
        "rank  stage      exposed  overlap %\n"
        "────  ────────  ────────  ─────────\n"
        "   0  stage2_f  1.500 µs      58.4%\n"
        "   1  -         0.020 µs          -\n"
        "\n"
        "note: 12 ranges dropped\n"
    )


def test_many_windows_are_one_line():
    text = to_text(result(SMALL, window=[window(r, f"step {i}", i) for r in range(64) for i in range(9)]))
    assert "window: 576 windows on ranks 0-63: step 0 … step 8: 7.000 µs of GPU time" in text


def test_no_rows_say_so():
    assert "(no rows)" in to_text(result(SMALL.clear()))


def test_colour_only_when_asked():
    assert "\x1b[" in to_text(result(SMALL), colour=True)
    assert "\x1b[" not in to_text(result(SMALL))


def test_axes_are_one_column():
    rows = pl.DataFrame({"rank": [0], "pp_rank": [1], "pp_size": [4]})
    assert "1/4" in to_text(result(rows))


def test_times_count_from_the_captures_beginning():
    rows = pl.DataFrame({"rank": [0, 1], "start_ns": [3_847_876_236_557_000, 7_000_000], "end_ns": [None, 9_000_000]})
    text = to_text(replace(result(rows), begins={0: 3_847_876_236_000_000, 1: 2_000_000}))
    cells = [line.split()[:3] for line in text.splitlines() if line.strip()[:1] in ("0", "1")]
    assert cells == [["0", "0.557", "ms"], ["1", "5.000", "ms"]]
    assert "times are relative to the start of the capture" in text


def test_clocks_that_ran_long_are_counted_from_a_second():
    rows = pl.DataFrame({"start_ns": [3_847_876_236_557_000], "end_ns": [3_847_876_278_279_000]})
    text = to_text(result(rows))
    assert "236.557 ms" in text
    assert "times are relative to 3847876 s" in text


def test_kernel_names_lose_what_makes_them_long():
    name = "void at::native::(anonymous namespace)::fill<4, Functor<int>, std::array<char*, 1>>(int, Functor<int>)"
    assert layout.bare_name(name) == "fill<Functor>"
    assert layout.bare_name("forward chunk 4 (phase0)") == "forward chunk 4 (phase0)"


def test_texts_that_differ_still_differ_when_cut():
    rows = pl.DataFrame({"file": [f"{'x' * 60}.rank{r}.{'y' * 60}" for r in range(4)], "n": range(4)})
    cells = {line.split()[0] for line in to_text(result(rows)).splitlines() if "…" in line}
    assert len(cells) == 4


def test_too_wide_tables_say_once_what_is_the_same_everywhere():
    names = [f"quantity_{i}_ns" for i in range(14)]
    rows = pl.DataFrame({"rank": [0, 1], "host": ["node-with-a-name"] * 2, **{n: [123_456, 9] for n in names}})
    assert "in every row: host node-with-a-name" in to_text(result(rows))


def test_summary_shows_values_tables_and_pairs():
    summary = {"p50_ns": 1_500, "by": {"host": 4, "sync": 2}, "pace": [{"rank": 0, "p99_ns": 20}], "plot": False}
    text = to_text(result(SMALL, summary=summary))
    assert "p50 1.500 µs" in text
    assert "by: host 4 · sync 2" in text
    assert "pace\nrank    p99\n" in text
    assert "plot" not in text


@given(st.lists(st.lists(st.text(max_size=200), min_size=1, max_size=6), min_size=1, max_size=8), st.integers(20, 120))
def test_lines_are_aligned_whatever_the_texts(columns, budget):
    height = min(map(len, columns))
    table = [
        layout.Column(f"col_{i}", [" ".join(c.split()) for c in col[:height]], False) for i, col in enumerate(columns)
    ]
    gap = layout.fit(table, budget)
    head, body = layout.lines(table, gap)
    widest = layout.width(head[-1])
    assert len(body) == height
    assert all(layout.width(line) <= widest for line in [*head, *(line for row in body for line in row)])


WHY = "a run of half the steps and a quarter more: +381.8 % of the step (+379.4 to +384.2 %), limit 2 %"


@pytest.mark.parametrize("width", [60, 80, 100, 120])
@pytest.mark.parametrize("times", [1, 9])
def test_sentences_go_on_in_the_next_line(width, times):
    """In their column, or below their row where they would be a tower: no word is cut, and no line is too wide."""
    kernel = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>"
    rows = pl.DataFrame({"check": ["x", "y"], "name": [kernel, "k"], "base_ns": [54_050_000, 1]})
    why = " ".join([WHY] * times)
    text = to_text(Result(rows.with_columns(why=pl.Series([why, f"{why} again"]))), width)
    assert max(map(layout.width, text.splitlines())) <= width
    assert [word for word in text.split() if word in WHY.split()] == WHY.split() * times * 2
    assert ("└ why" in text) == (times > 1 or width < 80)
    assert "2 %" in text and not any(line.strip().startswith("%") for line in text.splitlines())


def test_texts_that_are_no_sentences_are_cut():
    kernel = "some words that are the name of a range " * 9
    assert "…" in to_text(result(pl.DataFrame({"name": [kernel, "k"], "base_ns": [54_050_000, 1]})), 80)


def test_a_tree_is_indented_and_needs_no_paths():
    rows = pl.DataFrame(
        {"depth": [0, 1], "path": ["step", "step > forward"], "range": ["step", "forward"], "n": [1, 2]}
    )
    lines = to_text(Result(rows)).splitlines()
    assert lines[2:6] == ["range      n", "─────────  ─", "step       1", "  forward  2"]


def test_numbers_that_repeat_a_column_are_named_where_room_is_short():
    rows = pl.DataFrame({"host_ns": [5, 6], "mean_ns": [5, 6], "max_ns": [5, 6], "gpu_ns": [7, 8]})
    assert "mean" in to_text(Result(rows)).splitlines()[2]
    narrow = to_text(Result(rows), width=14)
    assert "mean, max: same as\n  host in every row" in narrow
