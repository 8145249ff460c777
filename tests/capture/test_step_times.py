"""Lengths of steps with the profiler and without, from manifests drawn by hand."""

from __future__ import annotations

from typing import Any

from stepscope.capture.step_times import profiled, slowdown, unprofiled, unprofiled_host


def manifest(backend: str = "nsys", **captured: Any) -> dict[str, Any]:
    return {"scenario": {"backend": backend}, "captured": captured}


def steps(*plain: int, recorded: tuple[int, ...] = ()) -> list[tuple[int, bool]]:
    return [(ns, False) for ns in plain] + [(ns, True) for ns in recorded]


def test_the_first_two_settle() -> None:
    content = manifest(step_ns={"0": steps(900, 500, 100, 120, 110, recorded=(150, 170))})
    assert unprofiled(content) == 110
    assert profiled(content) == 160


def test_torch_warms_up_in_the_last() -> None:
    content = manifest("torch", step_ns={"0": steps(900, 500, 100, 120, 400, recorded=(150,))})
    assert unprofiled(content) == 110
    assert unprofiled(manifest("torch", step_ns={"0": steps(900, 500, 400)})) is None


def test_a_step_is_the_mean_of_its_ranks() -> None:
    ranks = {"0": steps(9, 9, 100, recorded=(200,)), "1": steps(9, 9, 300, recorded=(500,))}
    content = manifest(step_ns=ranks)
    assert (unprofiled(content), profiled(content)) == (200, 350)


def test_spans_count_more_than_single_steps() -> None:
    spans = {"0": [(2, 200, False), (4, 480, False), (1, 330, True)]}
    content = manifest(step_ns={"0": steps(1, 1, 1, recorded=(1,))}, spans=spans)
    assert (unprofiled(content), profiled(content)) == (110, 330)


def test_what_the_host_took_is_of_steps_without_a_wait_at_their_end() -> None:
    spans = {"0": [(1, 120, False), (1, 330, True)]}
    content = manifest("torch", step_ns={"0": steps(900, 500, 80, 90, 400, recorded=(150,))}, spans=spans)
    assert (unprofiled(content), unprofiled_host(content)) == (120, 85)
    assert unprofiled_host(manifest(spans=spans)) is None


def test_a_span_with_slow_steps_is_no_mean_of_usual_ones() -> None:
    """Four ranks on one GPU: five of thirteen steps before recording took up to four times as long as the others."""
    slow = [540, 340, 700, 190, 191, 187, 309, 206, 176, 186, 183, 190, 191]
    spans = {"0": [(13, 13 * 300, False), (3, 3 * 410, True)]}
    content = manifest("torch", step_ns={"0": steps(900, 500, *slow, 130, recorded=(150,))}, spans=spans)
    assert unprofiled(content) == 190
    # What a program that runs ahead takes, its host does not say: of a span no longer than most steps, nor of one.
    even = manifest("torch", step_ns=content["captured"]["step_ns"], spans={"0": [(13, 13 * 240, False)]})
    assert unprofiled(even) == 240
    assert unprofiled(manifest("torch", step_ns=content["captured"]["step_ns"], spans={"0": [(1, 300, False)]})) == 300


def test_steps_timed_apart_count_most() -> None:
    content = manifest(unprofiled_step_ns=[80, 90, 85], step_ns={"0": steps(9, 9, 100, recorded=(170,))})
    assert slowdown(profiled(content), unprofiled(content)) == 2


def test_nothing_timed() -> None:
    assert unprofiled(manifest()) is None
    assert profiled(manifest()) is None
    assert slowdown(None, 5.0) is None
