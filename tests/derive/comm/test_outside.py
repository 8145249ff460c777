"""What of a step's communication lies outside its median chunk, by hand."""

from __future__ import annotations

from typing import Any

import pytest

from fake import Row, call, comm, make, nvtx, op
from stepscope import api
from stepscope.model.profile import Profile

ASKED_OF_CHUNKS = ("window", "streams", "overlap", "exposed")


def job(marked: bool = True, optimizer: int = 50, ranks: int = 1) -> Profile:
    """Two chunks that communicate for 30 and 20 ns, and an optimizer that does after them."""
    tables: dict[str, list[Row]] = {"ops": [], "calls": [], "ranges": []}
    for rank in range(ranks):
        of: dict[str, Any] = {"proc": rank}
        tables["calls"] += [call(at, at + 1, k) | of for k, at in enumerate([1, 2, 11, 12, 21], 1)]
        tables["ops"] += [op(100, 150, call=1, **of), comm(110, 140, call=2, **of)]
        tables["ops"] += [op(150, 200, call=3, **of), comm(160, 180, call=4, **of)]
        tables["ops"] += [comm(200, 200 + optimizer, call=5, **of)] if optimizer else []
        tables["ranges"] += [nvtx(10 * k, 10 * k + 9, f"forward chunk {k} backward chunk {k}", **of) for k in range(2)]
        tables["ranges"] += [nvtx(0, 30, "step 0", **of)] if marked else []
    return make(**tables)


def said(profile: Profile, command: str, **options: Any) -> list[str]:
    return [str(n) for n in api.analyse(profile, command, **options).notes if n.code == "communication-outside-chunk"]


@pytest.mark.parametrize("command", ASKED_OF_CHUNKS)
@pytest.mark.parametrize("marked", [True, False])
def test_what_the_median_chunk_leaves_out_is_said(command: str, marked: bool):
    """The second chunk has 20 of 100 ns; without a range around the step, of what the capture has."""
    assert said(job(marked), command) == [
        "the window is a chunk: 80 ns of the step's 100 ns of communication (80 %, all ranks) lies outside it; "
        "--step has all of it"
    ]
    assert said(job(marked), command, step=True) == []
    (first,) = said(job(marked), command, index=0)
    assert "70 ns of the step's 100 ns" in first


def test_ranks_are_added_up():
    (both,) = said(job(ranks=2), "overlap")
    assert "160 ns of the step's 200 ns of communication (80 %, all ranks)" in both


def test_nothing_is_said_where_nothing_is_left_out():
    assert said(job(optimizer=0), "overlap", index="all") == []
    assert said(job(), "overlap", whole=True) == []
    assert said(job(), "overlap", anchor="chunk") == []  # a window that was asked for is what it is


def test_only_the_step_of_the_chunk_counts():
    """Another step after it, with communication of its own, is not what the chunk leaves out."""
    tables: dict[str, list[Row]] = {"ops": [], "calls": [], "ranges": []}
    for step, length in enumerate([30, 40]):
        at, on_gpu = 100 * step, 1000 + 200 * step
        tables["ranges"] += [nvtx(at, at + 50, f"step {step}"), nvtx(at, at + 9, "forward chunk 0 backward chunk 0")]
        tables["calls"] += [call(at + k, at + k + 1, 10 * step + k) for k in (1, 20)]
        tables["ops"] += [comm(on_gpu, on_gpu + 10, call=10 * step + 1)]
        tables["ops"] += [comm(on_gpu + 10, on_gpu + 10 + length, call=10 * step + 20)]
    (last,) = said(make(**tables), "overlap")  # the median of two is the second
    assert "40 ns of the step's 50 ns" in last
    (first,) = said(make(**tables), "overlap", index=0)
    assert "30 ns of the step's 40 ns" in first


def test_what_lies_outside_is_named_by_what_it_serves():
    """A pipeline's transfer of 40 ns before the chunk, and 7 ns of which nobody knows what they serve."""
    profile = make(
        ops=[comm(0, 40, call=1), op(50, 90, call=2), comm(60, 80, call=3), comm(100, 107, call=4)],
        calls=[call(k * 10, k * 10 + 1, k) for k in range(1, 5)],
        ranges=[
            nvtx(0, 50, "step 0"),
            nvtx(9, 12, "pipeline send/recv"),
            nvtx(15, 35, "forward chunk 0 (phase0) backward chunk 0 (phase1)"),
        ],
    )
    (note,) = said(profile, "overlap")
    assert (
        "47 ns of the step's 67 ns of communication (70 %, all ranks) lies outside it: pp_p2p 40 ns, others 7 ns"
        in note
    )


def test_a_range_that_the_user_chose_leaves_out_the_rest_of_its_step():
    profile = job()
    notes = api.analyse(profile, "overlap", anchor="^forward chunk 1").notes
    (note,) = [n for n in notes if n.code == "communication-outside-window"]
    assert note.startswith("the window is a range: 80 ns of the step's 100 ns")
    assert "communication-outside-window" not in {n.code for n in api.analyse(profile, "overlap", anchor="^step").notes}


def test_chunks_of_several_steps_are_held_against_all_of_them():
    """Both chunks of both steps: the optimizers' 50 ns each lie outside."""
    tables: dict[str, list[Row]] = {"ops": [], "calls": [], "ranges": []}
    for k, at in enumerate((0, 1000)):
        tables["calls"] += [call(at + 5, at + 6, 2 * k + 1), call(at + 20, at + 21, 2 * k + 2)]
        tables["ops"] += [comm(at + 10, at + 40, call=2 * k + 1), comm(at + 100, at + 150, call=2 * k + 2)]
        tables["ranges"] += [
            nvtx(at, at + 30, f"step {k}"),
            nvtx(at + 2, at + 9, f"forward chunk {k} backward chunk 0"),
        ]
    (note,) = said(make(**tables), "overlap", chunk=True, index="all")
    assert "100 ns of the step's 160 ns" in note
