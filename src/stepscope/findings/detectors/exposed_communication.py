"""Transfers that nothing runs beside.

What it could give back is the step replayed with transfers of one stage taking no time: ranks still wait for whoever is
late, so that a straggler's victims are not blamed on the network.
"""

from __future__ import annotations

from stepscope.analyses._change import Change
from stepscope.findings.case import Case
from stepscope.findings.finding import Finding

ID = "exposed-communication"


def detect(case: Case) -> list[Finding]:
    table = case.ask("overlap", window=case.whole_step).rows
    found = []
    for stage in table["stage"].unique().sort().to_list():
        mine = table.filter(table["stage"] == stage)
        exposed = int(mine["exposed_wall_ns"].max() or 0)  # type: ignore[arg-type]
        if not case.material(exposed):
            continue
        saved = case.saved(Change(hide=True, stage=stage), exposed)
        comm = int(mine["comm_ns"].sum())
        share = 100.0 * int(mine["exposed_ns"].sum()) / comm if comm else 0.0
        found.append(
            Finding(
                ID,
                f"communication of {stage} is {share:.0f} % exposed",
                saved,
                "high",
                f"of {comm / 1e6:.2f} ms of communication, {share:.1f} % has no compute beside it",
                "give it a stream of its own and launch it before the compute that does not need it",
                ("overlap", ""),
                stage=stage,
            )
        )
    return found
