"""Code is loaded inside the step: modules, libraries, graphs being instantiated.

CUDA loads a kernel's code when it is first launched, and a graph is instantiated before it first runs: both belong to
the warm-up. What it could save is the step replayed with those calls taking no time.
"""

from __future__ import annotations

from stepscope.derive.host.idle_causes import LOAD
from stepscope.derive.replay.change import Change
from stepscope.findings.case import Case
from stepscope.findings.evidence.hosts import guilty, hosts, stage_of, sure
from stepscope.findings.evidence.machines import on_amd
from stepscope.findings.evidence.places import longest
from stepscope.findings.evidence.shown import LATE, lost_by
from stepscope.findings.finding import Finding
from stepscope.findings.texts import advice, title
from stepscope.intervals.arrays import I64
from stepscope.model.statement import counted
from stepscope.model.units import about

ID = "module-loading"


def _loading(case: Case) -> dict[int, I64]:
    """By rank: the calls."""
    return {r: calls for r, h in hosts(case).items() if len(calls := h.of_cause(LOAD))}


def remedy(case: Case) -> Change:
    """No such calls."""
    return Change(calls_not_waiting=case.once(_loading))


def detect(case: Case) -> list[Finding]:
    loading = case.once(_loading)
    spent = {r: hosts(case)[r].length(calls) for r, calls in loading.items()}
    if not case.material(max(spent.values(), default=0)):
        return []
    ranks = guilty(spent)
    worst = max(ranks, key=lambda r: (spent[r], -r))
    host, calls = hosts(case)[worst], loading[worst]
    names = host.names(calls)
    graphs = any("raph" in n for n in names)
    saved = case.credit(ID)
    idle, figures, command = lost_by(case, host, "load", *LATE, claim=saved)
    return [
        Finding(
            ID,
            title(
                "module-loading",
                what="graphs are instantiated" if graphs else "code is loaded",
                counted=counted(names),
                worst=worst,
            ),
            saved,
            sure(case),
            f"the host of rank {worst} spends {about(spent[worst])} of the step in these calls; the GPU "
            f"idles for {idle}",
            advice("module-loading/graphs")
            if graphs
            else advice(
                "module-loading/code", eager="" if on_amd(case, ranks) else ", or set CUDA_MODULE_LOADING=EAGER"
            ),
            command,
            ranks=ranks,
            figures=figures,
            stage=stage_of(case, ranks),
            where=longest(p for r in ranks for p in hosts(case)[r].longest(loading[r])),
            covers={r: hosts(case)[r].gaps_of(calls) for r, calls in loading.items()},
        )
    ]
