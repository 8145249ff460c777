"""What a reader must know beside the shares: the formula, the peak, the convention, and what is not counted."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from stepscope.analyses.mfu.utilization import Utilization
from stepscope.derive.flops.count import ATTENTION
from stepscope.derive.flops.work import AGAIN, BACKWARD, FORWARD, MEASURED, OPTIMIZER
from stepscope.model.kernel_names import short_names
from stepscope.model.note import Note, noted
from stepscope.model.ranks import some_ranks
from stepscope.model.statement import several
from stepscope.model.threshold import Threshold
from stepscope.model.units import about, operations

_TWICE = Threshold(
    2.02,
    "times the forward pass",
    "backward is twice forward; small products that have no gradient, or only one, make no difference of so much",
    ("tests/analyses/test_mfu.py",),
)
#: How many kernels a note names.
_NAMED = 3


def notes_of(used: Sequence[Utilization]) -> list[Note]:
    if not used:
        return []
    makers = (
        _formula,
        _peak,
        _convention,
        _beside,
        _measured,
        _recomputed,
        _beyond,
        _optimizer,
        _uncounted,
        _unclear,
        _types,
        _without_rate,
        _fast,
    )
    return [note for maker in makers if (note := maker(used)) is not None]


def _formula(used: Sequence[Utilization]) -> Note:
    """Of the first window: the others are computed alike, and `--by term` has every term."""
    one = used[0]
    where = f"rank {one.span.rank}, {one.span.label}"
    peak = f"{one.peak_tflops or 0:,.4g} TFLOP/s"
    which, kind = ("MFU", "model") if one.model_flops is not None else ("HFU", "hardware")
    share = one.mfu_pct if one.model_flops is not None else one.hfu_pct
    text = (
        f"{which} = {kind} FLOPs / (peak x time) = {operations(one.flops)} / ({peak} x {about(one.span.gpu_ns, 4)}) = "
        f"{share or 0:.1f} % ({where})"
    )
    declared = one.asked.declared
    if declared is not None:
        parts = " + ".join(p.shown(one.asked.convention == "full") for p in declared.parts)
        text += (
            f"; model FLOPs = {declared.passes} x {declared.tokens:,} tokens / {several(declared.ranks, 'rank')} x "
            f"({parts}) of {declared.model.name}; `--by term` has each part"
        )
    else:
        text += f"; {kind} FLOPs are the sum of the terms that `--by term` shows"
    return noted("mfu-formula", text=text)


def _peak(used: Sequence[Utilization]) -> Note:
    texts = []
    for each in {e.bound.gpu.name if e.bound.gpu else "": e for e in used}.values():
        rates = " and ".join(f"{rate:g} TFLOP/s ({name})" for name, rate in each.peaks.items()) or "unknown"
        gpu = each.bound.gpu
        if each.bound.given is not None or gpu is None:
            texts.append(f"{rates}")
        else:
            texts.append(f"{rates} of {gpu.name}, dense; {gpu.cited}{f', {gpu.url}' if gpu.url else ''}")
    return noted("mfu-peak", texts="; ".join(texts))


def attends(each: Utilization) -> bool:
    """Whether attention has a part in the model's FLOPs: then it matters how it is counted."""
    if each.asked.declared is not None:
        return each.asked.declared.flops("full") != each.asked.declared.flops("causal")
    return each.model_flops is not None and bool((each.work.ops["kind"] == ATTENTION).any())


def _convention(used: Sequence[Utilization]) -> Note | None:
    if not any(map(attends, used)):
        return None
    time = sum(e.span.gpu_ns for e in used)
    full = used[0].asked.convention == "full"
    how = "in full (PaLM, torchtitan)" if full else "as far as a causal mask shows it (Megatron-LM)"
    ideal = sum(e.ideal_ns for e in used)
    other = sum(e.ideal_ns + _other_convention(e) for e in used)
    text = f"attention is counted {how}"
    if abs(other - ideal) > 1e-9 * ideal:
        option = "causal" if full else "full"
        text += f": with --attention {option} MFU is {_share(other, time)}, not {_share(ideal, time)}"
    else:
        text += ", which makes no difference: no op has a causal mask, or masks were not recorded"
    return noted("mfu-convention", text=text)


def _share(part: float, whole: float) -> str:
    """With two digits that count where there is little: 0.0 % beside 0.0 % says nothing."""
    share = 100 * part / whole
    return f"{share:.1f} %" if share >= 1 or not share else f"{share:.2g} %"


def _other_convention(each: Utilization) -> float:
    """How much longer the model's FLOPs take at the peak under the other convention; below 0 if shorter."""
    sign = -1 if each.asked.convention == "full" else 1
    declared = each.asked.declared
    if declared is not None:
        return sign * abs(declared.flops("full") - declared.flops("causal")) / (1e3 * (each.peak_tflops or 1.0))
    ops = each.work.ops.filter(pl.col("phase").is_in([FORWARD, BACKWARD]))
    inside = ops["gpu_ns"] / ops["whole"]
    return sign * float(((ops["asked"] - ops["causal"]) * inside / (1e3 * ops["rate"])).sum())


def _beside(used: Sequence[Utilization]) -> Note | None:
    """A declared model beside what its trace shows."""
    if used[0].asked.declared is None or not all(e.shaped for e in used):
        return None
    declared, counted = sum(e.flops for e in used), sum(e.work.total("model") for e in used)
    far = abs(declared - counted) > 0.05 * counted
    return noted(
        "mfu-declared-and-counted",
        declared=operations(declared),
        counted=operations(counted),
        doubt=": not the same model, or not the same tokens" if far else "",
        severity="warning" if far else "info",
    )


