"""Which files are ranks of one run, and which are runs of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepscope.compare.grouping import Held, runs_of
from stepscope.errors import BadInput


def files(*given: tuple[str, set[int]]) -> list[Held]:
    return [Held(Path(path), max(len(ranks), 1), frozenset(ranks)) for path, ranks in given]


@pytest.mark.parametrize(
    ("given", "runs", "said"),
    [
        ([("a.sqlite", {0, 1})], [[0]], "1 run of 2 ranks"),
        ([("x/r0.json", {0}), ("x/r1.json", {1})], [[0, 1]], "1 run of 2 ranks in 2 files"),
        ([("node0/a.sqlite", {0, 1}), ("node1/a.sqlite", {2, 3})], [[0, 1]], "1 run of 4 ranks"),
        ([("a.sqlite", {0, 1}), ("b.sqlite", {0, 1}), ("c.sqlite", {0, 1})], [[0], [1], [2]], "3 runs, one per file"),
        (
            [("r1/0.json", {0}), ("r1/1.json", {1}), ("r2/0.json", {0}), ("r2/1.json", {1})],
            [[0, 1], [2, 3]],
            "2 runs, one per folder",
        ),
        ([("r1/a.sqlite", set()), ("r2/a.sqlite", set())], [[0], [1]], "2 runs, one per folder (no file says"),
        ([("a.sqlite", set()), ("b.sqlite", set())], [[0, 1]], "--runs file splits them"),
    ],
)
def test_runs_are_told_by_the_ranks_that_files_hold(given, runs, said):
    found, text = runs_of(files(*given))
    assert found == runs
    assert said in text


def test_what_the_user_says_counts():
    given = files(("a.sqlite", {0}), ("b.sqlite", {1}), ("x/c.sqlite", {2}))
    assert runs_of(given, "file")[0] == [[0], [1], [2]]
    assert runs_of(given, "folder")[0] == [[0, 1], [2]]
    assert runs_of(given, "one")[0] == [[0, 1, 2]]


def test_a_mixture_is_refused():
    with pytest.raises(BadInput, match="both hold rank 0, and neither folders nor files tell runs apart"):
        runs_of(files(("a.sqlite", {0, 1}), ("b.sqlite", {0})))
