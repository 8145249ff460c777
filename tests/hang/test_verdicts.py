"""The verdict on jobs whose truth is known: planted by the simulator, or drawn by hand."""

from __future__ import annotations

import json
import os
import shutil
from itertools import pairwise
from random import Random

import pytest

from stepscope import api
from stepscope.errors import CannotAnswer, GateFailed
from stepscope.simulate.hang.faults import CLASSES, parse
from stepscope.simulate.hang.job import HangJob
from stepscope.simulate.hang.run import simulate_hang
from stepscope.sources.flight import folder

JOB = HangJob(tp=2, pp=2, dp=4, ep=2, seed=11)


def answered(place, fault, job=JOB):
    done = simulate_hang(job, parse(fault))
    done.write(place)
    return api.hang(place), done.truth()


@pytest.mark.parametrize("fault", [name for name in CLASSES if name not in ("healthy", "slow", "link")])
def test_the_class_and_the_rank_are_named(tmp_path, fault):
    result, truth = answered(tmp_path, fault)
    said = result.summary
    assert truth["class"] in (said["verdict"], *said["also_possible"]), said
    assert said["culprits"][:1] == truth["ranks"]  # of a crash without a log, others in the call may have lost a link
    assert len(said["culprits"]) == 1 or fault == "crash"
    assert said["hung"] and said["statement"].startswith("Hung for")


def test_of_a_dead_link_the_members_of_the_call_are_named(tmp_path):
    result, truth = answered(tmp_path, "link")
    assert result.summary["verdict"] == "link-dead"
    assert set(truth["ranks"]) <= set(result.summary["culprits"]) <= set(truth["group"])


@pytest.mark.parametrize("fault", ["gpu", "link"])
def test_without_timing_the_group_is_named(tmp_path, fault):
    result, truth = answered(tmp_path, f"{fault}", HangJob(tp=2, pp=2, dp=4, seed=12, timing=False))
    assert result.summary["verdict"] == "gpu-or-link"
    assert truth["class"] in result.summary["also_possible"]
    assert set(truth["ranks"]) <= set(result.summary["culprits"]) <= set(truth["group"])
    assert any(note.code == "no-timing" for note in result.notes)


@pytest.mark.parametrize("fault", ["healthy", "slow"])
@pytest.mark.parametrize("timing", [True, False])
def test_a_job_that_goes_on_is_not_called_hung(tmp_path, fault, timing):
    result, _ = answered(tmp_path, fault, HangJob(tp=2, pp=2, dp=2, seed=13, timing=timing, steps=8))
    assert not result.summary["hung"], result.summary["statement"]
    if fault == "healthy":
        assert result.summary["verdict"] == "running"


def test_the_order_of_files_does_not_matter(tmp_path):
    first, _ = answered(tmp_path, "deadlock")
    files = sorted(map(str, tmp_path.iterdir()))
    Random(5).shuffle(files)
    again = api.hang(*files)
    assert again.rows.equals(first.rows)
    assert again.summary == first.summary


def test_both_sides_of_the_call_are_shown(tmp_path):
    result, truth = answered(tmp_path, "size")
    own = result.summary["culprit_call"]
    assert own["rank"] == truth["ranks"][0] and own["made"] != own["due"] and own["made_at"] == own["due_at"]
    assert sum(result.rows["count"]) == JOB.world
    assert result.rows["role"][0] == "culprit"


def test_the_chain_leads_to_the_culprit(tmp_path):
    result, truth = answered(tmp_path, "host")
    steps = result.summary["chain"]
    assert steps[-1]["for_rank"] == truth["ranks"][0]
    assert all(a["for_rank"] == b["rank"] for a, b in pairwise(steps))


def test_stacks_of_py_spy_say_where_the_host_is(tmp_path):
    done = simulate_hang(JOB, parse("host:rank=5"))
    done.write(tmp_path)
    frames = [
        {"name": "write", "filename": "/usr/lib/python3.11/site-packages/torch/serialization.py", "line": 7},
        {"name": "save_checkpoint", "filename": "/job/ckpt.py", "line": 88},
    ]
    thread = {
        "pid": 77,
        "thread_id": 1,
        "thread_name": "MainThread",
        "active": True,
        "owns_gil": True,
        "frames": frames,
    }
    (tmp_path / "stacks_rank_5.json").write_text(json.dumps([thread]))
    result = api.hang(tmp_path)
    assert result.rows["site"][0] == "ckpt.py:88 (save_checkpoint)"
    assert "ckpt.py:88" in result.summary["statement"]


