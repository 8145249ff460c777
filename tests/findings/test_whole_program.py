"""What a program's unrecorded steps tell of an episode: figures worked out on paper, and captures of real programs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fake import call, make, nvtx, op
from promises import new
from stepscope import api
from stepscope.capture import step_times
from stepscope.derive.run.job import run_of
from stepscope.findings.run.outside import Outside, outside
from stepscope.model.profile import Profile
from stepscope.model.program import ProgramSteps

MS = 1_000_000


def captured(monkeypatch: pytest.MonkeyPatch, lengths_ms: list[float], recorded: range, usual: float = 10) -> Profile:
    """A capture of some steps of a program; each has one kernel that fills it."""
    under = [k in recorded for k in range(len(lengths_ms))]
    program = ProgramSteps([ms * MS for ms in lengths_ms], under, [k > 1 and not u for k, u in enumerate(under)])
    monkeypatch.setattr(Profile, "program_steps", program)
    ops, calls, ranges, at = [], [], [], 0
    for k in recorded:
        end = at + round(lengths_ms[k] * MS)
        calls.append(call(at + 1000, at + 6000, k + 1))
        ops.append(op(at + 10_000, end - 1000, call=k + 1))
        ranges.append(nvtx(at, end, f"step {k}"))
        at = end
    return make(ops=ops, calls=calls, ranges=ranges)


def asked(profile: Profile, *rows: int, every: int | None = None) -> Outside:
    return outside(profile, run_of(profile), np.array(rows), every)


def test_a_period_that_the_capture_sees_twice(monkeypatch):
    """Every fourth step of fifteen takes 60 ms: 3, 7 and 11; the capture has 4 to 11, and its first is no sample."""
    profile = captured(monkeypatch, [60 if k % 4 == 3 else 10 for k in range(15)], range(4, 12))
    assert asked(profile, 2, 6) == Outside(4, 1.0)


def test_another_long_step_is_no_period(monkeypatch):
    profile = captured(monkeypatch, [60 if k in (2, 7, 11) else 10 for k in range(15)], range(4, 12))
    assert asked(profile, 2, 6) == Outside(None, 1.0)


def test_what_the_profiler_adds_is_left_out(monkeypatch):
    """Under it 70 ms more every third step, without it 35; the first time of all, at step 2, is 200 ms longer."""
    lengths = [210.0 if k == 2 else 80 if k in (5, 8) else 45 if k % 3 == 2 else 10 for k in range(15)]
    profile = captured(monkeypatch, lengths, range(4, 10))
    assert asked(profile, 0, 3, every=3) == Outside(3, pytest.approx(0.5))


def test_a_first_time_alone_tells_nothing(monkeypatch):
    lengths = [40.0 if k == 2 else 80 if k in (5, 8) else 10 for k in range(10)]
    profile = captured(monkeypatch, lengths, range(4, 10))
    assert asked(profile, 0, 3, every=3) == Outside(3, 1.0)


def test_a_capture_whose_steps_are_not_the_programs(monkeypatch):
    """One of them was not seen as a step: nothing says which is which."""
    profile = captured(monkeypatch, [60 if k % 4 == 3 else 10 for k in range(15)], range(4, 12))
    program = profile.program_steps
    assert program is not None
    fewer = ProgramSteps(program.lengths_ns, [k in range(4, 11) for k in range(15)], program.counted)
    monkeypatch.setattr(Profile, "program_steps", fewer)
    assert asked(profile, 2, 6) == Outside(None, 1.0)


def test_gaps_between_steps_of_the_hooks_are_not_the_programs():
    """A step begins where the last one ended; what lies between is what the hooks do to begin recording."""
    steps = [[10, False]] * 3
    content = {"scenario": {}, "captured": {"step_ns": {"0": steps}, "step_began_ns": {"0": [0, 10, 70]}}}
    assert step_times.program_steps(content).lengths_ns == [10, 10, 60]
    content["captured"]["hooks"] = {"0": {}}
    assert step_times.program_steps(content).lengths_ns == [10, 10, 10]


def test_a_span_that_holds_more_than_a_step():
    """One step between two synchronizations before recording took 300 ms; recorded ones take 12, profiler and all."""
    steps = [[50, False], [9, False], [300, False], [9, False], [12, True], [12, True], [11, False], [9, False]]
    spans = [[1, 300, False], [2, 24, True]]
    content = {"scenario": {}, "captured": {"step_ns": {"0": steps}, "spans": {"0": spans}}}
    assert step_times.unprofiled(content) == 9
    spans[0] = [1, 11, False]
    assert step_times.unprofiled(content) == 11


#: program, fault, tool: the finding, and what is said of when it comes
PROGRAMS = [
    ("cnn", "epochs-restart-workers", "nsys", "epoch-end", "every 4 steps"),
    ("cnn", "epochs-restart-workers", "torch", "epoch-end", "every 4 steps"),
    ("lightning_cnn", "epochs-restart-workers", "nsys", "epoch-end", "every 4 steps"),
    ("lightning_cnn", "epochs-restart-workers", "torch", "epoch-end", "every 4 steps"),
    ("cnn", "larger-from-step-8", "nsys", "warm-up", "once in 5 steps"),
    ("cnn", "larger-from-step-8", "torch", "warm-up", "once in 5 steps"),
    ("gan", "penalty-every-4", "nsys", "step-kinds", "every 4 steps"),
    ("lightning_policy", "rollout-every-4", "torch", "step-kinds", "every 4 steps"),
    ("lightning_cnn", "save-every-3", "nsys", "checkpoint", "every 3 steps"),
    ("lightning_cnn", "validate-every-3", "torch", "evaluation", "every 3 steps"),
]


@pytest.mark.parametrize(("program", "fault", "tool", "named", "when"), PROGRAMS)
def test_what_programs_do_now_and_then(program, fault, tool, named, when, tmp_path: Path):
    profile = api.open(new.unpacked(program, fault, tool, tmp_path), cache=False)
    row = profile.diagnose().rows.row(0, named=True)
    assert row["id"] == named and when in row["title"]
