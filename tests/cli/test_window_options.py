"""`--step` and `--chunk` on every command that has a window, and the same step on all ranks wherever they are read."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from fake import FakeSource, Row, call, comm, nvtx, op
from marks import slow_unless
from stepscope import api, questions
from stepscope.cli.main import run
from stepscope.model.profile import Profile
from stepscope.simulate.job.scenario import Scenario
from stepscope.simulate.run import simulate_to

WINDOWED = [name for name in questions.names() if questions.get(name).windowed]
#: These need what the simulator does not write: torch's regions, and call chains.
DATA = Path(__file__).parents[1] / "data"
OF_TORCH = {"compile": "compile/torch2.11_h200_whole.pt.trace.json.gz", "source": "source/backtrace.sqlite.gz"}
#: What must be said for an answer, since the simulator records no shapes of ops.
SAID: dict[str, dict[str, Any]] = {"mfu": {"model": "layers=2,width=64,dense_width=64", "tokens": 64, "gpu": "H200"}}


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A trainer that marks steps, and one that marks chunks."""
    made = {}
    for name, schedule, more in (("steps", "1f1b", {"steps": 3}), ("chunks", "dualpipev", {"steps": 1})):
        folder = tmp_path_factory.mktemp(name)
        scenario = Scenario(schedule=schedule, pp=2, ep=2, layers=4, micro_batches=4, seed=3, **more)
        simulate_to(scenario, folder, ("nsys",))
        made[name] = str(folder / "*.sqlite")
    return made


def asked(capsys: pytest.CaptureFixture[str], command: str, path: str, *options: str) -> tuple[int, set[str]]:
    """The exit status, and what kinds of window the answer has."""
    said = [text for option, value in SAID.get(command, {}).items() for text in (f"--{option}", str(value))]
    status = run([command, path, *options, *said, "--format", "json"])
    out = capsys.readouterr().out
    return status, {w["kind"] for w in json.loads(out)["window"]} if out else set()


#: Of commands that take their window in the same way, one; the others are slow.
QUICK = ("window", "overlap", "breakdown", "iterations", "launches", "timeline")


@pytest.mark.parametrize("command", slow_unless(QUICK.__contains__, sorted(set(WINDOWED) - set(OF_TORCH))))
def test_step_and_chunk(command: str, jobs: dict[str, str], capsys: pytest.CaptureFixture[str]):
    assert asked(capsys, command, jobs["steps"], "--step") == (0, {"step"})
    assert asked(capsys, command, jobs["chunks"], "--chunk") == (0, {"chunk"})
    assert asked(capsys, command, jobs["steps"], "--chunk") == (3, set())  # no range marks chunks
    without = (3, set()) if command == "iterations" else (0, {"capture"})  # a capture does not recur
    assert asked(capsys, command, jobs["chunks"], "--step") == without
    assert asked(capsys, command, jobs["steps"], "--step", "--chunk") == (2, set())


@pytest.mark.parametrize("command", OF_TORCH)
def test_step_and_chunk_of_torch(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = DATA / OF_TORCH[command]
    if file.name.endswith(".sqlite.gz"):
        file = tmp_path / "trace.sqlite"
        file.write_bytes(gzip.decompress((DATA / OF_TORCH[command]).read_bytes()))
    assert asked(capsys, command, str(file), "--step") == (0, {"step"})
    assert asked(capsys, command, str(file), "--chunk") == (3, set())


@pytest.mark.parametrize(
    "command",
    slow_unless(QUICK.__contains__, sorted(set(WINDOWED) - set(OF_TORCH) - {"iterations", "collectives"})),
)
def test_defaults(command: str, jobs: dict[str, str], capsys: pytest.CaptureFixture[str]):
    of_chunks = "chunk" if command in ("window", "streams", "overlap", "exposed") else "capture"
    assert asked(capsys, command, jobs["steps"]) == (0, {"step"})
    assert asked(capsys, command, jobs["chunks"]) == (0, {of_chunks})


def apart() -> Profile:
    """Two ranks in files of their own. Step 1 is the median of the first alone, step 2 of the second and of both."""
    sources = []
    for rank, ends in enumerate([(10, 30, 60, 70), (10, 20, 40, 90)]):  # 10 20 30 10, 10 10 20 50: sums 20 30 50 60
        tables: dict[str, list[Row]] = {"ops": [], "calls": [], "ranges": []}
        edges = (0, *ends)
        for k in range(4):
            lo, hi = 1000 + edges[k], 1000 + edges[k + 1]
            tables["ops"] += [op(lo, hi, call=2 * k + 1), comm(lo, hi, call=2 * k + 2)]
            tables["calls"] += [call(10 * k + i, 10 * k + i + 1, 2 * k + i) for i in (1, 2)]
            tables["ranges"] += [nvtx(10 * k, 10 * k + 9, f"step {k}"), nvtx(10 * k, 10 * k + 8, f"forward chunk {k}")]
        tables["ops"].append(op(990, 1000, call=99))  # before, so that the first step is as long as it looks
        tables["calls"].append(call(-9, -8, 99))
        setup = f"rank={rank}; pp={rank}/2 dp=0/1 cp=0/1 ep=0/1; mbs=1 seq=2048"
        known: list[dict[str, Any]] = [{"proc": 0, "rank": rank, "setup": setup}]
        sources.append(FakeSource(tables, path=Path(f"rank{rank}.sqlite"), processes=known))
    return Profile(sources)


APART = sorted(set(WINDOWED) - set(OF_TORCH) - {"iterations"})


@pytest.mark.parametrize("command", APART)
def test_the_step_is_the_same_on_ranks_that_are_read_apart(command: str):
    """Sums of lengths: 20, 30, 50 and 60, of which the upper median is step 2."""
    window = api.analyse(apart(), command, step=True, **SAID.get(command, {})).window
    assert {(w["rank"], w["label"]) for w in window} == {(0, "step 2"), (1, "step 2")}