@pytest.mark.parametrize(
    ("line", "verdict"),
    [
        ("[rank5]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB.", "out-of-memory"),
        ("srun: error: node3: task 5: Segmentation fault", "crashed"),
        ("srun: error: node3: tasks 5: Exited with exit code 1", "crashed"),
        ("torch.distributed.elastic: failed (exitcode: -6) local_rank: 5 (pid: 9) of binary: python", "crashed"),
        ("  rank      : 5 (local_rank: 5)\n  exitcode  : -11 (pid: 4)", "crashed"),
    ],
)
def test_logs_say_why_a_rank_is_gone(tmp_path, line, verdict):
    done = simulate_hang(JOB, parse("crash:rank=5"))
    done.write(tmp_path)
    (tmp_path / "train.log").write_text(line + "\n")
    result = api.hang(tmp_path)
    assert (result.summary["verdict"], result.summary["culprits"], result.summary["sure"]) == (verdict, [5], "certain")


def test_an_xid_names_the_gpu_where_dumps_cannot(tmp_path):
    done = simulate_hang(HangJob(tp=2, pp=2, dp=4, seed=12, timing=False), parse("gpu"))
    done.write(tmp_path)
    rank = done.truth()["ranks"][0]
    (tmp_path / f"dmesg_rank_{rank}.txt").write_text(
        "[1.2] NVRM: Xid (PCI:0000:10:1c): 79, GPU has fallen off the bus.\n"
    )
    result = api.hang(tmp_path)
    assert (result.summary["verdict"], result.summary["culprits"]) == ("gpu-stopped", [rank])


def without(place, *ranks):
    for rank in ranks:
        (place / f"nccl_trace_rank_{rank}").unlink()


def test_a_ring_stays_whatever_a_rank_without_a_dump_does(tmp_path):
    """Rank 4 gathers before the reduction of all; its group waits for it there, and so does rank 0, which is lost."""
    job = HangJob(tp=2, pp=2, dp=4, layers=3, micro_batches=4, steps=4, seed=8)
    answered(tmp_path, "deadlock:rank=4,call=83", job)
    without(tmp_path, 0, 9)
    said = api.hang(tmp_path).summary
    assert "deadlock" in (said["verdict"], *said["also_possible"]) and 4 in said["culprits"]
    assert len(said["culprits"]) < 8


def test_a_gpu_that_began_nothing_is_named_though_its_neighbour_is_lost(tmp_path):
    answered(tmp_path, "gpu:rank=7,call=6", HangJob(tp=1, pp=8, dp=1, layers=1, micro_batches=1, steps=4, seed=3))
    without(tmp_path, 2, 6)
    said = api.hang(tmp_path).summary
    assert (said["verdict"], said["culprits"], said["sure"]) == ("gpu-stopped", [7], "likely")


def test_the_status_of_a_group_tells_of_calls_that_the_ring_lost(tmp_path):
    """Rings of 80 calls with more than 80 under way: no dump holds the call that everybody is in."""
    job = HangJob(tp=8, pp=1, dp=2, ep=2, layers=3, micro_batches=4, steps=4, seed=901030, buffer=80)
    result, _ = answered(tmp_path, "host:rank=10,call=288", job)
    said = result.summary
    assert (said["verdict"], said["culprits"]) == ("host-stopped", [10])
    assert any(row == "a call that the ring no longer holds" for row in result.rows["call"])


def test_calls_that_the_ring_lost_may_not_have_matched(tmp_path):
    job = HangJob(tp=4, pp=2, dp=2, ep=2, layers=3, micro_batches=4, steps=6, seed=900255, buffer=80, jitter=0)
    result, truth = answered(tmp_path, "size:rank=3,call=569", job)
    said = result.summary
    assert said["verdict"] == "link-dead" and said["sure"] == "possible" and "mismatch-size" in said["also_possible"]
    assert said["culprits"] == truth["group"]


def test_a_ring_that_lost_a_transfer_does_not_say_that_a_gpu_stopped(tmp_path):
    """Rings of 60 calls, all of them under way: other ranks wait in transfers that fell out. The call that does not
    match is where the waits end."""
    job = HangJob(tp=2, pp=3, dp=2, layers=4, micro_batches=6, steps=4, buffer=60, version="2.6", seed=5)
    result, truth = answered(tmp_path, "type", job)
    assert result.summary["verdict"] != "gpu-stopped"
    assert truth["class"] in (result.summary["verdict"], *result.summary["also_possible"])
    assert set(truth["ranks"]) <= set(result.summary["culprits"])


@pytest.mark.slow
def test_short_rings_do_not_tell_how_long_a_pause_is(tmp_path):
    """A rank that became 20 times slower; a ring holds milliseconds, and nothing happened for a while."""
    job = HangJob(tp=2, pp=2, dp=8, ep=2, layers=4, micro_batches=3, steps=10, seed=32000109, jitter=0.3, buffer=60,
                  missing=2, version="2.1")  # fmt: skip
    assert answered(tmp_path, "slow", job)[0].summary["verdict"] in ("slow", "running")


@pytest.mark.parametrize("timing", [True, False])
def test_a_line_that_calls_another_group_this_once(tmp_path, timing):
    job = HangJob(tp=2, pp=4, dp=1, layers=1, micro_batches=4, steps=8, seed=5, timing=timing)
    answered(tmp_path, "group:rank=1,call=131", job)
    without(tmp_path, 0)  # the only other rank that does what rank 1 does
    said = api.hang(tmp_path).summary
    assert (said["verdict"], said["culprits"]) == ("mismatch-group", [1])
    assert said["culprit_call"]["made_at"] == said["culprit_call"]["due_at"]


