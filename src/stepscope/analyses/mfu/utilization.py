"""Model and hardware FLOPs utilization of windows: what is needed for it, and what cannot be (semantics §16)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from stepscope.analyses.mfu.declared import TRAINING, Part, of_token
from stepscope.derive.flops.measured import work_of
from stepscope.derive.flops.window import Bound, Convention, WindowWork, of_window
from stepscope.derive.flops.work import AGAIN, BACKWARD, FORWARD
from stepscope.derive.rank.data import RankData, ranks_of
from stepscope.derive.windows.window import Window, Windows
from stepscope.errors import BadInput, CannotAnswer
from stepscope.model.capturing import capture_with
from stepscope.model.declared import Model
from stepscope.model.gpus import Precision, gpu_of
from stepscope.model.profile import Profile
from stepscope.model.ranks import gpu_name
from stepscope.model.statement import several
from stepscope.model.units import about, operations


@dataclass(frozen=True)
class Declared:
    """A declared model and what a step does with it; `ranks` share the tokens of a step."""

    model: Model
    tokens: int
    sequence: int
    ranks: int
    passes: int = TRAINING

    @property
    def parts(self) -> list[Part]:
        return of_token(self.model, self.sequence)

    def flops(self, convention: Convention) -> int:
        """Of one rank's step."""
        each = sum(p.of(convention == "full") for p in self.parts)
        return round(self.passes * self.tokens * each / self.ranks)


@dataclass(frozen=True)
class Asked:
    """How the user wants it counted."""

    convention: Convention = "full"
    declared: Declared | None = None
    gpu: str | None = None
    peak: float | None = None
    precision: Precision | None = None


@dataclass(frozen=True)
class Utilization:
    """One window of one rank."""

    data: RankData
    span: Window
    work: WindowWork
    #: Whether any op of the rank has shapes.
    shaped: bool
    bound: Bound
    asked: Asked

    @property
    def counted(self) -> bool:
        """Whether FLOPs of the window's own ops are known: by shapes, or measured."""
        return self.work.ops.height > 0

    @property
    def model_flops(self) -> int | None:
        """What the model asks for; None where nothing but measured kernels is known."""
        if self.asked.declared is not None:
            return self.asked.declared.flops(self.asked.convention)
        return self.work.total("model") if self.shaped else None

    @property
    def hardware_flops(self) -> int | None:
        """What was run; None where only a declared model is known."""
        return self.work.total("hardware") if self.counted else None

    @property
    def recomputed_flops(self) -> int | None:
        """The part of what was run that had been computed before."""
        if not self.shaped:
            return None
        ops = self.work.ops.filter(pl.col("phase").is_in([FORWARD, BACKWARD, AGAIN]))
        return round(float(ops["hardware"].sum()) - float(ops["model"].sum()))

    @property
    def ideal_ns(self) -> float:
        """The time that the model's FLOPs take at the peak; the hardware's, where nothing says the model's."""
        if self.asked.declared is None:
            return self.work.ideal_ns("model" if self.shaped else "hardware")
        _, rate = self._declared_peak
        return (self.model_flops or 0) / (1e3 * rate)

    @property
    def mfu_pct(self) -> float | None:
        return None if self.model_flops is None else 100.0 * self.ideal_ns / self.span.gpu_ns

    @property
    def hfu_pct(self) -> float | None:
        return self.work.share("hardware") if self.counted else None

    @property
    def flops(self) -> int:
        """The model's FLOPs, or the hardware's where nothing says the model's."""
        return self.model_flops if self.model_flops is not None else self.hardware_flops or 0

    @property
    def peak_tflops(self) -> float | None:
        """The peak that these are measured against: where precisions are mixed, their mean by time."""
        return self.flops / (1e3 * self.ideal_ns) if self.ideal_ns else None

    @property
    def peaks(self) -> dict[str, float]:
        """The peaks that matter, by name, the one of most FLOPs first: those of a hundredth of them at least."""
        if self.asked.declared is not None:
            name, rate = self._declared_peak
            return {name: rate}
        most = self.work.ops.drop_nulls("rate").group_by("peak", "rate").agg(pl.col("hardware").sum())
        most = most.filter(pl.col("hardware") >= 0.01 * pl.col("hardware").sum()).sort("hardware", descending=True)
        return {row["peak"]: row["rate"] for row in most.iter_rows(named=True)}

    @property
    def lacking(self) -> float:
        """Of the time of compute kernels, in percent, what would count and has no count."""
        return (self.work.part_of_compute(counted=False) or 0.0) if self.asked.declared is None else 0.0

    @property
    def _declared_peak(self) -> tuple[str, float]:
        declared_peak = self.bound.of(self.asked.precision, True)
        assert declared_peak is not None  # `utilizations` refuses a GPU without rates
        return declared_peak