def _measured(used: Sequence[Utilization]) -> Note | None:
    """What Nsight Compute counted, in place of shapes."""
    rows = pl.concat([e.work.ops.filter(pl.col("phase") == MEASURED).select("hardware") for e in used])
    if not rows.height:
        return None
    flops, total = float(rows["hardware"].sum()), sum(e.work.total("hardware") for e in used)
    return noted(
        "mfu-measured", flops=operations(flops), share=100 * flops / total, kernels=several(rows.height, "kernel")
    )


def _recomputed(used: Sequence[Utilization]) -> Note | None:
    again = sum(float(e.work.ops.filter(pl.col("phase") == AGAIN)["hardware"].sum()) for e in used)
    total = sum(e.work.total("hardware") for e in used)
    if not again:
        return None
    return noted("mfu-recomputed", flops=operations(again), share=100 * again / total)


def _beyond(used: Sequence[Utilization]) -> Note | None:
    """Backward is at most twice forward: what is beyond was computed before, though nothing tells which op it is."""
    beyond = ideal = 0.0
    steps = [e for e in used if e.span.kind in ("step", "capture") and e.asked.declared is None]
    for each in steps:
        ops = each.work.ops
        of = {p: ops.filter(pl.col("phase") == p) for p in (FORWARD, BACKWARD)}
        forward, backward = (float(of[p]["model"].sum()) for p in (FORWARD, BACKWARD))
        if forward and backward > _TWICE.value * forward:
            beyond += backward - 2 * forward
            ideal += (1 - 2 * forward / backward) * float((of[BACKWARD]["model"] / (1e3 * of[BACKWARD]["rate"])).sum())
    if not beyond:
        return None
    time, all_ideal = sum(e.span.gpu_ns for e in steps), sum(e.ideal_ns for e in steps)
    return noted(
        "mfu-beyond-twice-forward",
        beyond=operations(beyond),
        most=_share(all_ideal - ideal, time),
        mfu=_share(all_ideal, time),
    )


def _optimizer(used: Sequence[Utilization]) -> Note | None:
    flops = sum(float(e.work.ops.filter(pl.col("phase") == OPTIMIZER)["hardware"].sum()) for e in used)
    if not flops:
        return None
    total = sum(e.work.total("hardware") for e in used)
    return noted("mfu-optimizer", flops=operations(flops), flops2=100 * flops / total)


def _uncounted(used: Sequence[Utilization]) -> Note | None:
    """Compute that would count, and whose FLOPs nobody knows."""
    lost = [e for e in used if e.counted and (e.work.part_of_compute(counted=False) or 0.0) > 0]
    if not lost:
        return None
    kernels = pl.concat([e.work.kernels for e in lost])
    missing = kernels.filter(~pl.col("counted") & pl.col("work"))
    time, whole = int(missing["ns"].sum()), sum(int(e.work.kernels["ns"].sum()) for e in used)
    by_name = missing.with_columns(short=short_names(missing["kernel"])).group_by("short").agg(pl.col("ns").sum())
    first = by_name.sort(["ns", "short"], descending=[True, False]).head(_NAMED)
    named = ", ".join(f"{name} ({about(ns)})" for name, ns in first.iter_rows())
    more = " …" if by_name.height > _NAMED else ""
    return noted(
        "mfu-uncounted",
        time=about(time),
        share=100 * time / whole,
        names=named,
        more=more,
        severity="warning" if time >= 0.01 * whole else "info",
    )


def _unclear(used: Sequence[Utilization]) -> Note | None:
    """Ops that are work and could not be counted, with the reason."""
    unclear = pl.concat([e.work.unclear for e in used])
    if not unclear.height or not any(e.shaped for e in used):
        return None
    reasons = unclear.group_by("name", "why").len().sort("len", descending=True).head(_NAMED)
    named = ", ".join(f"{name} ({n} times: {why})" for name, why, n in reasons.iter_rows())
    return noted("mfu-op-unclear", names=named)


def _types(used: Sequence[Utilization]) -> Note | None:
    untold = [e for e in used if e.work.ops["precision"].null_count() and not e.bound.always and e.bound.given is None]
    if not untold:
        return None
    ranks = some_ranks([e.span.rank for e in untold])
    taken = untold[0].bound.assumed
    return noted("mfu-types-unknown", some=ranks, taken=taken)


def _without_rate(used: Sequence[Utilization]) -> Note | None:
    lost = pl.concat([e.work.ops.filter(pl.col("rate").is_null()).select("precision", "hardware") for e in used])
    if not lost.height:
        return None
    named = ", ".join(sorted(set(lost["precision"].drop_nulls().to_list())))
    return noted("mfu-no-peak", names=named, flops=operations(float(lost["hardware"].sum())))


def _fast(used: Sequence[Utilization]) -> Note | None:
    """Terms that beat the peak though the sum does not: their count, or the time of their kernels, is not right."""
    fast = pl.col("hardware") / (1e3 * pl.col("rate")) > pl.col("gpu_ns")
    ops = (
        pl.concat([e.work.ops.select("name", "hardware", "gpu_ns", "rate") for e in used])
        .group_by("name")
        .agg(pl.col("hardware").sum(), pl.col("gpu_ns").sum(), pl.col("rate").max())
    )
    beyond = ops.filter(fast).sort("hardware", descending=True)
    if not beyond.height:
        return None
    named = ", ".join(beyond["name"].head(_NAMED).to_list())
    return noted("mfu-above-peak", names=named)
