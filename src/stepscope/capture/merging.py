"""The manifests of one job's nodes as one: where each node captured into a folder of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

#: What every rank tells of itself, by rank.
_BY_RANK = ("step_ns", "step_began_ns", "spans", "hooks", "environments")


def merged(contents: Iterable[dict[str, Any]]) -> dict[str, Any] | None:
    """The first, with all others of the same job: the same profiler, and other ranks. Other runs are left out."""
    whole: dict[str, Any] | None = None
    for content in contents:
        if whole is None:
            whole = content
        elif _one_job(whole, content):
            whole = _together(whole, content)
    return whole


def _ranks(content: Mapping[str, Any]) -> set[str]:
    return set(content["captured"].get("step_ns") or ())


def _one_job(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    if a["scenario"].get("backend") != b["scenario"].get("backend"):
        return False
    one, other = _ranks(a), _ranks(b)
    return bool(one and other) and not one & other


def _together(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, Any]:
    one, other = (content["captured"] for content in (a, b))
    captured = {**one, **{key: {**(one.get(key) or {}), **(other.get(key) or {})} for key in _BY_RANK}}
    captured["files"] = [*(one.get("files") or ()), *(other.get("files") or ())]
    captured["took_s"] = max(one.get("took_s") or 0, other.get("took_s") or 0)
    stated = [content["scenario"].get("ranks") or 0 for content in (a, b)]
    traced = [content["scenario"].get("traced") for content in (a, b)]
    scenario = {
        **a["scenario"],
        "ranks": max(*stated, len(captured["step_ns"])),  # a node alone may only have counted its own
        "traced": None if None in traced else sorted({rank for ranks in traced for rank in ranks}),
    }
    return {**a, "scenario": scenario, "captured": captured}
