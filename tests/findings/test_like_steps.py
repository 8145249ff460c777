"""Like steps, like findings: on steps that spend the same time on the same parts, a detector's figures agree.

They must lie within the interval of the finding on the median step, or differ by less than what is shown at all. Steps
that are as long but wait for another rank, or for a copy, in place of the host are not alike.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import numpy as np
import pytest

from marks import slow_unless
from pairs import scenario
from stepscope import api
from stepscope.derive.run.job import run_of
from stepscope.findings.thresholds import SHOWN
from stepscope.simulate.nsys import write as write_nsys
from stepscope.simulate.programs import assemble
from stepscope.simulate.programs import execute as engine

#: All traces of ../shared with three steps or more, two of them alike at least.
TRACES = [
    "judged/luatil_06.json",
    *(f"judged/{name}" for name in ("cs336_warmup_then_forward.sqlite", "hta_negative_queue.json.gz")),
    *(f"traces/h200/hf/hf1_{name}.sqlite" for name in ("compiled", "healthy", "rich")),
    *(f"traces/h200/hf/hf1_{name}.rank0.pt.trace.json.gz" for name in ("compiled", "data")),
    *(f"traces/h200/hf/hf4_{name}.sqlite" for name in ("healthy", "straggler")),
    *(f"traces/h200/train/{name}.pt.trace.json.gz" for name in ("compiled", "eager")),
    *(f"traces/h200/train/{name}.sqlite" for name in ("eager", "slow_dataloader")),
    *(f"traces/public/{name}.json.gz" for name in ("hta_diff_control", "hta_diff_test", "luatil_04")),
    *(f"traces/public/{name}.json.gz" for name in ("kineto_res50_old_categories.pt.trace", "tl_mi300_resnet_ckpt")),
    *(f"traces/public/{name}.sqlite" for name in ("aiprof_baseline_nvtx", "t4_power_iteration")),
]
#: Faults of simulated jobs: in every step alike, beside one that is longer, and none.
SIMULATED = [(), ("host-syncs:per_layer=4",), ("spike:at=3,ms=60", "host-syncs:per_layer=4"), ("penalty:every=3",)]
#: Captures of programs without a fault: three to eight steps each.
PAIRS = ["gpt-none.nsys", "hf_trainer-none.torch", "cnn-none.nsys", "unet-none.torch", "accelerated-none.nsys"]
#: Lengths of like steps differ by no more; their parts by no more percent of the step; so many of them are asked about.
_LENGTHS, _POINTS, _ASKED = 0.06, 3, 4
_PARTS = ("compute_pct", "comm_exposed_pct", "copy_exposed_pct", "idle_pct")


def like_steps(profile: api.Profile) -> list[int]:
    """Numbers of the most steps of the usual kind that take the same time for the same; none where two do not."""
    run = run_of(profile)
    if run.kinds is None:
        return []
    calm = [k for k in run.kinds.kinds[0].steps.tolist() if not run.kinds.spike[k]]
    numbers = [run.ranks[0].label.index(run.label[k]) for k in calm]
    lengths = run.lengths[calm]
    parts = np.array([_parts(profile, k) for k in numbers])
    groups = [
        [k for k, ns, of in zip(numbers, lengths, parts, strict=True) if _same(ns, like_ns) and _same_parts(of, like)]
        for like_ns, like in zip(lengths, parts, strict=True)
    ]
    like = max(groups, key=len, default=[])
    return like[:: max(1, len(like) // _ASKED)][:_ASKED] if len(like) >= 2 else []


def _parts(profile: api.Profile, step: int) -> tuple[float, ...]:
    """Where the step goes, on a rank on average."""
    return profile.breakdown(index=step).rows.select(_PARTS).mean().row(0)


def _same(ns: float, other: float) -> bool:
    return abs(ns - other) <= _LENGTHS * other


def _same_parts(shares: np.ndarray, others: np.ndarray) -> bool:
    return bool((np.abs(shares - others) <= _POINTS).all())


def unlike(profile: api.Profile) -> list[str]:
    """Findings whose figures do not agree."""
    steps = like_steps(profile)
    assert len(steps) >= 2, "nothing to compare"
    answers = [profile.diagnose(index=k, least=0.0) for k in steps]
    told = [_figures(a) for a in answers]
    wrong = []
    for key in dict.fromkeys(k for of in told for k in of):
        figures = [of.get(key, (0, 0))[0] for of in told]
        least = SHOWN.share * min(a.summary["step_ns"] for a in answers)
        wide = max(of[key][1] for of in told if key in of)
        if max(figures) - min(figures) > max(wide, least):
            wrong.append(f"{key}: {figures} on steps {steps}; interval {wide}")
    return wrong


def _figures(answer: api.Result) -> dict[tuple[str, str], tuple[int, int]]:
    """By kind of finding and ranks: what it gives back, and how wide its interval is; of several findings together."""
    figures: dict[tuple[str, str], tuple[int, int]] = {}
    for r in answer.rows.iter_rows(named=True):
        saved, wide = figures.get((r["id"], r["ranks"]), (0, 0))
        width = r["recoverable_high_ns"] - r["recoverable_low_ns"]
        figures[r["id"], r["ranks"]] = (saved + r["recoverable_ns"], wide + width)
    return figures


@pytest.mark.parametrize("faults", SIMULATED)
def test_like_steps_of_simulated_jobs(faults: tuple[str, ...], tmp_path: Path) -> None:
    job = engine.run(scenario(4, steps=7, faults=faults, jitter=0.02))
    write_nsys.write(assemble.trace(job), 0, tmp_path / "job.sqlite")
    assert unlike(api.open(tmp_path / "job.sqlite", cache=False)) == []


@pytest.mark.parametrize("trace", slow_unless(lambda trace: trace == TRACES[0], TRACES))
def test_like_steps_have_like_findings(trace: str, shared: Path) -> None:
    assert unlike(api.open(shared / trace)) == []


@pytest.mark.parametrize("pair", slow_unless(lambda pair: pair == PAIRS[0], PAIRS))
def test_like_steps_of_real_programs(pair: str, tmp_path: Path) -> None:
    with tarfile.open(Path(__file__).parents[1] / "data" / "pairs" / f"{pair}.tar.xz") as packed:
        packed.extractall(tmp_path, filter="data")
    assert unlike(api.open(tmp_path, cache=False)) == []
