"""The sentence that closes an answer: worked out by hand, and true of the rows it stands under."""

from __future__ import annotations

import json

import pytest

from fake import call, comm, copy, make, nvtx, op
from jobs import written
from stepscope import api
from stepscope.model.statement import listed, most_in, percent, several, time_of
from stepscope.render import render
from stepscope.simulate.job.scenario import Scenario
from stepscope.simulate.run import truth

MS = 1_000_000


def job(*ops, ranges=(), **tables):
    calls = [call(row["correlation"], row["correlation"] + 1, row["correlation"]) for row in ops if row["correlation"]]
    return make(ops=list(ops), calls=calls, ranges=[nvtx(0, 20, "step 0"), nvtx(21, 22, "step 1"), *ranges], **tables)


def said(profile, question, **options):
    return api.analyse(profile, question, **options).summary["statement"]


def test_words():
    assert several(1, "rank") == "1 rank" and several(1234, "rank") == "1,234 ranks"
    assert several(2, "micro-batch", "micro-batches") == "2 micro-batches"
    assert [percent(part, 1000) for part in (0, 1, 372, 996, 1000)] == [
        "0 %",
        "under 1 %",
        "37 %",
        "over 99 %",
        "100 %",
    ]
    assert percent(1, 0) == "0 %"
    assert time_of(311 * MS, 415 * MS, 4) == "311 ms of 415 ms (sum over 4 ranks)"
    assert time_of(311 * MS, 415 * MS) == "311 ms of 415 ms"
    assert most_in({"a": 3, "b": 2, "c": 0}) == ("a", "most")
    assert most_in({"a": 3, "b": 2, "c": 2}) == ("a", "the largest part")
    assert most_in({"a": 3, "b": 0}) is None and most_in({}) is None
    assert listed("a") == "a" and listed("abc") == "a, b and c" and listed([]) == ""


def test_overlap_says_how_much_is_hidden_and_where_the_rest_is():
    stages = [nvtx(4, 6, "layer0_stage2_f"), nvtx(8, 10, "layer0_stage4_f")]
    profile = job(
        op(100 * MS, 120 * MS, call=1),
        comm(100 * MS, 130 * MS, call=5),  # 10 of 30 ms exposed
        comm(200 * MS, 270 * MS, call=9),  # all of it
        ranges=stages,
    )
    want = "Communication is 20 % hidden in the step: 80 ms of 100 ms is not overlapped with compute"
    assert said(profile, "overlap", index=0) == f"{want}, most in stage4_f (0 % hidden)."
    assert said(profile, "overlap", by="stream", index=0) == f"{want}."
    short = job(
        op(100 * MS, 120 * MS, call=1),
        comm(100 * MS, 180 * MS, call=5),  # 60 of 80 ms exposed
        comm(200 * MS, 210 * MS, call=9),  # all of 10
        ranges=stages,
    )
    worst = "most in stage2_f (25 % hidden); the least hidden is stage4_f (0 %)."
    assert said(short, "overlap", index=0).endswith(worst)
    assert said(profile, "exposed", index=0).startswith("80 ms of communication is exposed in the step: ")
    hidden = job(op(0, 9 * MS, call=1), comm(MS, 2 * MS, call=2))
    want = "Communication is 100 % hidden in the step: compute runs beside all 1 ms."
    assert said(hidden, "overlap", index=0) == want
    assert said(hidden, "exposed", index=0) == "No communication is exposed in the step."
    in_order = job(op(0, 9 * MS, call=1), comm(9 * MS, 12 * MS, stream=7, call=2))
    want = "of the step, 3 ms, is in order with compute on its own stream: none of it can be hidden."
    assert said(in_order, "exposed", index=0) == f"All exposed communication {want}"
    assert said(in_order, "overlap", index=0) == f"All communication {want}"
    bare = job(op(0, 9 * MS, call=1), comm(20 * MS, 30 * MS, call=15), ranges=[nvtx(2, 3, "quiet")])
    assert said(bare, "overlap", anchor="quiet") == "No communication runs in the window."


def test_barriers_are_not_called_exposed():
    profile = job(op(0, 4 * MS, call=1), comm(4 * MS, 6 * MS, stream=7, call=2))
    want = "All communication of the step, 2 ms, is in order with compute on its own stream: none of it can be hidden."
    assert said(profile, "overlap", index=0) == want


def test_breakdown_and_idle_say_where_the_step_went():
    profile = job(op(0, 40 * MS, call=1), copy(50 * MS, 60 * MS, call=2), op(90 * MS, 100 * MS, call=3))
    want = "Compute fills 50 % of the 100 ms step: 50 ms; idle time takes 40 ms (40 %), exposed copies 10 ms (10 %)."
    assert said(profile, "breakdown", index=0) == said(profile, "breakdown", index=0, tree=True) == want
    assert said(profile, "breakdown", whole=True) == want.replace("step", "capture")
    # Both gaps come long after their launches: the ops waited for their turn.
    why = "all of it while launched work waits for an event or its stream"
    want = f"The GPU is idle for 40 ms of the 100 ms step (40 %), {why}."
    assert said(profile, "idle", index=0) == said(profile, "idle", by="cause", index=0) == want
    full = job(op(0, 9 * MS, call=1))
    assert said(full, "breakdown", index=0) == "Compute fills 100 % of the 9 ms step: 9 ms."
    assert said(full, "idle", index=0) == "The GPU is never idle in the 9 ms step."


