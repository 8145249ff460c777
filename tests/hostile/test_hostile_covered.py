"""No defect without a test: every input of ../shared/hostile, and every other defect that its README tells of.

Where ../shared is present, its inputs themselves are asked, too: two commands of each here, all in `make reliability`.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest
from test_hostile_inputs import EXPECTED

from hostile_shared import commands, inputs, wrong

TESTS = Path(__file__).resolve().parents[1]
_DAMAGE = "sources/nsys/test_nsys_damage.py::test_no_other_figure_without_a_word"

#: Inputs whose test lies with the reader that they are about.
ELSEWHERE = {
    "d_silent_128.sqlite": _DAMAGE,
    "d_silent_130.sqlite": _DAMAGE,
    "d_silent_169.sqlite": _DAMAGE,
    "str1g.json.gz": "sources/kineto/test_kineto_broken.py::test_a_bomb_is_refused_before_it_is_unpacked",
}

#: Defects of the README that are no file, by its sections, and the tests that hold them.
HELD = {
    "A2 a window without GPU work": "analyses/test_incomplete.py::test_a_rank_that_died_or_came_late",
    "A5 values of any type": "fuzz/test_mutants.py::test_values_of_every_type_in_every_column",
    "A9 ~nouser": "cli/test_standard_streams.py::test_nobody_of_that_name",
    "A9 closed and full streams": "cli/test_standard_streams.py::test_nowhere_to_write",
    "A9 stderr closed": "cli/test_standard_streams.py::test_errors_never_reach_standard_output",
    "A9 encodings": "cli/test_standard_streams.py::test_an_encoding_without_the_character",
    "A9 numbers out of range": "cli/test_standard_streams.py::test_numbers_out_of_range",
    "A9 odd options": "hostile/test_hostile_options.py::test_one_line",
    "A9 --start 0": "hostile/test_hostile_options.py::test_a_part_that_begins_at_zero",
    "A10 panics and memory": "cli/test_standard_streams.py::test_a_panic_is_one_line",
    "B /proc": "cli/test_standard_streams.py::test_what_the_system_makes_up_is_not_read",
    "B long names": "render/test_narrow.py::test_a_name_of_a_megabyte_takes_no_time",
    "B views": "sources/nsys/test_nsys_broken.py::test_a_view_in_place_of_a_table_is_refused",
    "C10 replaced files": "store/test_cached.py::test_what_is_read_of_a_changed_file_is_neither_shown_nor_kept",
    "C11 pages not checked": "sources/nsys/test_nsys_damage.py::test_a_large_export_with_gaps_says_so",
    "C12 baselines": "compare/test_gate.py::test_a_file_that_is_no_baseline",
    "C13 --start -5": "cli/test_standard_streams.py::test_numbers_out_of_range",
    "D terminal": "render/test_inert.py::test_no_order_reaches_a_terminal",
    "D stderr": "render/test_inert.py::test_an_error_is_inert",
    "D Markdown": "render/test_inert.py::test_markdown_shows_it_as_it_is",
    "D CSV": "render/test_inert.py::test_a_spreadsheet_computes_nothing",
    "D JSON": "render/test_inert.py::test_json_keeps_the_names",
    "D HTML": "report/test_report.py::test_names_do_not_become_markup",
    "D HTML requests": "report/test_report.py::test_the_page_forbids_every_request",
    "E signals to capture run": "capture/test_run.py::test_a_run_that_is_ended_leaves_nothing",
    "E sessions of their own": "capture/test_run.py::test_children_in_sessions_of_their_own_are_ended_too",
    "E a file written while it fails": "files/test_whole.py::test_a_write_that_fails_leaves_nothing",
    "E disk full": "files/test_whole.py::test_a_full_disk",
    "E what was there": "files/test_whole.py::test_what_was_there_stays",
    "E the cache": "store/test_damage.py::test_every_flipped_bit_is_found",
    "F refusals of capture run": "capture/test_run.py::test_options_that_cannot_be",
}


@cache
def functions(file: str) -> set[str]:
    tree = ast.parse((TESTS / file).read_text("utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("defect", [*ELSEWHERE, *HELD])
def test_the_test_is_there(defect: str) -> None:
    file, _, name = {**ELSEWHERE, **HELD}[defect].partition("::")
    assert name in functions(file)


def test_every_input_has_a_test(shared: Path) -> None:
    found = {path.name for path in inputs(shared)}
    assert found == (set(EXPECTED) | set(ELSEWHERE)) & found
    assert len(found) > 60


@pytest.mark.slow
def test_the_inputs_themselves(shared: Path, tmp_path: Path) -> None:
    """Two commands of each, in turn; the bomb takes its time."""
    failures = []
    for number, path in enumerate(inputs(shared)):
        if not path.name.endswith(".gz"):
            lines = commands(path, tmp_path)
            failures += [wrong(path, lines[at % len(lines)]) for at in (number, number + 1)]
    assert [said for said in failures if said] == []
