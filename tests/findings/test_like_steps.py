"""Like steps, like findings: on steps that do the same in the same time, a detector's figures agree.

They must lie within the interval of the finding on the median step, or differ by less than what is shown at all.
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
    *(f"traces/public/{name}.json.gz" for name in ("a100_nccl_metadata_world2", "hta_diff_control", "luatil_04")),
    *(f"traces/public/{name}.json.gz" for name in ("kineto_res50_old_categories.pt.trace", "tl_mi300_resnet_ckpt")),
    *(f"traces/public/{name}.sqlite" for name in ("aiprof_baseline_nvtx", "t4_power_iteration")),
]
#: One rank of several: where the step ends with communication that waits for a rank that is not there, its replay is as
#: long whatever changes, and findings give nothing back there; in other steps of the same length they do.
UNLIKE = "traces/public/hta_diff_test.json.gz"
#: Faults of simulated jobs: in every step alike, beside one that is longer, and none.
SIMULATED = [(), ("host-syncs:per_layer=4",), ("spike:at=3,ms=60", "host-syncs:per_layer=4"), ("penalty:every=3",)]
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


@pytest.mark.parametrize("faults", SIMULATED)
def test_like_steps_of_simulated_jobs(faults: tuple[str, ...], tmp_path: Path) -> None:
    job = engine.run(scenario(4, steps=7, faults=faults, jitter=0.02))
    write_nsys.write(assemble.trace(job), 0, tmp_path / "job.sqlite")
    assert unlike(api.open(tmp_path / "job.sqlite", cache=False)) == []


@pytest.mark.slow
@pytest.mark.xfail(strict=True, reason="steps that wait for a rank that was not recorded")
def test_like_steps_of_one_rank_of_several(shared: Path) -> None:
    assert unlike(api.open(shared / UNLIKE)) == []


@pytest.mark.parametrize("trace", slow_unless(lambda trace: trace == TRACES[0], TRACES))
def test_like_steps_have_like_findings(trace: str, shared: Path) -> None:
    assert unlike(api.open(shared / trace)) == []


@pytest.mark.parametrize("pair", slow_unless(lambda pair: pair == PAIRS[0], PAIRS))
def test_like_steps_of_real_programs(pair: str, tmp_path: Path) -> None:
    with tarfile.open(Path(__file__).parents[1] / "data" / "pairs" / f"{pair}.tar.xz") as packed:
        packed.extractall(tmp_path, filter="data")
    assert unlike(api.open(tmp_path, cache=False)) == []
