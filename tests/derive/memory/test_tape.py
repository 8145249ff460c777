"""A tape drawn by hand: what is alive at the peak can be worked out on paper."""

from __future__ import annotations

from stepscope.derive.memory.tape import ACTIVATION, GRADIENT, Op, Tape, Tensor, backward, forward


def t(name: str, size: int) -> Tensor:
    return Tensor(name, f"{size}", size)


def test_what_is_kept_lives_until_its_backward():
    """x → a (keeps x) → b (keeps nothing) → loss (keeps b): forwards 10 + 20 + 30, a is gone once b is there."""
    ops = [
        Op((), "x", t("x", 10)),
        Op(("x",), "a", t("a", 20), saves=("x",), weight=t("w", 5)),
        Op(("a",), "b", t("b", 30)),
        Op(("b",), "loss", t("loss", 1), saves=("b",)),
    ]
    tape = Tape({})
    forward(tape, ops, (), "forward")
    assert (tape.peak.size, tape.peak.parts()) == (10 + 20 + 30, {ACTIVATION: 60})
    backward(tape, ops, "backward", None)
    # Kept: x, b; the gradient of b (30) is made while b lives; then the gradient of a (20) beside that of b.
    assert tape.peak.size == 10 + 30 + 30
    assert tape._size == 5  # the gradient of the weight is all that stays


def test_an_addition_hands_its_gradient_on():
    ops = [
        Op((), "x", t("x", 10)),
        Op(("x",), "y", t("y", 10), saves=("x",)),
        Op(("x", "y"), "z", t("z", 10), passes=True),
        Op(("z",), "loss", t("loss", 0)),
    ]
    tape = Tape({})
    forward(tape, ops, (), "forward")
    forwards = tape.peak.size
    backward(tape, ops, "backward", None)
    # x, the one gradient of z (which is that of x and of y too), and what y gives to x before it is added.
    assert (forwards, tape.peak.size, tape._size) == (30, 30, 0)


def test_scratch_and_held_outputs():
    ops = [
        Op((), "x", t("x", 10)),
        Op(("x",), "y", t("y", 10), saves=("x",), scratch=(t("scratch", 100),), weight=t("w", 7), held=True),
        Op(("y",), "loss", t("loss", 0)),
    ]
    tape = Tape({("weights", "w", "7", 7): 1})
    forward(tape, ops, (), "forward")
    backward(tape, ops, "backward", None)
    assert tape.peak.size == 7 + 10 + 10 + 10 + 100 + 10 + 7  # weights, x, y, its gradient, scratch, x's gradient, w's
    assert tape.peak.parts() == {"weights": 7, ACTIVATION: 20, "temporary": 120, GRADIENT: 7}
    assert tape._size == 7 + 10 + 7
