"""Where steps end, by the order of backward passes (b) and optimizer steps (letters), against ends marked by hand."""

from __future__ import annotations

import pytest

from stepscope.hooks.cycle import Cycle, End


def ends(order: str) -> list[tuple[int, bool]]:
    """Optimizer steps after which a step ended: (place among the optimizer steps, whether told at once)."""
    cycle, found, place = Cycle(), [], -1
    for event in order:
        if event == "b":
            cycle.backward()
            continue
        place += 1
        ended = cycle.stepped(ord(event))
        found += [(place - 1, False)] if End.BEFORE in ended else []
        found += [(place, True)] if End.NOW in ended else []
    return found


@pytest.mark.parametrize(
    ("step", "size"),
    [
        ("bA", 1),
        ("bbbbA", 1),
        ("bAB", 2),
        ("bAAA", 3),
        ("bAbB", 2),
        ("bAbAbAbAbAbB", 6),
        ("bAbBbB", 3),
        ("bbAbABbC", 4),
    ],
    ids=[
        "plain",
        "accumulation",
        "two beside",
        "ZeRO's groups",
        "GAN",
        "five of the critic",
        "two of the second",
        "mixed",
    ],
)
def test_ends_are_told_at_once_when_known(step, size):
    found = ends(step * 9)
    last = [place for place in found if place[1]][-4:]
    assert last == [(size * n - 1, True) for n in range(6, 10)]


def test_the_first_ends_are_told_late():
    assert ends("bA" * 5) == [(0, False), (1, False), (2, True), (3, True), (4, True)]


def test_another_optimizer_makes_it_learn_again():
    cycle = Cycle()
    for _ in range(5):
        cycle.backward()
        cycle.stepped(1)
    assert cycle.known == ((1,),)
    cycle.backward()
    cycle.stepped(2)
    assert cycle.known is None
    for _ in range(4):
        for optimizer in (1, 1, 2):
            cycle.backward()
            cycle.stepped(optimizer)
    assert cycle.known == ((1,), (1,), (2,))


def test_a_skipped_optimizer_step_joins_two_steps():
    """A gradient scaler that finds infinities steps no optimizer: what it skipped is part of the next step."""
    assert [place for place, _ in ends("bA" * 5 + "b" + "bA" * 3)] == list(range(8))
