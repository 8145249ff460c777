"""Commands run in this process on a profile in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from fake import FakeSource, three_steps
from stepscope.api import opening
from stepscope.cli.main import run


@dataclass(frozen=True)
class Ran:
    """What a command line left behind."""

    status: int
    out: str
    err: str


@pytest.fixture
def sources(monkeypatch: pytest.MonkeyPatch) -> list[FakeSource]:
    """What `stepscope.open` finds, whatever paths are given."""
    found = [three_steps()]
    monkeypatch.setattr(opening, "find_profiles", lambda *_: [])
    monkeypatch.setattr(opening.Workers, "open", lambda *_: (found, None))
    return found


@pytest.fixture
def stepscope(capfd: pytest.CaptureFixture[str], sources: list[FakeSource]) -> Callable[..., Ran]:
    def call(*arguments: str | Path) -> Ran:
        status = run([str(a) for a in arguments])
        out, err = capfd.readouterr()
        return Ran(status, out, err)

    return call
