"""Conditions on what torch.compile did, for CI: `breaks<=0,recompiles<=2,compiled>=80`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from stepscope.analyses.compile.columns import Row
from stepscope.errors import BadInput, CannotAnswer, GateFailed
from stepscope.model.result import Result

_CONDITION = re.compile(r"\s*(breaks|recompiles|compiled)\s*(<=|>=)\s*(\d+(?:\.\d+)?)\s*%?\s*")
_HELP = "as in breaks<=0,recompiles<=2,compiled>=80"


#: The verdict where names of kernels are all there is to go by.
UNDECIDED = "undecided"
_SAYS = {
    "not compiled": "nothing in the window is compiled",
    "whole": "compiled code runs without a graph break",
    "breaks hidden": "graphs break, and the GPU does not idle for it",
    "breaks exposed": "graphs break, and the GPU idles between them",
    "host-bound": "the host of compiled code keeps the GPU waiting for longer than compiled kernels run",
    UNDECIDED: "how much is compiled is undecided: names of kernels tell only inductor's own",
}


def statement(rows: Sequence[Row], compiled_pct: float | None) -> str:
    """The verdict that most rows have, in a sentence."""
    verdicts = Counter(r["verdict"] for r in rows if r["verdict"])
    if not verdicts:
        return "Nothing says what was compiled: no GPU work is in the window."
    (verdict, n), *_ = verdicts.most_common(1)
    says = _SAYS[verdict]
    of = f" (in {n} of {len(rows)} rows)" if n < len(rows) else ""
    least = "at least " if verdict == UNDECIDED else ""
    share = f"; {least}{compiled_pct:.1f} % of the GPU time is compiled" if compiled_pct is not None else ""
    if verdict == "not compiled" and not compiled_pct:
        return f"{says[0].upper()}{says[1:]}{of}."
    return f"{says[0].upper()}{says[1:]}{of}{share}. Verdict: {verdict}."


def parse(text: str) -> list[tuple[str, str, float]]:
    """(what, how, number) of each condition."""
    limits = []
    for part in text.split(","):
        match = _CONDITION.fullmatch(part)
        if match is None:
            raise BadInput(f"--gate {part.strip()!r}: not a condition", _HELP)
        limits.append((match[1], match[2], float(match[3])))
    return limits


def require(result: Result, conditions: list[tuple[str, str, float]], log: dict[str, Any] | None) -> None:
    """`GateFailed` where one does not hold. A log knows every break and recompile, a profile some."""
    counts = {
        "breaks": log["graph_breaks"] if log else result.summary.get("breaks"),
        "recompiles": log["recompiles"] if log else result.summary.get("recompiles"),
        "compiled": result.summary.get("compiled_pct"),
    }
    for what, how, number in conditions:
        have = counts[what]
        if have is None:
            source = "a profile" if what == "compiled" else "a log (--log FILE)"
            raise CannotAnswer(f"--gate {what}: nothing says how many", f"give {source}")
        at_least = what == "compiled" and result.summary.get("compiled_is") == "at least"
        if at_least and (how == "<=" or have < number):
            raise CannotAnswer(
                f"--gate {what}: undecided: names of kernels show that {have:.1f} % is compiled at least",
                "record annotations of torch.compile, with torch.profiler or nsys --pytorch=autograd-nvtx",
            )
        if not (have <= number if how == "<=" else have >= number):
            shown = f"{have:.1f} %" if what == "compiled" else str(have)
            raise GateFailed(f"{what}: {shown}, must be {how} {number:g}", None, result)
