"""FLOPs by shapes beside those that Nsight Compute counted on an H200, kernel by kernel.

`tests/capture/programs/flops_models.py` is the program: traced with shapes, and its step measured by ncu with
`--metrics sm__ops_path_tensor_…`. There the counters failed after 80 kernels, in the backward pass of the first model.
"""

from __future__ import annotations

import csv
import lzma
from pathlib import Path

import numpy as np
import pytest

from stepscope import api
from stepscope.derive.flops.measured import work_of
from stepscope.derive.rank.data import rank_of
from stepscope.derive.work.roles import Role, kernels

DATA = Path(__file__).parents[2] / "data/ncu/models"
COUNTED = "sm__ops_path_tensor_src_bf16_dst_fp32.sum"


def counted() -> list[tuple[str, float]]:
    """Kernels that used tensor cores, in order."""
    with lzma.open(DATA / "gpt.raw.csv.xz", "rt") as lines:
        rows = list(csv.DictReader(lines))[1:]
    found = [(row["Kernel Name"], float(row[COUNTED].replace(",", ""))) for row in rows if row[COUNTED]]
    return [(name, flops) for name, flops in found if flops]


def test_a_transformer_kernel_by_kernel() -> None:
    data = rank_of(api.open(DATA / "gpt.pt.trace.json.gz", cache=False), 0)
    ops = np.argsort(data.start, kind="stable")
    ops = ops[kernels(data, ops).are(Role.PRODUCT, Role.ATTENTION)]
    names = data.profile.names.gather(data.name[ops])
    ops = ops[
        ~names.str.contains("compute_dot_do_o|convert_dq").to_numpy()
    ]  # beside attention's backward: no tensor cores
    work = work_of(data)
    ran = (work.ops["causal"] + work.ops["again_causal"]).to_numpy()  # attention computes its scores again backward
    ours = ran[work.of_kernel[ops]].astype(float)
    theirs = counted()
    attention = np.array(["sdpa" in name for name, _ in theirs])
    measured = np.array([flops for _, flops in theirs])
    ours = ours[: len(theirs)]
    assert len(theirs) == 19
    assert (ours[~attention] == measured[~attention]).all()  # products: to the operation
    # A causal mask leaves half of the scores; kernels compute 36 of 64 tiles of 128 x 128.
    assert measured[attention] == pytest.approx(ours[attention] * 36 / 32)
    assert ours.sum() == pytest.approx(measured.sum(), rel=0.03)
