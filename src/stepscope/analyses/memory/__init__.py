"""What is the GPU's memory made of at its peak, who holds it, and what limits scaling?

A ledger: weights, gradients, optimizer states, activations, temporary, communication, KV cache; what is cached but
free, lost to fragmentation, and outside PyTorch. The parts sum to the reserved bytes at the peak, to the byte. From a
snapshot of the allocator (`torch.cuda.memory._record_memory_history()`, later `_dump_snapshot(FILE)`) or from a
torch.profiler trace with `profile_memory=True`; what was allocated before recording began is reconstructed from the
segments at the end. What cannot be told is `unknown`, and `why` says on what a row rests.

`--model` estimates the ledger of a declared model instead, or beside the measured one, for planning: `memory --model
qwen3-30b-a3b --sequence 4096 --dp 8 --ep 8 --zero 1`. `--by term` shows each term of it. With `--kv-tokens` it is that
of a server: weights, the cache of keys and values of so many tokens, and a forward pass.

`--to OTHER` sets another snapshot beside it, by part or by line (`--by frame`): what grew from this one to that.

`--by frame` shows who holds what at the peak, `--by time` the parts over time, `--by stall` when the allocator went to
CUDA (with `--timeline`, a trace of the same run: how long the GPU was idle for it, as `idle` counts it), `--by change`
what ZeRO, recomputation or another mesh would change.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import polars as pl

from stepscope.analyses.memory import comparing
from stepscope.analyses.memory.changes import of_job
from stepscope.analyses.memory.columns import (
    ByChange,
    ByFrame,
    ByStall,
    ByTerm,
    ByTime,
    Row,
    To,
    ToByFrame,
)
from stepscope.analyses.memory.ledger import Ledger, ledgers
from stepscope.analyses.memory.oom import oom_summary
from stepscope.analyses.memory.rules import PARTS
from stepscope.analyses.memory.stalls import stalls, timeline_of
from stepscope.analyses.memory.tables import (
    GROWS,
    change_rows,
    changes_table,
    frame_rows,
    of_device,
    part_rows,
    term_rows,
    time_rows,
)
from stepscope.analyses.memory.wording import (
    estimate_notes,
    estimate_sentence,
    ledger_sentence,
    notes_of,
    stall_sentence,
)
from stepscope.derive.memory.estimate import Estimate, Job, estimate
from stepscope.errors import BadInput, CannotAnswer
from stepscope.model import declared
from stepscope.model.capturing import capture_by
from stepscope.model.gpus import gpu_of
from stepscope.model.option import Effect
from stepscope.model.profile import Profile
from stepscope.model.result import Result, blank, rows
from stepscope.model.statement import STATEMENT

VARIANTS = {
    "to": To,
    "to, by=frame": ToByFrame,
    "by=frame": ByFrame,
    "by=time": ByTime,
    "by=stall": ByStall,
    "by=change": ByChange,
    "by=term": ByTerm,
}

By = Literal["part", "frame", "time", "stall", "change", "term"]


def memory(
    profile: Profile | None,
    *,
    by: Annotated[By, "what a row is"] = "part",
    model: Annotated[
        str | None, "estimate a declared model: a preset, a TOML file, or layers=6,width=1024,…", Effect.READS
    ] = None,
    sequence: Annotated[int | None, "tokens of a sequence; with --model"] = None,
    mbs: Annotated[int, "sequences of a micro-batch; with --model"] = 1,
    precision: Annotated[
        Literal["bf16", "autocast", "mixed"], "all in bf16; fp32 weights under autocast; bf16 with fp32 master weights"
    ] = "bf16",
    optimizer: Annotated[Literal["adamw", "adamw-fused", "sgd", "momentum"], "with --model"] = "adamw",
    attention: Annotated[
        Literal["flash", "eager"], "with --model: flash, or eager, which holds all scores in memory"
    ] = "flash",
    recompute: Annotated[bool, "with --model: layers keep only their input (activation checkpointing)"] = False,
    zero: Annotated[int, "with --model: ZeRO stage 0 to 3, sharded over dp (FSDP is 3)"] = 0,
    dp: Annotated[int, "data-parallel ranks, to shard over"] = 1,
    tp: Annotated[int, "tensor-parallel ranks"] = 1,
    pp: Annotated[int, "pipeline stages"] = 1,
    cp: Annotated[int, "context-parallel ranks"] = 1,
    ep: Annotated[int, "expert-parallel ranks"] = 1,
    gpu: Annotated[str | None, "the GPU (its memory is the limit), if the trace does not name it: H100"] = None,
    used: Annotated[int | None, "bytes in use on the device at the peak (nvidia-smi): what is outside PyTorch"] = None,
    timeline: Annotated[Profile | None, "a trace of the same run (nsys, torch.profiler), for --by stall"] = None,
    to: Annotated[Profile | None, "another snapshot, to compare with: by part or by frame"] = None,
    kv_tokens: Annotated[int, "with --model: tokens in a server's KV cache, over all sequences"] = 0,
    plot: Annotated[
        bool, "with --by time: draw it in the terminal (table format only); -o FILE.svg also draws it", Effect.DRAWS
    ] = False,
) -> Result:
    if plot and by != "time":
        raise BadInput("--plot draws the parts over time", "add --by time")
    if to is not None and by not in ("part", "frame"):
        raise BadInput(f"--to compares by part or by frame, not by {by}", "leave out --by, or give --by frame")
    job = None
    if model is not None:
        mesh = {"dp": dp, "tp": tp, "pp": pp, "cp": cp, "ep": ep}
        job = _job(model, sequence, mbs, precision, optimizer, attention, recompute, zero, mesh, kv_tokens)
    elif kv_tokens:
        raise BadInput("--kv-tokens is for an estimate", "give --model")
    if profile is None:
        if job is None:
            raise BadInput("memory needs a profile, or a model to estimate", "name a snapshot, or give --model")
        if to is not None:
            raise BadInput("--to compares two snapshots", "name one before it")
        return _estimated(job, by, gpu)
    _need(profile)
    if to is not None:
        return _compared(profile, to, by)
    of_ranks = ledgers(profile)
    guessed = estimate(job) if job is not None else None
    row_type = VARIANTS.get(f"by={by}", Row)
    idle: int | None = None
    if by == "part":
        table = pl.concat([part_rows(ledger, guessed, used) for ledger in of_ranks])
    elif by == "frame":
        table = pl.concat([frame_rows(ledger) for ledger in of_ranks])
    elif by == "time":
        table = pl.concat([time_rows(ledger) for ledger in of_ranks])
    elif by == "stall":
        lines = [timeline_of(profile, ledger.history, timeline) for ledger in of_ranks]
        table = pl.concat([of_device(lg, stalls(lg, line)) for lg, line in zip(of_ranks, lines, strict=True)])
        idle = sum(line.total_idle for line in lines if line is not None) if any(lines) else None
    elif by == "change":
        table = pl.concat([of_device(ledger, change_rows(ledger, job, dp)) for ledger in of_ranks])
    else:
        if guessed is None:
            raise BadInput("--by term shows the terms of an estimate", "give --model")
        table = term_rows(guessed)
    room = _memory_of(profile, gpu)
    summary: dict[str, Any] = {"peak": [_peak(ledger) for ledger in of_ranks]}
    summary |= oom_summary(of_ranks, dp, room[1] if room else None)
    summary |= {"plot": True} if plot else {}
    if guessed is not None:
        summary["estimate"] = _estimate_row(guessed)
    notes = [*notes_of(profile, of_ranks), *(estimate_notes(guessed) if guessed is not None else ())]
    summary[STATEMENT] = stall_sentence(table, idle) if by == "stall" else ledger_sentence(of_ranks, room, guessed, dp)
    ranked = {"part": None, "time": None, "stall": "idle_ns" if idle else "bytes", "change": "saves_bytes"}.get(
        by, "bytes"
    )
    return Result(rows(row_type, table), summary=summary, notes=notes, ranked_by=ranked)


def _compared(profile: Profile, to: Profile, by: By) -> Result:
    """Rows of both sides beside each other."""
    _need(to)
    here, there = ledgers(profile), ledgers(to)
    sides = here, there
    by_part = [pl.concat([part_rows(one, None, None) for one in side]) for side in sides]
    by_frame = [pl.concat([frame_rows(one) for one in side]) for side in sides]
    parts = comparing.beside(by_part[0], by_part[1], ["part"])
    frames = comparing.beside(by_frame[0], by_frame[1], ["part", "frame"])
    notes = [*notes_of(profile, here), *(note.of("--to") for note in notes_of(to, there))]
    summary = {
        "peak": [_peak(ledger) for ledger in here],
        "to_peak": [_peak(ledger) for ledger in there],
        STATEMENT: comparing.change_sentence(here, there, parts, frames),
    }
    table = rows(To, parts) if by == "part" else rows(ToByFrame, frames)
    return Result(table, summary=summary, notes=notes, ranked_by=None if by == "part" else "change_bytes")


def _need(profile: Profile) -> None:
    if profile.has("allocations") or profile.has("blocks"):
        return
    raise CannotAnswer(
        "the profile has no record of the allocator",
        f"{capture_by('--backend torch --with memory')}, or take a snapshot "
        "(torch.cuda.memory._record_memory_history(), later _dump_snapshot(FILE)); `--model` estimates without one",
    )


def _job(
    name: str,
    sequence: int | None,
    mbs: int,
    precision: str,
    optimizer: str,
    attention: str,
    recompute: bool,
    zero: int,
    mesh: dict[str, int],
    kv_tokens: int,
) -> Job:
    if sequence is None:
        raise BadInput("--model needs the length of a sequence", "give --sequence N")
    for flag, value in {"sequence": sequence, "mbs": mbs, **mesh}.items():
        if value < 1:
            raise BadInput(f"--{flag} {value}: too small", "give 1 or more")
    if not 0 <= zero <= 3:
        raise BadInput(f"--zero {zero}: no such stage", "give 0, 1, 2 or 3")
    if kv_tokens < 0:
        raise BadInput(f"--kv-tokens {kv_tokens}: negative", "give the tokens that the cache holds")
    if kv_tokens and (zero or recompute):
        raise BadInput("--kv-tokens describes a server, which does not train", "leave out --zero and --recompute")
    return Job(
        declared.load(name), sequence, mbs, precision, optimizer, recompute, zero, attention == "flash", **mesh,
        kv_tokens=kv_tokens,
    )  # fmt: skip


def _peak(ledger: Ledger) -> dict[str, Any]:
    history = ledger.history
    time = None if history.time is None or ledger.moment < 0 else int(history.time[ledger.moment])
    return {
        "rank": history.rank,
        "device": history.device,
        "start_ns": time,
        "phase": ledger.phase,
        "reserved_bytes": ledger.reserved,
        "allocated_bytes": ledger.allocated,
    }


def _estimate_row(estimate: Estimate) -> dict[str, Any]:
    return {
        "peak_bytes": estimate.size,
        "when": estimate.peak.when,
        "parameters": estimate.total,
        "rank_parameters": estimate.parameters,
        "stage": estimate.stage,
    }


def _estimated(job: Job, by: By, gpu: str | None) -> Result:
    """Without a profile: the ledger of the declared model."""
    estimated = estimate(job)
    if by == "part":
        parts = estimated.peak.parts()
        table: list[Row] = [
            {
                **blank(Row),
                "part": part,
                "bytes": parts[part],
                "share_pct": 100.0 * parts[part] / estimated.size,
                "estimate_bytes": parts[part],
                "grows_with": GROWS[part],
                "why": f"estimated, at its peak: {estimated.peak.when}",
            }
            for part in PARTS
            if part in parts
        ]
        result = rows(Row, table)
    elif by == "term":
        result = term_rows(estimated)
    elif by == "change":
        result = changes_table(of_job(job)).select(pl.lit(None).alias("rank"), pl.lit(None).alias("device"), pl.all())
    else:
        raise BadInput(f"--by {by} needs a record of the allocator", "name a snapshot, or a trace with memory events")
    room = _named_gpu(gpu) if gpu else None
    summary = {"estimate": _estimate_row(estimated), STATEMENT: estimate_sentence(estimated, room)}
    return Result(
        result,
        summary=summary,
        notes=estimate_notes(estimated),
        ranked_by={"change": "saves_bytes", "term": "bytes"}.get(by),
    )


def _memory_of(profile: Profile, gpu: str | None) -> tuple[str, int] | None:
    """The GPU and its memory, by the option or by the trace."""
    if gpu:
        return _named_gpu(gpu)
    names = profile.ranks["gpu"].drop_nulls().unique().to_list()
    spec = gpu_of(names[0]) if len(names) == 1 else None
    return (spec.name, int(spec.gb * 1e9)) if spec is not None else None


def _named_gpu(name: str) -> tuple[str, int]:
    gpu = gpu_of(name)
    if gpu is None:
        raise BadInput(f"--gpu {name}: not known", "give a model's name: H100, H200, MI300X")
    return gpu.name, int(gpu.gb * 1e9)
