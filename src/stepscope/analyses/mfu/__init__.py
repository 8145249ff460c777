"""How much of the GPU's peak does the model use: model and hardware FLOPs utilization, term by term?

MFU = FLOPs that the model asks for / (peak x time); HFU counts what was run, recomputation included. FLOPs are counted
from the shapes of torch ops (products, attention, convolutions; a multiplication and an addition are two), or come from
a declared model: `--model qwen3-30b-a3b --tokens 65536 --sequence 4096`, also for traces without shapes. Given with
what Nsight Compute measured of the same program, its counts stand for kernels that no shape tells. Element-wise work
counts nothing. Time is the window's, so idle time and communication lower both; with `--by stage` it is the time
in which the stage computes. FLOPs of different precisions are measured against the dense peak of each.

Backward is twice forward. Forward ops that run again in the backward pass (activation checkpointing), the scores that
attention's backward makes anew, and products of an optimizer are hardware's alone. `--attention full` counts causal
attention as if nothing were masked, as PaLM and torchtitan do, `causal` half of it, as Megatron-LM does. `--by term`
shows every term. A result above 100 % is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, TypedDict

from stepscope.analyses.mfu.declared import TRAINING
from stepscope.analyses.mfu.tables import ByStage, ByTerm, by_part, by_stage, by_term
from stepscope.analyses.mfu.utilization import Asked, Declared, Utilization, utilizations
from stepscope.analyses.mfu.wording import attends, notes_of
from stepscope.derive.accounting.named_window import sized_window
from stepscope.derive.flops.window import Convention
from stepscope.derive.kernel.matched import match_notes
from stepscope.derive.kernel.matching import joined
from stepscope.derive.rank.graphs import graph_notes
from stepscope.derive.rank.needs import need_ops
from stepscope.derive.windows.choosing import windows
from stepscope.derive.windows.spec import WindowSpec
from stepscope.derive.windows.window import Windows
from stepscope.errors import BadInput, CannotAnswer
from stepscope.model import declared
from stepscope.model.capturing import capture_with
from stepscope.model.gpus import Precision
from stepscope.model.labels import setups
from stepscope.model.option import Effect
from stepscope.model.profile import Profile
from stepscope.model.ranks import world_of
from stepscope.model.result import OfRank, Result
from stepscope.model.statement import STATEMENT, listed
from stepscope.model.threshold import Threshold


class _Figures(TypedDict):
    window_ns: Annotated[int, "length of the GPU window"]
    model_flops: Annotated[
        int | None, "what the model asks for: forward and backward, nothing twice; null where ncu alone counts"
    ]
    hardware_flops: Annotated[
        int | None, "what was run, recomputation included; null where only a declared model is known"
    ]
    recomputed_flops: Annotated[int | None, "the part of it that had been computed before"]
    mfu_pct: Annotated[float | None, "time that the model's FLOPs take at the peak, as a share of the window"]
    hfu_pct: Annotated[float | None, "the same of the hardware's FLOPs"]
    achieved_tflops: Annotated[float | None, "model (else hardware) FLOPs per second of it, 10¹²"]
    peak_tflops: Annotated[
        float | None, "dense peak they are measured against, 10¹² a second; of mixed precisions the mean"
    ]
    counted_pct: Annotated[float | None, "share of compute kernels' time whose FLOPs are counted; null without shapes"]
    uncounted_pct: Annotated[
        float | None, "share that is matmuls, attention, convolutions or unknown kernels without a count"
    ]


#: What a sentence says of the convention.
_COUNTED = {"full": "in full", "causal": "as far as a causal mask shows it"}
_LACKING = Threshold(
    1.0,
    "% of compute time",
    "element-wise kernels without a count take less in sound counts; from here on a sentence says what has none",
    ("tests/analyses/test_mfu.py",),
)


class Row(OfRank, _Figures): ...


class _Step(OfRank):
    index: Annotated[int, "which instance of the anchor"]
    label: Annotated[str, "its text"]


class ByStep(_Step, _Figures): ...


VARIANTS = {"by=step": ByStep, "by=stage": ByStage, "by=term": ByTerm}


def mfu(
    profile: Profile,
    window: WindowSpec,
    *,
    by: Annotated[Literal["rank", "step", "stage", "term"], "what a row is"] = "rank",
    attention: Annotated[Convention, "causal attention: full (torchtitan), or the visible half (Megatron-LM)"] = "full",
    model: Annotated[
        str | None, "declared model: a preset, a TOML file, or layers=6,width=1024,…", Effect.READS
    ] = None,
    tokens: Annotated[int | None, "tokens of one step, all ranks together; with --model"] = None,
    sequence: Annotated[int | None, "length of a sequence; with --model, where the trace does not say"] = None,
    inference: Annotated[bool, "with --model: a forward pass only"] = False,
    gpu: Annotated[str | None, "the GPU, where the trace does not name it: H100, MI300X"] = None,
    peak: Annotated[float | None, "dense peak, 10¹² FLOPs a second, instead of the GPU's"] = None,
    precision: Annotated[
        Precision | None, "assume this precision for all matmuls, instead of their recorded types"
    ] = None,
) -> Result:
    need_ops(profile)
    asked = Asked(attention, _declared(profile, model, tokens, sequence, inference), gpu, peak, precision)
    if peak is not None and peak <= 0:
        raise BadInput(f"--peak {peak:g}: not a rate", "give 10¹² FLOPs a second, dense")
    chosen = windows(profile, replace(window, index="all") if by == "step" else window)
    used = utilizations(profile, chosen, asked)
    if by == "stage":
        table = chosen.table(ByStage, [row for each in used for row in each.span.keyed(_per_stage(each))])
    elif by == "term":
        table = chosen.table(ByTerm, [row for each in used for row in each.span.keyed(_per_term(each))])
    else:
        windowed = [row for each in used for row in each.span.keyed([_of_window(each)])]
        table = chosen.table(VARIANTS.get(f"by={by}", Row), windowed)
    ranked = {"step": "window_ns", "stage": "busy_ns", "term": "hardware_flops"}.get(by)
    if by == "term" and asked.declared:
        ranked = "model_flops"
    summary = {**_summary(used), STATEMENT: _statement(chosen, used)}
    notes = [*chosen.notes, *graph_notes(profile), *notes_of(used)]
    if joined(profile) and used:
        notes += match_notes(profile, [(each.data, each.span.ops) for each in used])
    return Result(table, chosen.rows(), summary, notes, ranked_by=ranked)


def _declared(
    profile: Profile, model: str | None, tokens: int | None, sequence: int | None, inference: bool
) -> Declared | None:
    if model is None:
        if tokens is not None or sequence is not None or inference:
            raise BadInput("--tokens, --sequence and --inference describe a declared model", "give --model too")
        return None
    if tokens is None or tokens <= 0:
        raise BadInput("--model needs the tokens of one step", "give --tokens N, all ranks together")
    shape = declared.load(model)
    length = sequence or _labelled_sequence(profile)
    if length is None and shape.heads:
        raise BadInput("--model needs the length of a sequence, which the trace does not say", "give --sequence N")
    ranks = world_of(profile.ranks) or profile.ranks.height
    return Declared(shape, tokens, length or 0, ranks, 1 if inference else TRAINING)


def _labelled_sequence(profile: Profile) -> int | None:
    """The length that the trainer's setup labels say, where they agree."""
    lengths = {label.extra.get("seq") for label in setups(profile.ranks).values()}
    only = lengths.pop() if len(lengths) == 1 else None
    return int(only) if only and only.isascii() and only.isdigit() else None


