"""Like steps, like findings: on steps that do the same in the same time, a detector's figures agree.

They must lie within the interval of the finding on the median step, or differ by less than what is shown at all.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import numpy as np
import pytest

from marks import slow_unless
from stepscope import api
from stepscope.derive.run.job import run_of
from stepscope.findings.thresholds import SHOWN

#: Traces with three like steps or more, each of another program or profiler.
TRACES = [
    "judged/luatil_06.json",
    "traces/public/luatil_04.json.gz",
    "traces/public/aiprof_baseline_nvtx.sqlite",
    "traces/public/t4_power_iteration.sqlite",
]
#: Captures of programs without a fault: three to eight steps each.
PAIRS = ["gpt-none.nsys", "hf_trainer-none.torch", "cnn-none.nsys", "unet-none.torch", "accelerated-none.nsys"]
#: Lengths of like steps differ by no more, and so many of them are asked about.
_LIKE, _ASKED = 0.03, 4


def like_steps(profile: api.Profile) -> list[int]:
    """Numbers of steps of the usual kind that take the same time; none where they are fewer than two."""
    run = run_of(profile)
    if run.kinds is None:
        return []
    calm = [k for k in run.kinds.kinds[0].steps.tolist() if not run.kinds.spike[k]]
    lengths = run.lengths[calm]
    middle = float(np.median(lengths)) if calm else 0.0
    like = [k for k, ns in zip(calm, lengths.tolist(), strict=True) if abs(ns - middle) <= _LIKE * middle]
    chosen = like[:: max(1, len(like) // _ASKED)][:_ASKED]
    return [run.ranks[0].label.index(run.label[k]) for k in chosen] if len(like) >= 2 else []


def unlike(profile: api.Profile) -> list[str]:
    """Findings whose figures do not agree."""
    steps = like_steps(profile)
    assert len(steps) >= 2, "nothing to compare"
    answers = [profile.diagnose(index=k, least=0.0) for k in steps]
    told = [{(r["id"], r["ranks"]): r for r in a.rows.iter_rows(named=True)} for a in answers]
    wrong = []
    for key in dict.fromkeys(k for of in told for k in of):
        figures = [of[key]["recoverable_ns"] if key in of else 0 for of in told]
        least = SHOWN.share * min(a.summary["step_ns"] for a in answers)
        wide = max((of[key]["recoverable_high_ns"] - of[key]["recoverable_low_ns"]) for of in told if key in of)
        if max(figures) - min(figures) > max(wide, least):
            wrong.append(f"{key}: {figures} on steps {steps}; interval {wide}")
    return wrong


@pytest.mark.parametrize("trace", slow_unless(lambda trace: trace == TRACES[0], TRACES))
def test_like_steps_have_like_findings(trace: str, shared: Path) -> None:
    assert unlike(api.open(shared / trace)) == []


@pytest.mark.parametrize("pair", slow_unless(lambda pair: pair == PAIRS[0], PAIRS))
def test_like_steps_of_real_programs(pair: str, tmp_path: Path) -> None:
    with tarfile.open(Path(__file__).parents[1] / "data" / "pairs" / f"{pair}.tar.xz") as packed:
        packed.extractall(tmp_path, filter="data")
    assert unlike(api.open(tmp_path, cache=False)) == []
