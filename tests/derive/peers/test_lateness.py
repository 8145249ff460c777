"""When a host was getting input, by hand: names of ranges are neither proof nor needed."""

from __future__ import annotations

from itertools import pairwise

import pytest

from fake import Row, call, make, nvtx, op
from stepscope.derive.peers.lateness import host_late
from stepscope.derive.rank.data import ranks_of

MS = 1_000_000


def steps(
    away: int, *, behind: int = 0, ranges: tuple[str, ...] = (), inside: str | None = None, times: int = 6
) -> dict[str, list[Row]]:
    """Steps of twenty kernels. Before each, the host is away for so many ms, then copies a batch.

    With `behind`, it copies first and launches so many kernels before it is away. `ranges` are around the copy,
    `inside` is around the absence, the copy and the first kernel.
    """
    ops: list[Row] = []
    calls: list[Row] = []
    marks: list[Row] = [nvtx(0, 1, "begin")]
    now, number = MS, 0

    def launch(took: int, **more: object) -> None:
        nonlocal now, number
        number += 1
        calls.append(call(now, now + 5_000, id=number))
        ops.append(op(now + 10_000, now + 10_000 + took, call=number, **more))  # type: ignore[arg-type]
        now += took + 20_000

    for step in range(times):
        begun = now
        if not behind:
            now += away * MS
        copied = now
        launch(50_000, name="[memcpy HtoD]", kind="memcpy", copy_kind="HtoD", bytes=131_072)
        marks += [nvtx(copied - 10_000, now, text) for text in ranges]
        for k in range(20 + behind):
            if behind and k == behind:
                now += away * MS
            launch(300_000)
            if k == 0 and inside:
                marks.append(nvtx(begun, now, inside))
        marks.append(nvtx(begun, now - 1, f"step {step}"))
    return {"ops": ops, "calls": calls, "ranges": marks}


def fetched(tables: dict[str, list[Row]]) -> tuple[float, bool]:
    """Milliseconds of input, and whether ranges name it."""
    profile = make(**tables)
    (data,) = ranks_of(profile)
    _, fetching, named = host_late(data, near=True)
    return fetching.length() / MS, named


@pytest.mark.parametrize("ranges", [(), ("data copy in",), ("xfer",)])
def test_a_range_around_the_copy_hides_no_absence(ranges: tuple[str, ...]) -> None:
    """The range is called data, and is short: what the GPU waits for comes before it."""
    took, named = fetched(steps(40, ranges=ranges))
    assert took == pytest.approx(6 * 40, rel=0.02) and not named


def test_a_range_that_names_the_absence_is_it() -> None:
    tables = steps(40)
    copies = [o for o in tables["ops"] if o["copy_kind"] == "HtoD"]
    tables["ranges"] += [nvtx(o["start_ns"] - 40 * MS, o["start_ns"] - 20_000, "data") for o in copies]
    took, named = fetched(tables)
    assert took == pytest.approx(6 * 40, rel=0.02) and named


@pytest.mark.parametrize("text", ["data generation", "Batch 24"])
def test_a_range_that_computes_is_not_getting_input(text: str) -> None:
    tables = steps(40, inside=text)
    for row in tables["ops"]:
        row |= {"copy_kind": "none", "kind": "kernel", "name": "fill"} if row["copy_kind"] == "HtoD" else {}
    assert fetched(tables) == (0.0, False)


@pytest.mark.parametrize(("away", "behind", "found"), [(50, 12, True), (50, 17, False), (3, 12, False)])
def test_a_loader_one_batch_ahead_fetches_behind_the_copy(away: int, behind: int, found: bool) -> None:
    """accelerate's: copy, a few kernels, fetch the next batch, step. A short absence there is not fetching."""
    took, _ = fetched(steps(away, behind=behind))
    assert took == pytest.approx(6 * away if found else 0, abs=2)


def test_what_the_loader_says_itself_is_all() -> None:
    tables = steps(40)
    copies = [o for o in tables["ops"] if o["copy_kind"] == "HtoD"]
    text = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
    tables["ranges"] += [nvtx(o["start_ns"] - MS, o["start_ns"] - 20_000, text) for o in copies]
    took, named = fetched(tables)
    assert took == pytest.approx(6, rel=0.05) and named


@pytest.mark.parametrize("in_launch", [False, True])
def test_a_host_that_is_in_a_launch_is_not_away(in_launch: bool) -> None:
    """The first launch of a kernel loads its code: 40 ms, near the copy of a batch, and no input."""
    tables = steps(40, behind=4)
    if in_launch:
        for before, row in pairwise(tables["calls"]):
            if row["start_ns"] - before["end_ns"] > 10 * MS:
                row["start_ns"] = before["end_ns"] + 20_000
    took, _ = fetched(tables)
    assert took == pytest.approx(0.0 if in_launch else 6 * 40, abs=2.0)
