"""Schedules: orders, labels, and the numbers of chunks that semantics §14 gives."""

from __future__ import annotations

import re

import pytest

from stepscope.simulate.job.scenario import Scenario
from stepscope.simulate.programs import execute as engine
from stepscope.simulate.programs.execute import Job
from stepscope.simulate.programs.schedules.pipelines import order_1f1b, order_interleaved, order_zero_bubble, spread


def labels(job: Job, rank: int) -> list[str]:
    """Texts of the rank's own ranges, in order."""
    sim = job.sims[rank]
    own = [n for n, domain in zip(sim.range_name, sim.range_domain, strict=True) if domain == 0]
    return [job.names[n] for n in own]


@pytest.mark.parametrize(("p", "n"), [(1, 2), (1, 5), (2, 4), (2, 9), (3, 6), (4, 8), (4, 13)])
def test_overlapped_chunks_of_dualpipev(p: int, n: int) -> None:
    job = engine.run(Scenario(pp=p, ep=1, layers=2 * p, micro_batches=n, steps=1))
    for r in range(p):
        texts = labels(job, r)
        overlapped = sum(bool(re.match("forward chunk .* backward chunk", t)) for t in texts)
        assert overlapped == (2 * n - 3 * p + r + 1 if r < p - 1 else 2 * n - 2 * p - 1)
        for way in ("forward", "backward"):
            for phase in (0, 1):
                done = [int(i) for t in texts for i in re.findall(rf"{way} chunk (\d+) \(phase{phase}\)", t)]
                assert done == list(range(n))


def test_an_overlapped_chunk_has_the_trainers_stages_in_order() -> None:
    job = engine.run(Scenario(pp=2, ep=2, layers=8, micro_batches=8, steps=1))
    texts = labels(job, 2)  # the last pipeline rank: no embedding, head or loss
    at = next(i for i, t in enumerate(texts) if " backward chunk 0 (phase0)" in t and t.startswith("forward"))
    chunk = texts[at + 1 : texts.index("pipeline send/recv", at)]
    # Phase 1 of the last rank holds layers 4 and 5, phase 0 layers 2 and 3.
    assert chunk == [
        "layer03.stage5_b",
        "layer03.stage4_b",
        "layer04.stage1_f",
        "layer03.stage3_b",
        "layer04.stage2_f",
        "layer03.stage2_b",
        "layer03.stage3_w",
        "layer04.stage3_f",
        "layer03_stage5_b_layer02_stage1_b",
        "layer04.stage4_f",
        "layer02.stage4_b",
        "layer04_stage5_f_layer05_stage1_f",
        "layer02.stage3_b",
        "layer05.stage2_f",
        "layer02.stage2_b",
        "layer02.stage3_w",
        "layer05.stage3_f",
        "layer05.stage4_f",
        "layer02.stage1_b",
        "layer05.stage5_f",
    ]


def test_the_first_rank_has_embedding_head_and_loss() -> None:
    job = engine.run(Scenario(pp=2, ep=1, micro_batches=4, steps=1))
    around = {"prolog_f", "prolog_b", "epilog_f", "loss1.backward()", "criterion0(*outputs0, *labels0)"}
    assert around <= set(labels(job, 0))
    assert not around & set(labels(job, 1))
    assert not any(t.startswith("step") for t in labels(job, 0))


def test_the_setup_label_is_the_trainers() -> None:
    job = engine.run(Scenario(pp=2, dp=2, ep=2, micro_batches=4, steps=1, seq=2048))
    assert labels(job, 5)[0] == "rank=5; pp=1/2 dp=0/2 cp=0/1 ep=1/2; mbs=1 seq=2048"


def test_steps_are_labelled_elsewhere() -> None:
    job = engine.run(Scenario(schedule="1f1b", pp=2, ep=1, micro_batches=2, steps=2))
    assert labels(job, 1) == [
        "rank=1; pp=1/2 dp=0/1 cp=0/1 ep=0/1; mbs=1 seq=4096",
        *(
            text
            for step in range(2)
            for text in (
                f"step {step}",
                "data",
                *(t for mb in range(2) for t in ("pipeline send/recv", f"forward mb {mb}", f"backward mb {mb}")),
                "pipeline send/recv",
                "optimizer",
            )
        ),
    ]


def test_backward_passes_run_on_their_own_thread() -> None:
    job = engine.run(Scenario(schedule="ddp", pp=1, dp=2, ep=1, micro_batches=1, steps=1))
    sim = job.sims[0]
    within = {sim.call_thread[c]: set() for c in sim.op_call}
    for op, call in enumerate(sim.op_call):
        within[sim.call_thread[call]].add(job.names[sim.range_name[sim.op_range[op]]])
    assert within[1] == {"backward mb 0"}
    assert "forward mb 0" in within[0]


@pytest.mark.parametrize("p", [1, 2, 4])
@pytest.mark.parametrize("m", [1, 4, 8])
def test_orders_do_every_chunk_once(p: int, m: int) -> None:
    for r in range(p):
        every = [(kind, 0, mb) for kind in "bf" for mb in range(m)]
        assert sorted(order_1f1b(r, p, m)) == every
        weights = [("w", 0, mb) for mb in range(m)]
        order = order_zero_bubble(r, p, m)
        assert sorted(order) == every + weights
        assert all(order.index(("b", 0, mb)) < order.index(("w", 0, mb)) for mb in range(m))


@pytest.mark.parametrize(("p", "v", "m"), [(2, 2, 4), (2, 3, 2), (4, 2, 8), (3, 2, 3)])
def test_interleaving_does_every_chunk_once_and_runs(p: int, v: int, m: int) -> None:
    for r in range(p):
        order = order_interleaved(r, p, m, v)
        assert sorted(order) == sorted((kind, c, mb) for kind in "fb" for c in range(v) for mb in range(m))
        assert all(order.index(("f", c, mb)) < order.index(("b", c, mb)) for c in range(v) for mb in range(m))
    engine.run(Scenario(schedule="interleaved", pp=p, vpp=v, ep=1, layers=p * v, micro_batches=m, steps=1))


@pytest.mark.parametrize("schedule", ["1f1b", "zero-bubble", "dualpipev"])
@pytest.mark.parametrize(("p", "m"), [(1, 2), (2, 4), (3, 7), (5, 10), (8, 16)])
def test_pipelines_never_deadlock(schedule: str, p: int, m: int) -> None:
    engine.run(Scenario(schedule=schedule, pp=p, ep=1, layers=2 * p, micro_batches=m, steps=2))


def test_zero_bubble_beats_1f1b() -> None:
    ends = {}
    for schedule in ("1f1b", "zero-bubble"):
        job = engine.run(Scenario(schedule=schedule, pp=4, ep=1, micro_batches=8, steps=1, jitter=0.0))
        ends[schedule] = job.step_ends()[0]
    assert ends["zero-bubble"] < ends["1f1b"]


def test_layers_are_spread_evenly() -> None:
    assert spread(6, 4) == [[0, 1], [2, 3], [4], [5]]
    assert spread(4, 4) == [[0], [1], [2], [3]]
