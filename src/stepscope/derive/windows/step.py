"""The step: the window of questions about a whole step, not about one chunk of it (semantics §4, §7)."""

from __future__ import annotations

from dataclasses import replace

from stepscope.derive.windows.windows import CHUNK, Windows, WindowSpec, windows
from stepscope.errors import BadInput, CannotAnswer
from stepscope.model.profile import Profile

#: What steps are called, beside DualPipeV's chunks, which are no steps.
STEPS = r"(?i)^(ProfilerStep#|(train(ing)?[ _-]?)?(step|iteration|iter)[ _#:=-]*)\d+"


def step(profile: Profile, spec: WindowSpec) -> Windows:
    """The window that `spec` chooses; where it leaves the anchor open, the same step on every rank.

    DualPipeV's trainer marks chunks but no steps: unless other ranges do, its step is the whole capture. A profile
    keeps what was chosen.
    """
    memo: dict[WindowSpec, Windows] = profile.memo.setdefault("steps", {})
    if spec not in memo:
        memo[spec] = _step(profile, spec)
    return memo[spec]


def _step(profile: Profile, spec: WindowSpec) -> Windows:
    if spec.index == "all":
        raise BadInput("--index all: this question is about one step", "give a number, or leave it out")
    chosen = windows(profile, spec)
    if spec.anchor is None and spec.start is None and not spec.whole and profile.names.str.contains(CHUNK).any():
        try:
            chosen = windows(profile, replace(spec, anchor=STEPS))
        except CannotAnswer:
            chosen = windows(profile, replace(spec, whole=True, period=False, match=False))
            chosen.notes.append("the trainer marks chunks, but no steps: the step is the whole capture")
    return chosen
