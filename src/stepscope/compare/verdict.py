"""Faster, slower, no difference, or cannot tell; and the sentence that an operator quotes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from stepscope.compare.columns import Line
from stepscope.compare.facts import NOTHING, Difference
from stepscope.model.units import about, signed

Verdict = Literal["faster", "slower", "no difference", "cannot tell"]


@dataclass(frozen=True)
class Step:
    """The step of both sides, median and mean, the intervals of their differences, and how many samples there are."""

    base_ns: int
    new_ns: int
    low: float | None
    high: float | None
    base_n: int
    new_n: int
    unit: str
    #: The mean step of both sides, and the interval of their difference.
    base_mean_ns: int = 0
    new_mean_ns: int = 0
    mean_low: float | None = None
    mean_high: float | None = None
    #: How steps differ, where ones of very different lengths recur: then means are what counts.
    uneven: str = ""

    @property
    def judged(self) -> tuple[int, int, float | None, float | None]:
        """What the verdict rests on: base, new, and the interval of their difference."""
        if self.uneven:
            return self.base_mean_ns, self.new_mean_ns, self.mean_low, self.mean_high
        return self.base_ns, self.new_ns, self.low, self.high

    @property
    def delta_ns(self) -> int:
        return self.judged[1] - self.judged[0]

    def pct(self, ns: float | None) -> float | None:
        """As a share of the base's step."""
        return _share(ns, self.judged[0])

    def summary(self) -> dict[str, Any]:
        return {
            "base_ns": self.base_ns,
            "new_ns": self.new_ns,
            "diff_ns": self.new_ns - self.base_ns,
            "change_pct": _share(self.new_ns - self.base_ns, self.base_ns),
            "low_change_pct": _share(self.low, self.base_ns),
            "high_change_pct": _share(self.high, self.base_ns),
            "samples": f"{self.unit}s",
            "base_n": self.base_n,
            "new_n": self.new_n,
            "base_mean_ns": self.base_mean_ns,
            "new_mean_ns": self.new_mean_ns,
            "mean_change_pct": _share(self.new_mean_ns - self.base_mean_ns, self.base_mean_ns),
            "low_mean_change_pct": _share(self.mean_low, self.base_mean_ns),
            "high_mean_change_pct": _share(self.mean_high, self.base_mean_ns),
            "judged_by": "mean" if self.uneven else "median",
        }


def _share(ns: float | None, whole: int) -> float | None:
    """Per cent; nothing shrinks by more than all of it, whatever rounding makes of that."""
    return None if ns is None or not whole else max(100.0 * ns / whole, -100.0)


def verdict(step: Step, margin: float) -> Verdict:
    """A difference only outside the noise; none only where one beyond `margin` percent would have been seen."""
    low, high = map(step.pct, step.judged[2:])
    if low is None or high is None:
        return "cannot tell"
    if low > 0 or high < 0:
        return "slower" if step.delta_ns > 0 else "faster"
    return "no difference" if max(-low, high) <= margin else "cannot tell"


def statement(
    judged: Verdict,
    step: Step,
    parts: list[Line],
    differ: list[Difference],
    condition: str,
    margin: float,
    why: str = "",
) -> str:
    """One sentence with figure, window and condition; of a step that changed, why (`why.because`)."""
    before, after, least, most = step.judged
    change, low, high = map(step.pct, (after - before, least, most))
    times = f"{about(before, 4)} to {about(after, 4)}{' in the mean' * bool(step.uneven)}"
    n = (
        f"{step.base_n} {step.unit}s per side"
        if step.base_n == step.new_n
        else f"{step.base_n} and {step.new_n} {step.unit}s"
    )
    sure = "" if low is None or high is None else f"95 % interval {low:+.1f} to {high:+.1f} %, "
    changed = [d for d in differ if d.variable]
    besides = f"; {_changed(changed)}" if changed else ""
    if judged in ("faster", "slower"):
        because = f", {why}" if why else ""
        what = f"the {_what(step)} is {abs(change or 0):.1f} % {judged} ({times}; {sure}{n}){because}"
    elif judged == "no difference":
        usual = f" of the median {_what(step)}" if not step.uneven and _mean(step, margin) else ""
        what = f"no difference{usual}: the {_what(step)} changes by {change:+.1f} % ({times}; {sure}{n})"
    elif low is None:
        moved = f"; {why}" if why else _moved(step, parts)
        what = f"cannot tell: one {step.unit} per side is not enough (the {_what(step)} went from {times}{moved})"
    else:
        what = (
            f"cannot tell: the {_what(step)} changes by {change:+.1f} % ({times}; {sure}{n}), and the noise is more "
            f"than the margin of {margin:g} %"
        )
    uneven = f"; {step.uneven}" if step.uneven else _mean(step, margin)
    return f"{what}{uneven}; {condition}{besides}"


def _mean(step: Step, margin: float) -> str:
    """What becomes of the mean, where a few steps of other lengths move it and not the median."""
    usual, mean = (100 * (new - base) / max(base, 1) for base, new in (
        (step.base_ns, step.new_ns), (step.base_mean_ns, step.new_mean_ns)
    ))  # fmt: skip
    if not step.base_mean_ns or abs(mean - usual) <= margin:
        return ""
    low, high = (_share(ns, step.base_mean_ns) for ns in (step.mean_low, step.mean_high))
    sure = "" if low is None or high is None else f"; 95 % interval {low:+.1f} to {high:+.1f} %"
    went = f"{about(step.base_mean_ns, 4)} to {about(step.new_mean_ns, 4)}"
    return f"; the mean step changes by {mean:+.1f} % ({went}{sure}): a few steps are far from the median"


def _what(step: Step) -> str:
    return step.unit if step.unit in ("capture", "chunk") else "step"


def _moved(step: Step, parts: list[Line]) -> str:
    """The two parts that moved most, where they moved by more than a thousandth of the step."""
    most = sorted(parts, key=lambda r: -abs(r["diff_ns"]))[:2]
    moved = [f"{r['key']} {signed(r['diff_ns'])}" for r in most if 1000 * abs(r["diff_ns"]) > step.base_ns]
    return "; " + ", ".join(moved) if moved else ""


def _changed(differ: list[Difference]) -> str:
    if len(differ) == 1:
        one = differ[0]
        if NOTHING in (one.base, one.new):
            return f"{one.what} with {one.new}" if one.base == NOTHING else f"{one.what} without {one.base}"
        return f"{one.what} changed from {one.base} to {one.new}"
    return f"{len(differ)} things changed besides: {', '.join(d.what for d in differ[:4])}{', …' * (len(differ) > 4)}"
