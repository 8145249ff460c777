"""Long work over many ranks says what it does, and moves on."""

from __future__ import annotations

import contextlib
import io
import os
import pty
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from stepscope import api, progress
from stepscope.cli import progress as drawn
from stepscope.simulate.job.scenario import Scenario
from stepscope.simulate.run import simulate_to

Reports = list[tuple[str, int | None, int | None]]


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight ranks in four files."""
    folder = tmp_path_factory.mktemp("traces")
    job = {"schedule": "1f1b", "pp": 2, "dp": 4, "ep": 1, "nodes": 4, "layers": 2, "micro_batches": 2, "steps": 2}
    simulate_to(Scenario(**job), folder, ("nsys",))
    return folder


@pytest.fixture
def heard() -> Reports:
    found: Reports = []
    progress.listen(lambda *report: found.append(report))
    yield found
    progress.listen(None)


def test_phases_are_named_within_each_other(heard):
    with progress.phase("report"), progress.phase("overlap"):
        assert list(progress.each("rank", [3, 5])) == [3, 5]
    assert list(progress.each("alone", [3])) == [3]
    with contextlib.suppress(ZeroDivisionError), progress.phase("failing"):
        raise ZeroDivisionError
    progress.report("done")
    assert heard == [
        ("report", None, None),
        ("report, overlap", None, None),
        ("report, overlap: rank", 1, 2),
        ("report, overlap: rank", 2, 2),
        ("failing", None, None),
        ("done", None, None),
    ]


def test_every_file_and_rank_is_reported(traces, heard):
    api.analyse(api.open(traces, cache=False), "breakdown")
    said = [what for what, _, _ in heard]
    assert ("opening files", 4, 4) in heard
    assert [(done, total) for what, done, total in heard if what == "rank"][-8:] == [(k, 8) for k in range(1, 9)]
    assert any(what.startswith("reading ops, file") for what in said)


def test_a_question_given_up_between_two_files_leaves_no_phase(traces, heard):
    """Its generator is collected at any time, in any thread: what it is in then would be ended there."""
    profile = api.open(traces, cache=False)
    found = profile.of_parts(profile.by_source(), lambda part: progress.report("asked"))
    next(found)
    progress.report("between")
    threading.Thread(target=found.close).start()
    assert [what for what, _, _ in heard if what.endswith(("asked", "between"))] == ["file 1 of 4: asked", "between"]


def test_there_is_more_to_say_after_the_last_file_was_read(traces, heard):
    """The last file read is not the end: what takes long after it is named."""
    profile = api.open(traces, cache=False, jobs=2)
    api.analyse(profile, "collectives")
    assert ("reading ranks, file", 0, 4) in heard
    last = heard.index(("reading ranks, file", 4, 4))
    assert {"matching communication across ranks", "aligning clocks"} <= {what for what, _, _ in heard[last:]}


@pytest.mark.slow
def test_findings_are_counted_and_named(traces, heard):
    api.analyse(api.open(traces, cache=False), "diagnose")
    looked = [what for what, _, _ in heard if what.startswith("looking for ") and ":" not in what]
    assert looked[0].startswith("looking for ") and len(looked) >= 20
    count = {total for what, _, total in heard if what == "findings"}
    assert count == {len(looked)}
    assert any(what.endswith(": replaying the step") for what, _, _ in heard)


@pytest.mark.slow
def test_sections_of_the_report_are_named(traces, heard):
    _ = api.open(traces, cache=False).report().markdown
    assert any(what.startswith("Findings, looking for straggler") for what, _, _ in heard)


def test_the_bar_is_gone_before_anything_is_written():
    """A gate that fails writes its answer while work is still shown."""
    program = (
        "import time\n"
        "from stepscope.cli import output, progress\n"
        "progress.PATIENCE_S = 0.01\n"
        "with progress.shown():\n"
        "    while progress._drawn._bar is None:\n"
        "        time.sleep(0.01)\n"
        "    output.Target.of(None, None).deliver(b'ANSWER')\n"
    )
    controller, terminal = pty.openpty()
    environment = {**os.environ, "TERM": "xterm"}
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=terminal, stderr=terminal, env=environment
    ) as process:
        os.close(terminal)
        written = b""
        with contextlib.suppress(OSError):  # what a closed terminal answers
            while piece := os.read(controller, 4096):
                written += piece
    os.close(controller)
    assert process.returncode == 0
    before, _, _ = written.partition(b"ANSWER")
    assert before.rindex(b"\x1b[2K") > before.rindex(b"starting"), written


def test_one_bar_keeps_the_count_while_a_part_of_it_is_worked_on():
    from stepscope.cli.progress import _Display

    drawn: list[tuple[str, float, int | None]] = []

    class Bar:
        def update(self, task, *, description, completed, total):
            drawn.append((description, completed, total))

    display = _Display()
    display._bar, display._task = Bar(), 0  # type: ignore[assignment]
    display.report("opening job.json (203 MiB)", None, None)
    display.report("reading job.json", 50_000_000, 200_000_000)
    display.report("reading job.json", 200_000_000, 200_000_000)
    display.report("working out diagnose", None, None)
    display.report("findings", 3, 42)
    with progress.phase("looking for drift"):
        display.report("looking for drift", None, None)
        display.report("looking for drift: rank", 1, 2)
        display.report("looking for drift: rank", 2, 2)
        display.report("looking for drift: replaying", None, None)
    display.report("findings", 42, 42)
    with progress.phase("looking for spikes"):
        display.report("looking for spikes: rank", 1, 2)
    display.report("writing", None, None)
    display.report("ranks", 1, 2)
    # The third of 42 is being worked on: two are done, and a bar that is full has nothing left to do.
    assert drawn == [
        ("opening job.json (203 MiB)", 0, None),
        ("reading job.json 25%", 50_000_000, 200_000_000),
        ("reading job.json 100%", 200_000_000, 200_000_000),
        ("working out diagnose", 0, None),
        ("findings 3 of 42", 2, 42),
        ("findings 3 of 42: looking for drift", 2, 42),
        ("findings 3 of 42: looking for drift: rank 1 of 2", 2, 42),
        ("findings 3 of 42: looking for drift: rank 2 of 2", 2, 42),
        ("findings 3 of 42: looking for drift: replaying", 2, 42),
        ("findings 42 of 42", 41, 42),
        ("findings 42 of 42: looking for spikes: rank 1 of 2", 41, 42),
        ("writing", 0, None),
        ("ranks 1 of 2", 0, 2),
    ]


def test_the_bar_moves_within_a_file_and_is_not_full_while_the_last_is_read():
    from stepscope.cli.progress import _Display

    drawn: list[float] = []

    class Bar:
        def update(self, task, *, description, completed, total):
            drawn.append(completed / total)

    display = _Display()
    display._bar, display._task = Bar(), 0  # type: ignore[assignment]
    for file in (1, 2):
        display.report("file", file, 2)
        with progress.phase("reading"):
            display.report("reading", 100_000_000, 200_000_000)
    assert drawn == [0.0, 0.25, 0.5, 0.75]


def test_the_first_report_names_the_file(traces, heard):
    file = next(traces.glob("*.sqlite"))
    api.open(file, cache=False)
    assert heard[0][0].startswith(f"opening {file.name} (") and heard[0][0].endswith("iB)")


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_where_there_is_little_room_the_text_is_shortened_and_not_the_time(width, monkeypatch):
    from rich.console import Console

    monkeypatch.setenv("COLUMNS", str(width))
    display = drawn._Display()
    display.report("looking for exposed-communication: rank 4 of 4, kernels of every stream", 14, 48)
    display._timer = threading.current_thread()
    display._start()
    try:
        console = Console(width=width, file=io.StringIO())
        console.print(display._bar.get_renderable())
        [line] = console.file.getvalue().splitlines()
    finally:
        display._timer = None
        display.hide()
    bar = re.search(r" [━╸╺ ]{16} 0:00:00 *$", line)
    assert bar is not None and "━" in bar[0] and line[2:].startswith("looking")
    assert ("…" in line) == (width < 120)


def test_files_that_are_read_to_know_them_are_counted(tmp_path, heard):
    simulate_to(Scenario(steps=2, layers=4), tmp_path, ("kineto",))
    files = sorted(tmp_path.glob("*.json.gz"))
    api.open(tmp_path, cache=False, jobs=1)
    said = [what for what, *_ in heard]
    assert [(what, done, total) for what, done, total in heard if what == "file"] == [
        ("file", n, len(files)) for n in range(1, len(files) + 1)
    ]
    assert said.index("file") < said.index(f"reading {files[0].name}")