def utilizations(profile: Profile, chosen: Windows, asked: Asked) -> list[Utilization]:
    """Every window that has GPU work. Refused where nothing tells FLOPs or peak, and where the result cannot be."""
    utilizations: list[Utilization] = []
    for data in ranks_of(profile):
        bound = _bound(profile, data, asked)
        work = work_of(data)
        for span in chosen.of(data.rank):
            if span.gpu_ns:
                inside = of_window(profile, data, span, work, bound, asked.convention)
                utilizations.append(Utilization(data, span, inside, work.shaped > 0, bound, asked))
    if asked.declared is None:
        _need_counts(utilizations)
    for each in utilizations:
        _refuse_impossible(each)
    return utilizations


def _bound(profile: Profile, data: RankData, asked: Asked) -> Bound:
    name = asked.gpu or gpu_name(profile.ranks, data.rank)
    gpu = gpu_of(name)
    if asked.gpu and gpu is None:
        raise BadInput(f"--gpu {asked.gpu}: not known", "give its peak: --peak TFLOPS")
    if gpu is None and asked.peak is None:
        what = f"nothing is known of the peak of {name}" if name else "the trace does not name the GPU"
        raise CannotAnswer(what, "give --gpu NAME (as `H100`), or its dense peak: --peak TFLOPS")
    half: Precision = "bf16" if gpu is None or gpu.bf16 else "fp16"
    return Bound(gpu, asked.peak, asked.precision or half, asked.precision is not None)


def _need_counts(utilizations: Sequence[Utilization]) -> None:
    if any(each.counted for each in utilizations):
        return
    shaped = any(each.shaped for each in utilizations)
    what = "no op of the window has FLOPs that can be counted" if shaped else "no shapes of torch ops were recorded"
    raise CannotAnswer(
        f"{what}, so the FLOPs cannot be counted",
        f"{capture_with('shapes')}; declare the model: --model NAME --tokens N --sequence S; or also give what "
        "Nsight Compute measured of the same program",
    )


def _refuse_impossible(each: Utilization) -> None:
    """Nothing runs faster than the peak: name the term that must be wrong."""
    worst = max((each.mfu_pct or 0.0, "MFU"), (each.hfu_pct or 0.0, "HFU"))
    if worst[0] <= 100.0:
        return
    what = f"{worst[1]} would be {worst[0]:.0f} % on rank {each.span.rank} ({each.span.label})"
    declared = each.asked.declared
    if declared is not None and worst[1] == "MFU":
        raise CannotAnswer(
            f"{what}: {declared.tokens:,} tokens of {declared.model.name} on {several(declared.ranks, 'rank')} are "
            f"{operations(each.flops)} each, at least {about(each.ideal_ns)} at the peak, and the window has "
            f"{about(each.span.gpu_ns)}",
            "--tokens (those of one step, all ranks together), --model, --sequence or --peak must be wrong",
        )
    fast = pl.col("hardware").sum() / pl.col("gpu_ns").sum() / 1e3
    term = (
        each.work.ops.group_by("phase", "name", "shapes", "peak", "rate")
        .agg(pl.len(), fast.alias("tflops"))
        .sort(pl.col("tflops") / pl.col("rate"), descending=True)
        .row(0, named=True)
    )
    shapes = " ".join((term["shapes"] or "").split())  # some files break them over lines
    raise CannotAnswer(
        f"{what}: {term['name']} {shapes} ({term['phase']}, {term['len']} times) would run at "
        f"{term['tflops']:,.0f} TFLOP/s, and the peak ({term['peak']}) is {term['rate']:,.0f}",
        "that term's count or time, or the peak (--gpu, --peak, --precision), must be wrong",
    )