def test_calls_before_those_that_were_kept_are_not_followed_by_them(tmp_path, monkeypatch):
    """Of very many dumps only the last calls are kept, and whatever is not complete: what lies between is not known."""
    job = HangJob(tp=2, pp=4, dp=2, layers=2, micro_batches=4, steps=6, seed=0)
    monkeypatch.setattr(folder, "_KEPT", 0)
    monkeypatch.setattr(folder, "_TAIL", 140)
    result, truth = answered(tmp_path, "host", job)
    assert result.summary["verdict"] == "host-stopped" and result.summary["culprits"] == truth["ranks"]


def test_of_two_that_differ_the_unusual_call_is_the_wrong_one(tmp_path):
    """A ring so short that what follows is seen once of each: a call that nobody makes elsewhere is the odd one."""
    job = HangJob(tp=2, pp=4, dp=1, layers=2, micro_batches=4, steps=8, seed=900373, buffer=80, jitter=0)
    result, _ = answered(tmp_path, "type:rank=3,call=330", job)
    assert (result.summary["verdict"], result.summary["culprits"]) == ("mismatch-type", [3])


def test_the_last_pass_of_a_loop_is_no_deviation(tmp_path):
    """A ring of less than a step, and no dump of the others of the stage: the last micro-batch reduces gradients."""
    job = HangJob(tp=1, pp=4, dp=3, ep=3, layers=3, micro_batches=5, steps=9, seed=54000195, jitter=0.4, buffer=100,
                  missing=3, version="2.2")  # fmt: skip
    result, truth = answered(tmp_path, "host", job)
    assert (result.summary["verdict"], result.summary["culprits"]) == ("host-stopped", truth["ranks"])


def test_stages_of_a_pipeline_send_to_others(tmp_path):
    job = HangJob(tp=3, pp=4, dp=3, layers=4, micro_batches=5, steps=5, seed=52000000, jitter=0.4, buffer=100,
                  batched=True, shared_names=True, version="2.5")  # fmt: skip
    result, truth = answered(tmp_path, "crash", job)
    said = result.summary
    assert (said["verdict"], said["culprits"][:1]) == ("crashed", truth["ranks"])
    assert f"rank {truth['ranks'][0]}: the process is gone" in said["statement"]


def test_of_ranks_without_a_dump_the_one_that_most_wait_for(tmp_path):
    """A rank without a dump that one rank waits for may wait itself, as the others of its stage do."""
    job = HangJob(tp=4, pp=3, dp=1, layers=2, micro_batches=5, steps=4, seed=54000242, missing=3, timing=False,
                  batched=True, version="2.7")  # fmt: skip
    result, truth = answered(tmp_path, "link", job)
    assert set(truth["ranks"]) <= set(result.summary["culprits"]) < set(range(job.world))
    assert "link-dead" in result.summary["also_possible"]


def test_the_shortest_ring_is_named_though_others_wait_for_a_lost_rank(tmp_path):
    job = HangJob(tp=2, pp=6, dp=1, layers=2, micro_batches=3, steps=7, seed=54000635, buffer=100, missing=1,
                  batched=True, version="2.6")  # fmt: skip
    done = simulate_hang(job, parse("extra"))
    done.write(tmp_path, ("json",))
    said = api.hang(tmp_path).summary
    assert said["verdict"] == "deadlock" and "mismatch-order" in said["also_possible"]
    assert set(done.truth()["ranks"]) < set(said["culprits"]) and len(said["culprits"]) == 2


def test_fail_on_hung(tmp_path):
    answered(tmp_path, "host")
    with pytest.raises(GateFailed) as error:
        api.hang(tmp_path, fail_on="hung")
    assert error.value.exit_status == 1 and error.value.result.summary["hung"]


def test_one_dump_does_not_suffice(tmp_path):
    answered(tmp_path, "host")
    with pytest.raises(CannotAnswer, match="does not say who waits"):
        api.hang(tmp_path / "nccl_trace_rank_0")


def test_nothing_is_written_beside_dumps(tmp_path):
    answered(tmp_path, "gpu")
    before = {p.name: (p.stat().st_size, p.stat().st_mtime_ns) for p in tmp_path.iterdir()}
    api.hang(tmp_path)
    assert {p.name: (p.stat().st_size, p.stat().st_mtime_ns) for p in tmp_path.iterdir()} == before


def test_old_dumps_in_a_copy_still_have_their_time(tmp_path):
    """A copy's files are new: with timing the dump itself says when it was taken."""
    done = simulate_hang(HangJob(seed=4, steps=8), parse("healthy"))
    done.write(tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b", copy_function=shutil.copyfile)
    for file in (tmp_path / "b").iterdir():
        os.utime(file)
    result = api.hang(tmp_path / "b")
    assert not result.summary["hung"]
