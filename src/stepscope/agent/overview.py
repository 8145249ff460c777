"""What a profile holds, in one answer: what the first four commands of the skill say, summed up."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from stepscope import api
from stepscope.agent.failures import call
from stepscope.errors import CannotAnswer
from stepscope.model import heading
from stepscope.model.note import Note
from stepscope.model.result import Result
from stepscope.model.statement import STATEMENT

_AXES = ("pp", "dp", "cp", "ep", "tp")
#: Lists that grow with the job are cut here; `left_out` says so.
_MOST = 12

#: The usual questions: what must have been recorded, the question, the analysis and its options.
_USUAL: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
    ("ops", "what should be changed first?", "diagnose", {}),
    ("ops", "where did the step go?", "breakdown", {}),
    ("ops", "how well is communication hidden, by stage, over all ranks?", "overlap", {"across": True}),
    ("ops", "why is the GPU idle?", "idle", {"by": "cause"}),
    ("pp", "are the pipeline stages balanced?", "pipeline", {"by": "stage"}),
    ("ranks", "who waits for whom?", "collectives", {"by": "group"}),
    ("ops", "which kernels take the time?", "kernels", {"top": 10}),
    ("measured", "how far are measured kernels from their roofs?", "roofline", {}),
    ("blocks", "what is memory made of at its peak?", "memory", {}),
)


def overview(profile: api.Profile, named: str | list[str]) -> dict[str, Any]:
    """The body of `stepscope_open`."""
    left_out: dict[str, str] = {}
    info = _asked(profile, "info")
    setup = _asked(profile, "setup")
    window = _asked(profile, "window")
    streams = _asked(profile, "streams")
    answers = [a for a in (info, setup, window, streams) if a is not None]
    # `info` spells out each warning of the profiler, the others count them.
    notes: list[Note] = list(dict.fromkeys(n for a in answers[1:] or answers for n in a.notes))
    recorded = info.summary["tables"] if info is not None else [t for t in ("measured", "blocks") if profile.has(t)]
    mesh = _mesh(setup)
    has = {*recorded, *(axis for axis, size in mesh.items() if size > 1)}
    if profile.has_timeline and profile.ranks.height > 1:
        has.add("ranks")
    files = [f"{s.file} ({' '.join(filter(None, (s.format, s.tool)))})" for s in profile.sources]
    lines = heading.window_lines(Result(window.rows.clear().drop("label"), window.window)) if window else []
    return {
        "profile": named,
        "files": _some(files, "files", left_out),
        "ranks": profile.ranks.height if profile.has_timeline else 0,
        "world": info.world if info is not None else None,
        "hosts": _some(_distinct(info, "host"), "hosts", left_out),
        "gpus": _some(_distinct(info, "gpu"), "gpus", left_out),
        "mesh": mesh,
        "recorded": recorded,
        "missing": info.summary["missing"] if info is not None else [],
        "window": lines,
        "streams": str(streams.summary.get(STATEMENT, "")) if streams is not None else "",
        "notes": _some([{"code": n.code, "severity": n.severity, "text": str(n)} for n in notes], "notes", left_out),
        "ask": [
            {"question": question, **call("run", profile=named, analysis=analysis, options=options)}
            for need, question, analysis, options in _USUAL
            if need in has
        ],
        **({"left_out": left_out} if left_out else {}),
    }


def _asked(profile: api.Profile, name: str) -> Result | None:
    with suppress(CannotAnswer):
        return api.analyse(profile, name)
    return None


def _mesh(setup: Result | None) -> dict[str, int]:
    if setup is None:
        return {}
    sizes = {axis: setup.rows.get_column(f"{axis}_size", default=None) for axis in _AXES}
    return {
        axis: int(top) for axis, column in sizes.items() if column is not None and (top := column.max()) is not None
    }


def _distinct(info: Result | None, column: str) -> list[str]:
    return [] if info is None else [str(v) for v in info.rows[column].drop_nulls().unique(maintain_order=True)]


def _some(items: list[Any], name: str, left_out: dict[str, str]) -> list[Any]:
    if len(items) > _MOST:
        left_out[name] = f"{len(items) - _MOST} of {len(items)}: analysis=info has all"
    return items[:_MOST]