def _of_window(each: Utilization) -> Row:
    seconds = each.span.gpu_ns / 1e9
    return {
        **each.span.who,
        "window_ns": each.span.gpu_ns,
        "model_flops": each.model_flops,
        "hardware_flops": each.hardware_flops,
        "recomputed_flops": each.recomputed_flops,
        "mfu_pct": each.mfu_pct,
        "hfu_pct": each.hfu_pct,
        "achieved_tflops": each.flops / seconds / 1e12,
        "peak_tflops": each.peak_tflops,
        "counted_pct": each.work.part_of_compute(counted=True) if each.counted else None,
        "uncounted_pct": each.work.part_of_compute(counted=False) if each.counted else None,
    }


def _per_stage(each: Utilization) -> list[ByStage]:
    if not each.counted:
        raise CannotAnswer(
            "no shapes of torch ops were recorded, and a declared model has no stages", capture_with("shapes")
        )
    return [{**each.span.who, **row} for row in by_stage(each)]


def _per_term(each: Utilization) -> list[ByTerm]:
    return [{**each.span.who, **row} for row in (by_part(each) if each.asked.declared else by_term(each))]


def _summary(used: Sequence[Utilization]) -> dict[str, Any]:
    """Over all ranks and windows, weighted by time."""
    time = sum(each.span.gpu_ns for each in used)
    if not time:
        return {}
    hardware = [each.work.ideal_ns("hardware") for each in used if each.counted]
    model = [each.ideal_ns for each in used if each.model_flops is not None]
    return {
        "mfu_pct": 100.0 * sum(model) / time if len(model) == len(used) else None,
        "hfu_pct": 100.0 * sum(hardware) / time if len(hardware) == len(used) else None,
        "attention": used[0].asked.convention,
    }


def _statement(chosen: Windows, used: Sequence[Utilization]) -> str:
    summed = _summary(used)
    if not summed:
        return "Nothing runs on the GPU."
    names = list(dict.fromkeys(each.bound.gpu.name for each in used if each.bound.gpu))
    peaks = list(dict.fromkeys(f"{rate:g} TFLOP/s ({name})" for each in used for name, rate in each.peaks.items()))
    lacking = max(each.lacking for each in used)
    least = "at least " if lacking >= _LACKING.value else ""
    shares = {"the model's FLOPs": summed["mfu_pct"], "what was run": summed["hfu_pct"]}
    first, *rest = [(what, f"{least}{share:.1f} %") for what, share in shares.items() if share is not None]
    return (
        f"At the peak of {listed(names) or 'the GPU'}, {listed(peaks[:3])}, {first[0]} would take {first[1]} of "
        f"{sized_window(chosen.spans)}{''.join(f'; {what}, {share}' for what, share in rest)}"
        f"{f'; attention counted {_COUNTED[used[0].asked.convention]}' if any(map(attends, used)) else ''}"
        f"{f'; {lacking:.0f} % of compute time has no count of FLOPs' if least else ''}."
    )
