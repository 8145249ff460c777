"""The list of components is valid, and names all that is installed and all that the page contains."""

from __future__ import annotations

import copy
import json
import re

import pytest
import sbom


def normal(name: str) -> str:
    """A package's name as registries compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.slow
def test_the_core_s_list_is_valid_and_complete(core, tmp_path):
    listed = sbom.components(core, tmp_path)
    broken = copy.deepcopy(listed)
    broken["components"][0]["type"] = "potato"
    valid, seen = sbom.troubles(listed, broken)
    assert valid == ""
    assert "potato" in seen
    named = {(normal(c["name"]), c["version"]) for c in listed["components"] if c["purl"].startswith("pkg:pypi/")}
    installed = {(normal(name), version) for name, version in core.versions().items() if name != "stepscope"}
    assert named == installed
    assert listed["metadata"]["component"]["name"] == "stepscope"
    page = json.loads(sbom.PAGE.read_text("utf-8"))["components"]
    assert {c["purl"] for c in page} == {c["purl"] for c in listed["components"] if c["purl"].startswith("pkg:npm/")}
    # Every component is reached from the root: nothing is there without a reason.
    needs = {entry["ref"]: entry.get("dependsOn", []) for entry in listed["dependencies"]}
    reached, ahead = set(), [listed["metadata"]["component"]["bom-ref"]]
    while ahead:
        ref = ahead.pop()
        if ref not in reached:
            reached.add(ref)
            ahead += needs[ref]
    assert reached == set(needs)
