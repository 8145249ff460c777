"""Work that grows with the program, and a host that hides it: figures worked out on paper."""

from __future__ import annotations

import pytest

from fake import call, make, nvtx, op
from stepscope import api
from stepscope.findings.run.growing import growing
from stepscope.model.profile import Profile
from stepscope.model.program import ProgramSteps

MS = 1_000_000
STEPS = 10


def run(grows_ms: float, step_ms: float = 0.0, all_of_it: bool = False) -> Profile:
    """Steps of a kernel of 6 ms and one of 2 ms and more; longer than that if the host takes `step_ms`."""
    ops, calls, ranges, at = [], [], [], 0
    for k in range(STEPS):
        more = grows_ms * (k + 1)
        first = 6 * (1 + more / 2) if all_of_it else 6.0
        lengths = [round(first * MS), round((2 + more) * MS)]
        end = at + max(round(step_ms * MS), sum(lengths) + 20_000)
        for n, (name, ns) in enumerate(zip(("gemm", "sort"), lengths, strict=True)):
            begin = at + 10_000 + sum(lengths[:n])
            calls.append(call(at + 1000 + 3000 * n, at + 3000 + 3000 * n, 2 * k + n + 1))
            ops.append(op(begin, begin + ns, name, call=2 * k + n + 1))
        ranges.append(nvtx(at, end, f"step {k}"))
        at = end
    return make(ops=ops, calls=calls, ranges=ranges)


def drift(profile: Profile) -> dict[str, object]:
    (row,) = (r for r in api.analyse(profile, "diagnose").rows.iter_rows(named=True) if r["id"] == "drift")
    return row


def test_compute_that_grows_behind_a_host_that_does_not():
    """0.3 ms more with every step, nine samples; steps take 20 ms all the same: an upper bound."""
    row = drift(run(0.3, step_ms=20))
    assert "the GPU computes for 300 µs longer" in str(row["title"])
    assert row["recoverable_ns"] == pytest.approx(0.3 * 8 / 2 * MS, rel=0.01)
    assert row["expected_ns"] == row["recoverable_ns"] // 2


def test_what_grew_before_the_capture_is_lost_as_well(monkeypatch):
    """Five steps were made before; the first recorded one is no sample: 0.3 ms times six before, and half of eight."""
    program = ProgramSteps(
        [9e6] * (5 + STEPS), [k >= 5 for k in range(5 + STEPS)], [2 <= k < 5 for k in range(5 + STEPS)]
    )
    monkeypatch.setattr(Profile, "program_steps", program)
    row = drift(run(0.3))
    assert row["recoverable_ns"] == pytest.approx(0.3 * (6 + 8 / 2) * MS, rel=0.01)
    assert "the program had made 6 steps before, which grew as well" in str(row["evidence"])


def test_kernels_that_all_take_longer_need_not_have_begun_with_the_program(monkeypatch):
    program = ProgramSteps(
        [9e6] * (5 + STEPS), [k >= 5 for k in range(5 + STEPS)], [2 <= k < 5 for k in range(5 + STEPS)]
    )
    monkeypatch.setattr(Profile, "program_steps", program)
    found = growing(run(0.3, all_of_it=True))
    assert found is not None and found.before == 0


def test_steady_compute_does_not_grow():
    assert growing(run(0.0)) is None and growing(run(0.0, step_ms=20)) is None
