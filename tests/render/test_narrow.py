"""Tables in 80 columns: no line is longer, no number is cut, headings differ, and what is not shown is named."""

from __future__ import annotations

import re
import time
from pathlib import Path

import polars as pl
import pytest

import stepscope
from stepscope import questions
from stepscope.errors import StepscopeError
from stepscope.model.alike import alike
from stepscope.model.result import Result
from stepscope.render import narrowed, render
from stepscope.render.table import headings
from stepscope.simulate.job.scenario import Scenario
from stepscope.simulate.run import simulate_to

WIDTH = 80


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> list[Result]:
    folder: Path = tmp_path_factory.mktemp("narrow")
    simulate_to(Scenario(pp=2, ep=2, layers=4, micro_batches=4, steps=3), folder, ("nsys",))
    profile = stepscope.open(folder)
    found = []
    for name in questions.names():
        try:
            found.append(stepscope.api.analyse(profile, name))
        except StepscopeError:
            continue
    assert len(found) > 20
    return found


@pytest.mark.parametrize("letter", ["x", "λ"])
def test_a_name_of_a_megabyte_takes_no_time(letter: str) -> None:
    """The time went with its length: 60 µs a character."""
    names = [letter * 1_000_000 + str(k) for k in range(10)]
    table = pl.DataFrame({"name": names, "other": names, "total_ns": range(10)})
    began = time.monotonic()
    text = render(Result(table), "table").decode()
    assert time.monotonic() - began < 5  # it took minutes
    assert len(text) < 10_000 and text.count("…") >= 10


@pytest.mark.slow
def test_no_line_is_longer(answers: list[Result]) -> None:
    for result in answers:
        text = render(result, "table", width=WIDTH).decode()
        long = [line for line in text.splitlines() if len(line) > WIDTH and " " in line.strip()]
        assert not long, (result.command, long[0])


def test_headings_differ(answers: list[Result]) -> None:
    for result in answers:
        titles = headings(result.rows.columns)
        assert len({*titles.values()}) == len(titles), result.command
        assert all(title.endswith("%") == name.endswith("_pct") for name, title in titles.items())


def below(text: str) -> str:
    """What is said under a table of columns that are not in it: such lines, and those they go on in."""
    said, on = [], False
    for line in text.splitlines():
        on = bool(re.search(r"^not shown:|in every row", line)) or (on and line.startswith("  "))
        said += [line.strip()] if on else []
    return " ".join(said)


def test_numbers_are_whole_or_their_column_is_named(answers: list[Result]) -> None:
    """Each number of the first row is in the table as it is, or its column is said to be elsewhere."""
    looked = 0
    for result in answers:
        if result.command in ("diagnose", "nvtx", "critical-path", "compute") or not result.rows.height:
            continue  # not a table, times that count from elsewhere, or a choice of columns
        shown = result.for_people().rows
        if (
            result.command == "kernels"
        ):  # what launches allow is for programs and `serve`, unless occupancy was measured
            shown = narrowed(result).for_people().rows
        text = render(result, "table", width=WIDTH).decode()
        titles, elsewhere = headings(shown.columns), below(text)
        cells = {cell for line in text.splitlines() for cell in re.split(r" {1,}(?![nµm]?s\b|[KMGT]?i?B\b)", line)}
        for name, value in shown.row(0, named=True).items():
            if not isinstance(value, int | float) or re.search(r"start|end|_rank$|_size$|^at_|ppm", name):
                continue
            looked += 1
            cell = alike(name, shown[name].to_list())[0]
            assert cell in cells or titles[name] in elsewhere, (result.command, name, value)
    assert looked > 100


def test_a_check_is_painted_and_its_prose_wraps() -> None:
    found, fix = "much " * 30, "mend " * 30
    checks = {"check": ["a", "b"], "status": ["failed", "ok"], "ranks": ["2", ""], "found": [found, "little"]}
    rows = pl.DataFrame({**checks, "expected": ["", ""], "fix": [fix, "never"]})
    text = render(Result(rows, command="capture verify"), "table", width=WIDTH, colour=True).decode()
    assert "\x1b[31mfailed\x1b[0m" in text and "\x1b[32mok\x1b[0m" in text
    plain = re.sub(r"\x1b\[\d+m", "", text)
    assert max(map(len, plain.splitlines())) <= WIDTH
    assert (plain.count("much"), plain.count("mend"), plain.count("never")) == (30, 30, 0)


def test_a_column_without_a_title_is_as_wide_as_its_cells() -> None:
    rows = pl.DataFrame({"": ["first", "second"], "much_text_ns": [1, 2], "other": ["x " * 40, "y " * 40]})
    assert "second" in render(Result(rows, command="ask"), "table", width=40).decode()


def table_of(text: str) -> str:
    return text.split("\nnot shown", 1)[0]


def test_a_table_without_room_keeps_what_it_is_read_for() -> None:
    """The last column was the first to go: a comparison without its verdict; a range's `gpu` is time, not a number."""
    times = {f"{name}_ns": [1_234_567, 2_345_678] for name in ("base", "new", "diff", "low", "high", "more", "most")}
    rows = pl.DataFrame({"part": ["compute", "idle"], **times, "verdict": ["shorter"] * 2})
    text = render(Result(rows), "table", width=60).decode()
    assert "shorter" in table_of(text) and " low" not in table_of(text)
    assert "low, high" in below(text)
    names = ("host", "gpu", "kernel", "copy", "self_host", "self_gpu", "self_kernel", "self_copy")
    rows = pl.DataFrame(
        {
            "range": ["forward", "backward"],
            **{f"{name}_ns": [1_234_567, 1_000_000 + 1_000 * k] for k, name in enumerate(names)},
        }
    )
    text = render(Result(rows), "table", width=60).decode()
    assert {"host", "gpu"} <= {*table_of(text).split()} and "self_copy" in below(text)


def test_names_of_which_less_than_half_would_be_left_stand_below() -> None:
    names = [f"unrolled_elementwise_kernel<{what}_copy_kernel_cuda>" for what in ("direct", "other")]
    figures = {f"{name}_ns": [10_280_000, 48_690] for name in ("total", "mean", "median", "max", "least")}
    text = render(Result(pl.DataFrame({"name": names, **figures})), "table", width=WIDTH - 10).decode()
    assert all(name in text for name in names)
