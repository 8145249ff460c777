"""Captures of one job over time: every folder is a profile, opened, asked and closed in turn."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stepscope import progress
from stepscope.api.opening import open as opened
from stepscope.api.reporting import asker_of
from stepscope.errors import BadInput, StepscopeError
from stepscope.report.trend import Captured, Trend, Unread, captured, trend
from stepscope.sources.open import holds_profiles, natural_key


def over(*paths: str | Path, **opening: Any) -> Trend:
    """The captures among `paths`: each is one, or a folder with a folder per capture, in the order of their names."""
    captures = [one for path in paths for one in _captures(Path(path))]
    if len(captures) < 2:
        raise BadInput(
            f"--over {' '.join(map(str, paths))}: a trend takes two captures or more",
            "give a folder with one folder (or file) per capture, or several captures in their order",
        )
    answers: list[Captured | Unread] = []
    names = _names(captures)
    for name, path in progress.each("captures", list(zip(names, captures, strict=True))):
        try:
            profile = opened(path, **opening)
            answers.append(captured(name, str(path), asker_of(profile.view(in_one_part=True), [str(path)])))
        except StepscopeError as reason:
            answers.append(Unread(name, str(reason)))
    return trend(answers)


def _captures(path: Path) -> list[Path]:
    """A folder of folders stands for those that hold profiles, by name; anything else for itself."""
    if not path.is_dir() or holds_profiles(path):
        return [path]
    below = [entry for entry in path.iterdir() if entry.is_dir() and _deep(entry)]
    return sorted(below, key=natural_key) or [path]


def _deep(folder: Path) -> bool:
    return holds_profiles(folder) or any(holds_profiles(entry) for entry in folder.iterdir() if entry.is_dir())


def _names(paths: Sequence[Path]) -> list[str]:
    """Their own names, where those differ; else the whole paths."""
    short = [path.name for path in paths]
    return short if len(set(short)) == len(short) else [str(path) for path in paths]