def test_sums_over_ranks():
    rows = [op(0, 30 * MS, call=1), op(40 * MS, 50 * MS, call=2), op(0, 50 * MS, call=1, proc=1)]
    calls = [call(k, k + 1, k) | {"proc": p} for p in (0, 1) for k in (1, 2)]
    profile = make(ops=rows, calls=calls)
    assert said(profile, "breakdown") == (
        "Compute fills 90 % of the capture: 90 ms of 100 ms (sum over 2 ranks); idle time takes 10 ms (10 %)."
    )
    assert said(profile, "idle").startswith(
        "GPUs are idle for 10 % of the capture: 10 ms of 100 ms (sum over 2 ranks),"
    )


def test_launches_need_a_majority():
    # 40 of 100 compute, 40 queued, 20 of exposed copies: nothing has half.
    profile = job(op(0, 40 * MS, call=1), copy(60 * MS, 80 * MS, call=2), op(100 * MS - 1, 100 * MS, call=3))
    result = api.analyse(profile, "launches", index=0)
    verdict = result.summary["verdict"][0]
    assert (verdict["verdict"], verdict["largest"], verdict["second"]) == ("mixed", "compute", "queue")
    assert result.summary["statement"] == (
        "The 100 ms step is mixed: compute takes 40 % and launched work that waits for its turn takes 40 %, "
        "neither more than half."
    )
    profile = job(op(0, 51 * MS, call=1), op(100 * MS - 1, 100 * MS, call=3))
    assert said(profile, "launches", index=0) == "The 100 ms step is compute-bound: compute takes 51 %."


def test_streams():
    profile = job(op(0, 4, call=1), comm(4, 6, call=2), comm(4, 6, stream=7, call=3))
    want = "1 rank has 2 streams in the step: 1 for compute and 1 for communication"
    assert said(profile, "streams", index=0) == f"{want}; on 1 of them communication is in order with compute."


def test_every_format_has_it_last():
    result = api.analyse(job(op(0, 9 * MS, call=1)), "breakdown", index=0)
    sentence = result.summary["statement"]
    assert render(result, "table").decode().splitlines()[-1] == sentence
    assert render(result, "md").decode().splitlines()[-1] == f"**{sentence}**"
    assert json.loads(render(result, "json"))["summary"]["statement"] == sentence


@pytest.mark.parametrize("schedule", ["dualpipev", "1f1b", "fsdp"])
def test_sentences_are_the_simulators_truth(schedule):
    """The figures that they quote are sums of what the simulator itself knows."""
    shape = {"fsdp": {"pp": 1, "ep": 1, "dp": 4}, "1f1b": {"pp": 4, "ep": 1}, "dualpipev": {"pp": 2, "ep": 2}}[schedule]
    fault = ("straggler:rank=1,factor=1.6",)
    scenario = Scenario(schedule=schedule, layers=4, micro_batches=4, steps=3, seed=3, faults=fault, **shape)
    with written(scenario, ("nsys",)) as (done, folder):
        profile, known = api.open(folder, cache=False), truth(done)
        parts = known["breakdown"]["rows"]
        sentence = said(profile, "breakdown")
        compute, window = (sum(r[k] for r in parts) for k in ("compute_ns", "window_ns"))
        assert f"Compute fills {percent(compute, window)} of the " in sentence
        assert time_of(compute, window, len(parts)) in sentence
        table = known["overlap"]["rows"]
        comm_ns, bare = (sum(r[k] for r in table) for k in ("comm_ns", "exposed_ns"))
        sentence = said(profile, "overlap")
        assert f"is {percent(comm_ns - bare, comm_ns)} hidden" in sentence
        assert time_of(bare, comm_ns, len(parts)) in sentence
        assert said(profile, "stragglers").startswith("Rank 1 is last in ")
        assert "it computes longer" in said(profile, "stragglers")
        meetings = known["collectives"]["rows"]
        assert f" in {len(meetings)} collectives of the capture (sum over {len(parts)} ranks)" in said(
            profile, "collectives"
        )
        if schedule != "fsdp":
            free, step = (sum(r[k] for r in known["pipeline"]["rows"]) for k in ("bubble_ns", "step_ns"))
            sentence = said(profile, "pipeline", by="rank")
            assert sentence.startswith("The pipeline's bubble is ")
            assert f": {time_of(free, step, len(parts))}; " in sentence and f"% that {schedule} leaves." in sentence


def test_healthy_ranks_are_not_blamed():
    scenario = Scenario(schedule="fsdp", pp=1, ep=1, dp=4, layers=4, micro_batches=2, steps=2, seed=4)
    with written(scenario, ("nsys",)) as (_, folder):
        assert said(api.open(folder, cache=False), "stragglers").startswith("No rank ")
