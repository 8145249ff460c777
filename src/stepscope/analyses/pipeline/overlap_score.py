"""What the chunks of a two-stage pipeline say together: score, verdict, which stage gates, rate (semantics §8)."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import polars as pl

from stepscope.analyses.pipeline.two_stages import TwoStage
from stepscope.errors import CannotAnswer
from stepscope.model.statement import percent, several
from stepscope.model.threshold import Threshold
from stepscope.model.units import about
from stepscope.statistics.changes import STEPS, interval

_ABOUT = Threshold(
    10.0,
    "% of the maximum, or of the sum",
    "periods of one chunk differ by as much from one to the next",
    ("tests/analyses/test_two_stages.py",),
)
_STALL = Threshold(
    3,
    "median periods",
    "a longer period is a stall: it does not say who gates",
    ("tests/analyses/test_two_stages.py",),
)

#: What is shown of each run beside the other's periods.
_SHOWN = ("queue_depth", "queue_depth_in", "queue_depth_out", "chunks", "gating", "items_per_s", "tokens_per_s")

#: The stage that is never idle for long; both, where neither is; neither, where both are.
Gating = Literal["stage0", "stage1", "both", "neither"]


def figures(run: TwoStage, warmup: int) -> dict[str, Any]:
    """Quantiles after warm-up, the score of the run, which stage gates it, and its rate."""
    kept = _judged(run, warmup)
    if kept.height == 0:
        raise CannotAnswer(
            f"no chunk has both stages and a period after --warmup {warmup}",
            "log tA0, tA1, tRecv, tDecode, tEmit and tB0, tB1 of consecutive chunks",
        )
    summary: dict[str, Any] = {"chunks": kept.height, "warmup": warmup, **_depths(run)}
    names = ["period_ns", "stage0_ns", "stage1_ns", "hidden_ns"]
    names += [n for n in ("decode_ns", "mesh_idle_ns") if kept[n].null_count() < kept.height]
    for q in (50, 90, 99):
        at: dict[str, Any] = {n: _quantile(kept[n].drop_nulls(), q / 100) for n in names}
        summary[f"p{q}"] = {**at, "overlap_score": float(np.quantile(kept["overlap_score"], q / 100))}
    summary["overlap_score"] = summary["p50"]["overlap_score"]
    summary["gating"] = _gating(summary, kept)
    return summary | _rates(kept)


def _depths(run: TwoStage) -> dict[str, int]:
    """How deep the queues are; `queue_depth` where they are alike."""
    depths = {"queue_depth_in": run.depth_in, "queue_depth_out": run.depth_out}
    alike = {"queue_depth": run.depth_in} if run.depth_in == run.depth_out else {}
    return {name: depth for name, depth in (alike | depths).items() if depth is not None}


def _rates(kept: pl.DataFrame) -> dict[str, float]:
    """What came out over all the time that the chunks took; tokens only where every chunk tells them."""
    took = int(kept["period_ns"].sum())
    if took <= 0:
        return {}
    items = {"items_per_s": 1e9 * kept.height / took}
    return items if kept["tokens"].has_nulls() else items | {"tokens_per_s": 1e9 * int(kept["tokens"].sum()) / took}


def _judged(run: TwoStage, warmup: int) -> pl.DataFrame:
    """Chunks after warm-up that have both stages and a period."""
    return run.chunks.slice(warmup).drop_nulls("overlap_score")


def _quantile(values: pl.Series, q: float) -> int:
    return round(float(np.quantile(values.to_numpy(), q)))


def _medians(summary: dict[str, Any]) -> tuple[int, int, int]:
    period, a, b = (summary["p50"][f"{n}_ns"] for n in ("period", "stage0", "stage1"))
    return period, a, b


def _gating(summary: dict[str, Any], kept: pl.DataFrame) -> Gating:
    """Which stage makes the period as long as it is: the one that is never idle for long."""
    period, a, b = _medians(summary)
    if period > (1 + _ABOUT.share) * (a + b):
        return "neither"
    full = [share >= 1 / (1 + _ABOUT.share) for share in _filled(summary, kept)]
    if all(full):
        return "both"
    return "stage0" if full[0] else "stage1" if full[1] else "neither"


def _filled(summary: dict[str, Any], kept: pl.DataFrame) -> list[float]:
    """How much of its time each stage works: its share of all periods together, but for those in which the run stalled.

    Items are emitted now late and now early, so that no single period is what an item takes. The second stage's own
    idle time tells without periods.
    """
    period, _, median = _medians(summary)
    steady = kept.filter(pl.col("period_ns") <= _STALL.value * period)
    took = max(1, int(steady["period_ns"].sum()))
    first, second = (int(steady[f"stage{i}_ns"].sum()) / took for i in (0, 1))
    idle = summary["p50"].get("mesh_idle_ns")
    return [first, second if idle is None else max(second, median / max(1, median + idle))]


def verdict(summary: dict[str, Any]) -> str:
    """Overlapped or serialized, with the figures that say so."""
    period, a, b = _medians(summary)
    longest, both = max(a, b), a + b
    took, least, most = (about(ns, 4) for ns in (period, longest, both))
    text = f"median period {took} against max(stage0, stage1) {least} and stage0 + stage1 {most}"
    if period > (1 + _ABOUT.share) * both:
        return f"stalled, neither stage is the limit: {text}"
    if min(a, b) <= _ABOUT.share * longest:
        return f"one stage hardly counts: {text}"
    if abs(period - longest) <= _ABOUT.share * longest:
        return f"overlapped: {text}"
    if abs(period - both) <= _ABOUT.share * both:
        return f"serialized: {text}"
    return f"partly overlapped: {text}"


def statement(summary: dict[str, Any]) -> str:
    """The operator's: verdict, gating stage, score, depth and rate."""
    judged = summary["verdict"]
    score = f"overlap score {summary['overlap_score']:.2f} over {several(summary['chunks'], 'chunk')}"
    parts = [judged[0].upper() + judged[1:], _gated(summary), score + _at_depth(summary)]
    rates = {"items": summary.get("items_per_s"), "tokens": summary.get("tokens_per_s")}
    rate_texts = ", ".join(f"{_rate(value)} {what}/s" for what, value in rates.items() if value is not None)
    return "; ".join(filter(None, parts)) + (f": {rate_texts}." if rate_texts else ".")


