"""One rank computes more slowly than ranks that do the same work, and the others wait for it.

Who waits for whom is followed to its root (`stragglers`), so that victims are not named. What it could give back is the
step replayed with this rank's kernels as fast as the median of its peers'.
"""

from __future__ import annotations

from stepscope.analyses._evenrank import even_rank
from stepscope.findings.case import Case
from stepscope.findings.finding import Finding

ID = "straggler"


def detect(case: Case) -> list[Finding]:
    if len(case.ranks) < 2:
        return []
    found = []
    for row in case.ask("stragglers").summary["stragglers"]:
        if row["cause"] != "compute" or row["rank"] not in case.ranks:
            continue
        rank = row["rank"]
        _, change = even_rank(case.profile, rank, case.replay.steps)
        slower = max(change.kernels[rank].values(), default=1.0)
        found.append(
            Finding(
                ID,
                f"rank {rank} computes more slowly than its peers",
                case.saved(change),
                "high",
                f"its kernels take up to {1 / slower:.2f} times as long as its peers' median; the others "
                f"waited {row['late_ns'] / 1e6:.2f} ms for it in the capture",
                "look at that GPU: clocks, power cap, temperature, ECC, another process on it; swap it for a spare",
                ("stragglers", ""),
                ranks=(rank,),
            )
        )
    return found
