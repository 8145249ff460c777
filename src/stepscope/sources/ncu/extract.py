"""Run in a process of its own: a report through NVIDIA's `ncu-report` package, as JSON lines.

The package is native code that ends the process on some damaged files, so it runs where that hurts nobody. This file
imports nothing of stepscope. First line: the version of the package. Then a line per kernel, whose metrics are numbers
of a list of names that the last line has.

    python -P extract.py REPORT OUTPUT
"""

from __future__ import annotations

import json
import math
import sys
from typing import Any, TextIO


def extract(path: str, out: TextIO) -> None:
    """Write what the report at `path` holds."""
    import ncu_report

    report = ncu_report.load_report(path)
    _write(out, {"version": str(getattr(report, "get_version", lambda: "")())})
    names: dict[tuple[str, str], int] = {}
    for at in range(report.num_ranges()):
        part = report.range_by_idx(at)
        for number in range(part.num_actions()):
            _write(out, _kernel(part.action_by_idx(number), names))
    _write(out, {"names": list(names)})


def _kernel(action: Any, names: dict[tuple[str, str], int]) -> dict[str, Any]:
    ids: list[int] = []
    values: list[float | int | str] = []
    for name in action.metric_names():
        if name.startswith("breakdown:"):  # a list of other metrics
            continue
        metric = action.metric_by_name(name)
        value = metric.value()
        if value in (None, "") or (isinstance(value, float) and not math.isfinite(value)):
            continue
        ids.append(names.setdefault((name, metric.unit() or ""), len(names)))
        values.append(value)
    return {
        "name": action.name(action.NameBase_DEMANGLED),
        "mangled": action.name(action.NameBase_MANGLED),
        "nvtx": _nvtx(action),
        "rules": [_rule(rule) for rule in action.rule_results_as_dicts()],
        "ids": ids,
        "values": values,
    }


def _nvtx(action: Any) -> list[str]:
    """The ranges around the launch: of every domain those of its thread, outermost first, then the others."""
    state = action.nvtx_state()
    if state is None:
        return []
    domains = [state.domain_by_id(domain) for domain in state.domains()]
    stacked = [str(name) for domain in domains for name in domain.push_pop_ranges()]
    return [*stacked, *(str(name) for domain in domains for name in domain.start_end_ranges())]


def _rule(rule: dict[str, Any]) -> dict[str, Any]:
    message, gain = rule.get("rule_message", {}), rule.get("speedup_estimation", {})
    return {
        "rule": rule.get("rule_identifier", ""),
        "section": rule.get("section_identifier", ""),
        "kind": message.get("type"),
        "text": message.get("message", ""),
        "speedup": gain.get("speedup"),
        "of": gain.get("type"),
    }


def _write(out: TextIO, record: dict[str, Any]) -> None:
    out.write(json.dumps(record))
    out.write("\n")


if __name__ == "__main__":
    with open(sys.argv[2], "w", encoding="utf-8") as file:  # noqa: PTH123 (nothing more than needed is imported)
        extract(sys.argv[1], file)
