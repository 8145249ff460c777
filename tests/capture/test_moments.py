"""Signals at the two moments when something has just been made: the folder that is written to, and the command."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stepscope.capture import working_folder
from stepscope.capture.process import Run, alive
from stepscope.files.signals import undisturbed


def _and_then_a_signal(made: Any) -> Any:
    """What makes something, and is interrupted as soon as it has."""

    def make(*args: Any, **options: Any) -> Any:
        result = made(*args, **options)
        signal.raise_signal(signal.SIGINT)
        return result

    return make


@pytest.mark.usefixtures("_interrupts")
@pytest.mark.parametrize("maker", ["open", "close"])
def test_the_folder_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, maker: str) -> None:
    monkeypatch.setattr(working_folder.os, maker, _and_then_a_signal(getattr(os, maker)))
    part = tmp_path / ".cap.part"
    with pytest.raises(KeyboardInterrupt), working_folder.alone(part, tmp_path / "cap"):
        (part / "log.txt").write_text("begun")
    assert not part.exists()


@pytest.mark.usefixtures("_interrupts")
def test_the_command_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "Popen", _and_then_a_signal(subprocess.Popen))
    run: Run | None = None
    sleep = (sys.executable, "-c", "import time; time.sleep(60)")
    with pytest.raises(KeyboardInterrupt), undisturbed():
        run = Run(sleep, {"STEPSCOPE_CAPTURE_ID": "moment"}, tmp_path / "log.txt", "moment")
    assert run is not None, "the interrupt waits until the process is known"
    run.end()
    assert alive("moment") == []


@pytest.fixture
def _interrupts() -> Any:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
