"""docs/packaging.md shows the last `make matrix`, which had every Python that the project claims, at both ends."""

from __future__ import annotations

import json

import matrix


def test_the_page_shows_the_results_and_they_cover_what_is_claimed():
    results = json.loads(matrix.RESULTS.read_text("utf-8"))
    page = matrix.PAGE.read_text("utf-8")
    assert matrix.written(page, results) == page
    tried = {(tuple(map(int, c["python"].split(".")[:2])), c["packages"]) for c in results["cells"]}
    assert tried == {(version, end) for version in matrix.supported() for end in matrix.ENDS}
    assert not [c for c in results["cells"] if c["failed"] or not c["passed"]]
    assert set(results["sizes"]) == {"core", *matrix.project()["optional-dependencies"]}


def test_a_changed_result_changes_the_page():
    results = json.loads(matrix.RESULTS.read_text("utf-8"))
    results["cells"][0]["passed"] += 1
    page = matrix.PAGE.read_text("utf-8")
    assert matrix.written(page, results) != page