def _gated(summary: dict[str, Any]) -> str:
    period, a, b = _medians(summary)
    idle = summary["p50"].get("mesh_idle_ns")
    waits = f", and stage 1 idles {about(idle)} before each chunk" if idle else ""
    gating = summary["gating"]
    if gating == "both":
        return f"both stages gate{waits}"
    if gating == "neither":
        longer = f"stage {int(b > a)}, the longer, fills {percent(max(a, b), period)} of the period"
        return f"neither stage gates: {longer}{waits}"
    if gating == "stage1":
        return "stage 1 gates" + (f", idle for {about(idle)} before each chunk" if idle else "")
    return f"stage 0 gates{waits}"


def _at_depth(summary: dict[str, Any]) -> str:
    if summary.get("queue_depth") is not None:
        return f" at queue depth {summary['queue_depth']}"
    queues = [
        f"{summary[f'queue_depth_{way}']} {way}"
        for way in ("in", "out")
        if summary.get(f"queue_depth_{way}") is not None
    ]
    return f" at queue depth {' and '.join(queues)}" if queues else ""


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def against(run: TwoStage, other: TwoStage, warmup: int) -> dict[str, Any]:
    """The other run's figures beside this one's, and whether their difference is more than noise."""
    a, b = figures(run, warmup), figures(other, warmup)
    runs = {
        side: {
            **{k: s.get(k) for k in _SHOWN},
            **{f"{q}_period_ns": s[q]["period_ns"] for q in ("p50", "p90", "p99")},
            "overlap_score": s["overlap_score"],
        }
        for side, s in (("this", a), ("against", b))
    }
    # Chunks of one run each: another run may differ by more.
    periods = [_judged(r, warmup)["period_ns"].cast(pl.Float64).to_numpy() for r in (other, run)]
    noise = interval(periods[0], periods[1], STEPS)
    before = b["p50"]["period_ns"]
    change = a["p50"]["period_ns"] - before
    if noise is None:
        verdict = "not enough to tell: one chunk on each side"
    elif noise[0] <= 0 <= noise[1]:
        verdict = "the period is within the noise of the chunks"
    else:
        verdict = f"the period is {'shorter' if change < 0 else 'longer'} than the other"
    low, high = (None, None) if noise is None else map(round, noise)
    return {
        "runs": runs,
        "change": {
            "period_ns": change,
            "period_pct": 100.0 * change / before if before else None,
            "interval_low_ns": low,
            "interval_high_ns": high,
            "overlap_score": a["overlap_score"] - b["overlap_score"],
            "verdict": verdict,
        },
    }


def change_said(compared: dict[str, Any]) -> str:
    """The comparison as the end of a sentence."""
    before, change = compared["runs"]["against"], compared["change"]
    other = f"{about(before['p50_period_ns'], 4)}, score {before['overlap_score']:.2f}{_at_depth(before)}"
    if change["interval_low_ns"] is None or change["interval_low_ns"] <= 0 <= change["interval_high_ns"]:
        return f"{change['verdict']} of --against ({other})"
    way = "shorter" if change["period_ns"] < 0 else "longer"
    return f"the period is {abs(change['period_pct']):.1f} % {way} than that of --against ({other})"
