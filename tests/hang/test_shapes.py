"""Jobs of other frameworks, whose shape is in bench/hang_shapes.py: what is usual there is no fault."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from stepscope import api
from stepscope.errors import BadInput, CannotAnswer
from stepscope.simulate.hang.faults import parse
from stepscope.simulate.hang.job import HangJob, Program
from stepscope.simulate.hang.run import Hang, simulate_hang

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
import hang_shapes
from hang_shapes import Writer


def hung(place: Path, shape: Callable[[Writer, Random], None], fault: str, **job: Any) -> tuple[dict[str, Any], Hang]:
    def write(job: HangJob) -> Program:
        writer = Writer(job)
        shape(writer, Random(job.seed))
        return writer.program()

    done = simulate_hang(HangJob(**{"tp": 1, "pp": 1, "dp": 8, "steps": 6, "seed": 3, **job}), parse(fault), write)
    done.write(place)
    return api.hang(place).summary, done


def by_name(name: str) -> Callable[[Writer, Random], None]:
    return hang_shapes.SHAPES[name]


@pytest.mark.parametrize("name", list(hang_shapes.SHAPES))
@pytest.mark.parametrize("fault", ["host", "extra", "healthy"])
def test_every_shape(tmp_path, name, fault):
    said, done = hung(tmp_path, by_name(name), fault, dp=12, seed=19)
    truth = done.truth()
    if fault == "healthy":
        assert said["verdict"] == "running"
        return
    assert truth["class"] in (said["verdict"], *said["also_possible"]), said["statement"]
    assert set(truth["ranks"]) <= set(said["culprits"])


@pytest.mark.parametrize("timing", [True, False])
def test_how_much_a_rank_sends_to_others_is_another_each_time(tmp_path, timing):
    """Counts of an all-to-all follow the data: no rank of a mixture of experts does what another does."""
    said, _ = hung(tmp_path, by_name("both_ways"), "host:rank=3", timing=timing)
    assert (said["verdict"], said["culprits"]) == ("host-stopped", [3])


def saving(w: Writer, random: Random) -> None:
    """Two of eight ranks write a checkpoint in the fourth step, once."""
    pair = w.group("checkpoint", [0, 4])
    for step in w.steps():
        for rank in range(w.world):
            for size in (64, 128, 256):
                w.add(rank, 0, "_all_gather_base", size, "fetch.py:3:fetch", size * w.world)
            for size in (256, 128, 64):
                w.add(rank, 0, "all_reduce", size, "reduce.py:5:reduce", chain=False)
            w.add(rank, 0, "all_reduce", 1, "norm.py:9:norm", joins=True, sync=True)
            if step == 3 and rank in (0, 4):
                w.add(rank, pair, "gather", 7, "save.py:1:save", sync=True)


def test_what_all_members_of_a_group_do_once_they_mean_to_do(tmp_path):
    said, _ = hung(tmp_path, saving, "link:rank=2,call=40")
    assert (said["verdict"], said["culprits"]) == ("link-dead", list(range(8)))


def test_a_line_of_many_sizes_that_leaves_one_out_is_an_order(tmp_path):
    said, _ = hung(tmp_path, saving, "skip:rank=5,call=29")
    assert (said["verdict"], said["culprits"]) == ("mismatch-order", [5])


def exchanging(w: Writer, random: Random) -> None:
    pair = w.group("pp", [0, 1])
    for _ in w.steps():
        for rank in (0, 1):
            for size in (64, 128, 256):
                w.transfer(rank, pair, size, f"pipe.py:{size}:exchange", [(rank, 1 - rank), (1 - rank, rank)])
            w.add(rank, 0, "all_reduce", 1, "norm.py:9:norm", joins=True, sync=True)


def test_transfers_of_one_batch_are_under_way_together(tmp_path):
    """Without timing the first call stands for what runs: two ranks that exchange begin with another one."""
    said, _ = hung(tmp_path, exchanging, "gpu:rank=1,call=21", dp=2, timing=False)
    assert (said["verdict"], said["culprits"]) == ("gpu-or-link", [0, 1])


def gathering(w: Writer, random: Random) -> None:
    """Training by NCCL, figures by Gloo after each step."""
    gloo = w.group("figures", list(range(w.world)), "gloo")
    for _ in w.steps():
        for rank in range(w.world):
            for size in (64, 128, 256, 512, 1024):
                w.add(rank, 0, "all_reduce", size, "train.py:5:reduce")
            w.add(rank, gloo, "all_gather", 7, "figures.py:2:gather", 56, chain=False, sync=True)


@pytest.mark.parametrize("timing", [True, False])
def test_two_recorders_of_a_rank(tmp_path, timing):
    """Rank 6 does not come to the call of the other library: only its recorder knows."""
    said, _ = hung(tmp_path, gathering, "host:rank=6,call=23", recorders=True, timing=timing)
    assert len(list(tmp_path.glob("gloo_trace_rank_*"))) == len(list(tmp_path.glob("nccl_trace_rank_*"))) == 8
    assert (said["verdict"], said["culprits"]) == ("host-stopped", [6])
    assert said["call"]["call"].startswith("all_gather") and len(said["call"]["in_it"]) == 7


def test_two_dumps_of_one_recorder_are_refused(tmp_path):
    hung(tmp_path, gathering, "host:rank=6,call=21")
    (tmp_path / "other_rank_3").write_bytes((tmp_path / "nccl_trace_rank_3").read_bytes())
    with pytest.raises(BadInput, match="rank 3 a second time"):
        api.hang(tmp_path)


def test_a_job_that_waits_outside_of_all_calls_is_not_called_running(tmp_path):
    with pytest.raises(CannotAnswer, match=r"no rank is in a call.*take stacks"):
        hung(tmp_path, gathering, "host:rank=6,call=23")
    for rank in range(8):
        own = {"name": "gather", "filename": "/job/figures.py", "line": 2}
        if rank == 6:
            own = {"name": "load", "filename": "/job/data.py", "line": 71}
        thread = {"pid": rank, "thread_id": 1, "thread_name": "MainThread", "frames": [own]}
        (tmp_path / f"stacks_rank_{rank}.json").write_text(json.dumps([thread]))
    result = api.hang(tmp_path)
    assert (result.summary["verdict"], result.summary["culprits"]) == ("host-stopped", [6])
    assert result.rows["site"][0] == "data.py:71 (load)"


def ahead(w: Writer, random: Random) -> None:
    """The host waits for the GPU every fourth step."""
    for step in w.steps():
        for rank in range(w.world):
            for size in (64, 128, 256, 512):
                w.add(rank, 0, "all_reduce", size, "train.py:5:reduce")
            w.add(rank, 0, "all_reduce", 1, "train.py:9:norm", joins=True, sync=step % 4 == 3)


@pytest.mark.parametrize("timing", [True, False])
def test_a_host_that_runs_ahead_does_not_become_slow(tmp_path, timing):
    for seed in range(4):
        said, _ = hung(tmp_path / str(seed), ahead, "healthy", timing=timing, steps=14, seed=seed)
        assert said["verdict"] == "running"
