"""Faster, slower, no difference, or cannot tell; and the sentence that an operator quotes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from stepscope.compare.facts import NOTHING, Difference
from stepscope.model.units import about, signed

Verdict = Literal["faster", "slower", "no difference", "cannot tell"]


@dataclass(frozen=True)
class Step:
    """The median step of both sides, the interval of their difference, and how many samples each rests on."""

    base_ns: int
    new_ns: int
    low: float | None
    high: float | None
    base_n: int
    new_n: int
    unit: str

    @property
    def delta_ns(self) -> int:
        return self.new_ns - self.base_ns

    def pct(self, ns: float | None) -> float | None:
        """As a share of the base's step."""
        return None if ns is None or not self.base_ns else 100.0 * ns / self.base_ns

    def summary(self) -> dict[str, Any]:
        return {
            "base_ns": self.base_ns,
            "new_ns": self.new_ns,
            "diff_ns": self.delta_ns,
            "change_pct": self.pct(self.delta_ns),
            "low_change_pct": self.pct(self.low),
            "high_change_pct": self.pct(self.high),
            "samples": f"{self.unit}s",
            "base_n": self.base_n,
            "new_n": self.new_n,
        }


def verdict(step: Step, margin: float) -> Verdict:
    """A difference only outside the noise; none only where one beyond `margin` percent would have been seen."""
    low, high = step.pct(step.low), step.pct(step.high)
    if low is None or high is None:
        return "cannot tell"
    if low > 0 or high < 0:
        return "slower" if step.delta_ns > 0 else "faster"
    return "no difference" if max(-low, high) <= margin else "cannot tell"


def statement(
    said: Verdict, step: Step, parts: list[dict[str, Any]], differ: list[Difference], condition: str, margin: float
) -> str:
    """One sentence with figure, window and condition."""
    change, low, high = step.pct(step.delta_ns), step.pct(step.low), step.pct(step.high)
    times = f"{about(step.base_ns, 4)} to {about(step.new_ns, 4)}"
    n = (
        f"{step.base_n} {step.unit}s a side"
        if step.base_n == step.new_n
        else f"{step.base_n} and {step.new_n} {step.unit}s"
    )
    sure = "" if low is None or high is None else f"95 % interval {low:+.1f} to {high:+.1f} %, "
    changed = [d for d in differ if d.variable]
    besides = f"; {_changed(changed)}" if changed else ""
    if said in ("faster", "slower"):
        what = f"the {_what(step)} is {abs(change or 0):.1f} % {said} ({times}; {sure}{n}), {_mostly(step, parts)}"
    elif said == "no difference":
        what = f"no difference: the {_what(step)} changes by {change:+.1f} % ({times}; {sure}{n})"
    elif low is None:
        moved = _moved(step, parts)
        what = f"cannot tell: one {step.unit} a side is not enough (the {_what(step)} went from {times}{moved})"
    else:
        what = (
            f"cannot tell: the {_what(step)} changes by {change:+.1f} % ({times}; {sure}{n}), and the noise is more "
            f"than the margin of {margin:g} %"
        )
    return f"{what}; {condition}{besides}"


def _what(step: Step) -> str:
    return step.unit if step.unit in ("capture", "chunk") else "step"


def _mostly(step: Step, parts: list[dict[str, Any]]) -> str:
    """The part that moved most in the direction of the step, and what went against it."""
    sign = 1 if step.delta_ns > 0 else -1
    most = max(parts, key=lambda r: sign * r["diff_ns"])
    told = f"{most['part']} ({signed(most['diff_ns'])}"
    against = min(parts, key=lambda r: sign * r["diff_ns"])
    if -sign * against["diff_ns"] < 0.1 * abs(step.delta_ns):
        return f"most of it {told} of {signed(step.delta_ns)})"
    return f"by {told}, against {against['part']} {signed(against['diff_ns'])})"


def _moved(step: Step, parts: list[dict[str, Any]]) -> str:
    """The two parts that moved most, where they moved by more than a thousandth of the step."""
    most = sorted(parts, key=lambda r: -abs(r["diff_ns"]))[:2]
    told = [f"{r['part']} {signed(r['diff_ns'])}" for r in most if 1000 * abs(r["diff_ns"]) > step.base_ns]
    return "; " + ", ".join(told) if told else ""


def _changed(differ: list[Difference]) -> str:
    if len(differ) == 1:
        one = differ[0]
        if NOTHING in (one.base, one.new):
            return f"{one.what} with {one.new}" if one.base == NOTHING else f"{one.what} without {one.base}"
        return f"{one.what} changed from {one.base} to {one.new}"
    return f"{len(differ)} things changed besides: {', '.join(d.what for d in differ[:4])}{', …' * (len(differ) > 4)}"
