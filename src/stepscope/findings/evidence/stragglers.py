"""Ranks that compute longer than ranks that do the same work, for no reason that another finding has."""

from __future__ import annotations

from msgspec import Struct

from stepscope.derive.peers.compute import Compared
from stepscope.findings.case import Case
from stepscope.findings.evidence.peers import beyond_peers
from stepscope.findings.evidence.tokens import heavy
from stepscope.findings.texts import advice
from stepscope.model.kernel_names import shorten
from stepscope.model.range_names import short_range
from stepscope.model.threshold import Threshold
from stepscope.model.units import about


def suspects(case: Case) -> dict[int, Compared]:
    """Ranks with more compute than their peers, for no reason that another finding has."""
    return {r: c for r, c in case.once(beyond_peers).items() if r not in case.once(heavy)}


def guilty(case: Case) -> dict[int, Compared]:
    """The stragglers: slow GPUs, and a single rank that has more to do (several are a `compute-imbalance`)."""
    longer = case.once(suspects)
    slow = {r: c for r, c in longer.items() if c.slow_gpu}
    return longer if len(longer) - len(slow) <= 1 else slow


MORE_LAUNCHES = Threshold(
    1.02,
    "times the launches of the peers",
    "ranks that do the same work launch the same kernels, but for what one of them logs or checks",
    ("tests/findings/test_thresholds.py::test_launches_beyond_the_peers",),
)


class MoreWork(Struct, frozen=True):
    """In words: `how` for a title (empty where launches are the same), evidence, and what to look for."""

    how: str
    evidence: str
    hint: str


def more_work(compared: Compared) -> MoreWork:
    """Of a rank whose GPU is not slow."""
    speed = ", though each launch is as fast as theirs: the GPU is not slow" if compared.as_fast else ""
    if compared.launches_more >= MORE_LAUNCHES.value:
        return MoreWork(
            f"{compared.launches_more:.2f} times as many launches of some kernels",
            f"{speed}; {_most(compared)}",
            advice("straggler/more-launches"),
        )
    if compared.size_more is not None:
        return MoreWork(
            f"launches are {compared.size_more:.2f} times as large",
            f"{speed}; the same kernels with larger grids: {_most(compared)}",
            advice("straggler/larger-launches"),
        )
    return MoreWork(
        "",
        f", but not in all kernels: {_most(compared)}",
        advice("straggler/longer-launches"),
    )


def _most(compared: Compared) -> str:
    """The kernels with most of the excess: more of them, larger ones, or longer."""
    over = compared.slower
    if over.height == 0:
        return "spread over many"
    texts = []
    for row in over.head(2).iter_rows(named=True):
        n, like_n, ns, like_ns = (row[c] for c in ("n", "like_n", "ns", "like_ns"))
        if n > MORE_LAUNCHES.value * like_n and not compared.launches_beyond:
            more = "in place of a kernel of its peers"
        elif n > MORE_LAUNCHES.value * like_n:
            each = f" of {about(like_ns / like_n)}" if like_n else ""
            more = f"{n} launches of {about(ns / n)}, its peers have {like_n:.0f}{each}"
        elif row["size"] is not None:
            more = f"{row['size']:.2f} times the blocks, {ns / like_ns:.2f} times as long"
        else:
            more = f"{ns / like_ns:.2f} times as long"
        texts.append(f"{short_range(shorten(row['name']))} {about(ns - like_ns)} ({more})")
    return ", ".join(texts)
