"""Conditions on what torch.compile did, for CI: `breaks<=0,recompiles<=2,compiled>=80`."""

from __future__ import annotations

import re
from typing import Any

from stepscope.errors import BadInput, CannotAnswer, GateFailed
from stepscope.model.result import Result

_CONDITION = re.compile(r"\s*(breaks|recompiles|compiled)\s*(<=|>=)\s*(\d+(?:\.\d+)?)\s*%?\s*")
_HELP = "as in breaks<=0,recompiles<=2,compiled>=80"


def parse(text: str) -> list[tuple[str, str, float]]:
    """(what, how, number) of each condition."""
    found = []
    for part in text.split(","):
        match = _CONDITION.fullmatch(part)
        if match is None:
            raise BadInput(f"--gate {part.strip()!r}: not a condition", _HELP)
        found.append((match[1], match[2], float(match[3])))
    return found


def require(result: Result, conditions: list[tuple[str, str, float]], log: dict[str, Any] | None) -> None:
    """`GateFailed` where one does not hold. A log knows every break and recompile, a profile some."""
    known = {
        "breaks": log["graph_breaks"] if log else result.summary.get("breaks"),
        "recompiles": log["recompiles"] if log else result.summary.get("recompiles"),
        "compiled": result.summary.get("compiled_pct"),
    }
    for what, how, number in conditions:
        have = known[what]
        if have is None:
            source = "a profile" if what == "compiled" else "a log (--log FILE)"
            raise CannotAnswer(f"--gate {what}: nothing says how many", f"give {source}")
        if not (have <= number if how == "<=" else have >= number):
            shown = f"{have:.1f} %" if what == "compiled" else str(have)
            raise GateFailed(f"{what}: {shown}, must be {how} {number:g}", None, result)
