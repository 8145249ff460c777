"""Do the pipeline's stages overlap, and how large is its bubble?

A two-stage pipeline, from a log of timestamps (JSON lines, see below; `stepscope.annotate.items` writes them) or from
ranges `pp:stage0:*` and `pp:stage1:*`: one row per chunk, `--by k`. Ranges that launched GPU work are as long as that
work, unless `--host-time` is given. A period near max(stage0, stage1) is overlapped, and the longer stage gates it; one
near their sum is serialized. The run's `overlap_score` is the median after `--warmup`, and `--gate 0.30` fails below
that. `--against LOG` is another run, for example with other queue depths. `--by block`: the share of each block timer
of the log, by resolution and configuration, beside those of `--against`; where timers synchronize, they say where time
goes and nothing about throughput.

A pipeline of micro-batches, from a profile with setup labels (`pp=R/S`) and labelled chunks: `--by rank`: the bubble,
which is the time of the step with neither compute nor communication other than the pipeline's, beside the ideal of the
schedule. `--by phase`: before, warm-up, steady, drain, after; their bubbles sum to the rank's. `--by chunk`: by
micro-batch. `--by stage`: like-for-like chunks of all stages, which should take the same time.

A log is one JSON object per line: `{"k": 7, "rank": 0, "tA0_ms": 81.2, "tA1_ms": 83.0, "tEmit_ms": 90.1}` with any of
tA0, tA1, tSend, tRecv, tDecode, tEmit (rank 0) and tB0, tB1 (mesh leader); the unit is the suffix (ns, us, ms, s) or
`"unit"`; `"tokens"` says how many a chunk has, `"queue_depth_in"` and `"queue_depth_out"` (or `"queue_depth"`) how deep
the queues are; block timers are `{"block": "attention", "ms": 1.2, "synchronized": true}`, with `"resolution"` and
`"config"` where there are several.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypedDict

import polars as pl

from stepscope.analyses.pipeline import overlap_score
from stepscope.analyses.pipeline.block_timers import BlockRow, ComparedRow, blocks, blocks_statement
from stepscope.analyses.pipeline.chunks import CHUNKS, ByPhase, ByRank, OfStage, Work
from stepscope.analyses.pipeline.chunks import works as works_of
from stepscope.analyses.pipeline.inference import infer
from stepscope.analyses.pipeline.two_stages import Row as Row
from stepscope.analyses.pipeline.two_stages import has_two_stages, two_stages
from stepscope.derive.accounting.named_window import about_window
from stepscope.derive.pipelines.schedules import Schedule, Shape, ideal
from stepscope.derive.rank.needs import no_gpu_activity
from stepscope.derive.windows.choosing import settled
from stepscope.derive.windows.spec import WindowSpec
from stepscope.derive.windows.window import Windows
from stepscope.errors import BadInput, CannotAnswer, GateFailed
from stepscope.model.note import Note, noted
from stepscope.model.profile import Profile
from stepscope.model.result import Result, names, rows
from stepscope.model.statement import STATEMENT, time_of
from stepscope.model.units import about

ACROSS = True


class ByChunk(OfStage):
    step: Annotated[int, "which step of the window"]
    seq: Annotated[int, "order of the rank's chunks"]
    kind: Annotated[str, "f, b, w; bw: b with its w, where others put it off; fb: forward and backward overlapped"]
    mb: Annotated[int, "micro-batch (of fb: of the forward pass)"]
    part: Annotated[int, "which of the rank's virtual stages, or DualPipeV's phase"]
    label: Annotated[str, "text of its range"]
    start_ns: Annotated[int, "start of its first op"]
    end_ns: Annotated[int, "end of its last op"]
    compute_ns: Annotated[int, "time with compute of this chunk"]
    bubble_ns: Annotated[int, "bubble between its start and its end"]
    before_ns: Annotated[int | None, "from the end of the chunks before it to its start"]


class ByStage(TypedDict):
    kind: Annotated[str, "f, b, w; bw: b with its w, where others put it off; fb: overlapped"]
    part: Annotated[int, "which of the rank's virtual stages, or DualPipeV's phase"]
    stage: Annotated[int | None, "place in the pipeline"]
    ranks: Annotated[int, "ranks that hold it"]
    n: Annotated[int, "chunks"]
    compute_ns: Annotated[int, "median time with compute of such a chunk"]
    over_pct: Annotated[float | None, "beyond the median of all stages"]


VARIANTS = {
    "by=block": BlockRow,
    "by=block, against": ComparedRow,
    "by=rank": ByRank,
    "by=phase": ByPhase,
    "by=chunk": ByChunk,
    "by=stage": ByStage,
}

By = Literal["k", "block", "rank", "phase", "chunk", "stage"]


def pipeline(
    profile: Profile,
    window: WindowSpec,
    *,
    by: Annotated[By | None, "what a row is; by default chunks of two stages if there are any, else ranks"] = None,
    warmup: Annotated[int, "two stages: chunks at the beginning that do not count"] = 0,
    gate: Annotated[float | None, "two stages: exit 1 where the overlap score is below this"] = None,
    against: Annotated[Profile | None, "two stages: a log (or profile) of another run"] = None,
    host_time: Annotated[bool, "two stages: as long as their ranges on the host, whatever the GPU did"] = False,
    schedule: Annotated[Schedule | None, "the pipeline's schedule; by default from its labels"] = None,
    micro_batches: Annotated[int | None, "micro-batches of a step; by default from labels"] = None,
    stages: Annotated[int | None, "stages of the pipeline; by default from setup labels"] = None,
) -> Result:
    if warmup < 0:
        raise BadInput(f"--warmup {warmup}: negative", "give 0 or more")
    timed = profile.has("timers")
    if by is None:
        by = "k" if has_two_stages(profile) else "block" if timed else "rank"
    if by == "block":
        return _blocks(profile, against)
    if by == "k":
        return _two_stages(profile, warmup, gate, against, timed, host_time)
    if gate is not None or against is not None:
        raise BadInput("--gate and --against are for two-stage pipelines", "give a log of timestamps, and --by k")
    return _micro_batches(profile, window, by, schedule, micro_batches, stages)


def _two_stages(
    profile: Profile, warmup: int, gate: float | None, against: Profile | None, timed: bool, host_time: bool
) -> Result:
    if not has_two_stages(profile):
        raise CannotAnswer(
            "no two-stage pipeline: neither a log of timestamps nor ranges pp:stage0:* and pp:stage1:*",
            "mark them with stepscope.annotate.items, which logs them too (docs/capture.md); `--by rank` measures a "
            "pipeline of micro-batches",
        )
    stages = two_stages(profile, host_time)
    summary = overlap_score.figures(stages, warmup)
    summary["verdict"] = overlap_score.verdict(summary)
    summary[STATEMENT] = overlap_score.statement(summary)
    notes = list(stages.notes)
    threshold = 0.30 if gate is None else gate
    summary |= {"gate": threshold, "pass": summary["overlap_score"] >= threshold}
    if against is not None:
        other = two_stages(against, host_time)
        compared = overlap_score.against(stages, other, warmup)
        summary |= compared
        summary[STATEMENT] = f"{summary[STATEMENT][:-1]}; {overlap_score.change_said(compared)}."
        notes += [note.of("against") for note in other.notes]
        notes.append(noted("one-run-each/chunks"))
    if timed:
        table = blocks(profile)
        summary["blocks"] = table.to_dicts()
        notes += _block_notes(table)
    result = Result(stages.chunks, summary=summary, notes=notes, ranked_by="period_ns")
    if gate is not None and not summary["pass"]:
        raise GateFailed(
            f"overlap score {summary['overlap_score']:.3f} is below the gate {gate:g} ({summary['verdict']})",
            result=result,
        )
    return result


def _blocks(profile: Profile, against: Profile | None) -> Result:
    for side in (profile, *([against] if against is not None else [])):
        if not side.has("timers"):
            where = " in the log of --against" if side is against else ""
            raise CannotAnswer(f"no block timers{where}", 'log lines such as {"block": "attention", "ms": 1.2}')
    table = blocks(profile, against)
    total = {"total_ns": int(table["total_ns"].sum()), "attribution_only": bool(table["synchronized"].any())}
    return Result(table, summary={**total, STATEMENT: blocks_statement(table)}, notes=_block_notes(table))


def _block_notes(table: pl.DataFrame) -> list[Note]:
    if not table["synchronized"].any():
        return []
    return [noted("attribution-only")]


def _works(profile: Profile, window: WindowSpec) -> list[tuple[list[Work], Windows]]:
    """The work of all ranks: by rank and by chunk are two looks at the same."""
    return profile.map(works_of, settled(profile, window))


def _micro_batches(
    profile: Profile, window: WindowSpec, by: str, schedule: str | None, micro_batches: int | None, stages: int | None
) -> Result:
    if not profile.has("ops"):
        raise no_gpu_activity()
    parts = profile.once(_works, window)
    works = sorted((w for of_part, _ in parts for w in of_part), key=lambda w: w.rank)
    spans = sorted((span for _, chosen in parts for span in chosen.spans), key=lambda span: span.rank)
    chunks = pl.concat([w.chunks for w in works]) if works else pl.DataFrame(schema=CHUNKS)
    labelled = max((w.stages or 1 for w in works), default=1)
    if labelled < 2 and (stages or 1) < 2 and not any(w.piped for w in works):
        raise CannotAnswer(
            "no pipeline found: no setup label has pp > 1, and no communication looks like that of a pipeline",
            "push the range `rank=N; pp=R/S …` at the start of the capture, or give --stages and --schedule",
        )
    if by in ("chunk", "stage") and chunks.height == 0:
        raise CannotAnswer("no range names a chunk", "label them: `forward chunk 3`, `backward chunk 3`")
    shape = infer(chunks, labelled if labelled > 1 else None, schedule, micro_batches, stages)
    times = _times(chunks)
    share = ideal(shape, times)
    notes = [*dict.fromkeys(n for _, chosen in parts for n in chosen.notes), *_notes(shape, share, works, times)]
    ranks = [_row(w, share) for w in works]
    table = {
        "rank": lambda: rows(ByRank, ranks),
        "phase": lambda: rows(ByPhase, [row for w in works for row in w.phases()]),
        "chunk": lambda: rows(ByChunk, chunks),
        "stage": lambda: rows(ByStage, balance(chunks)),
    }[by]()
    summary: dict[str, Any] = {
        "schedule": shape.schedule,
        "stages": shape.stages,
        "micro_batches": shape.micro_batches,
        "virtual": shape.virtual,
        "ideal_pct": None if share is None else 100.0 * share,
        "bubble_pct": 100.0 * sum(r["bubble_ns"] for r in ranks) / max(sum(r["step_ns"] for r in ranks), 1),
        "slowest": _slowest(chunks),
    }
    figures = {k: v for k, v in summary.items() if v is not None}
    figures[STATEMENT] = _statement(about_window(spans), ranks, shape, share)
    ranked = "bubble_ns" if by == "chunk" else None
    return Result(table, [span.row() for span in spans], figures, notes, ranked_by=ranked)


def _statement(where: str, ranks: list[ByRank], shape: Shape, share: float | None) -> str:
    """How large the bubble is, beside the one that the schedule cannot avoid."""
    total, free = sum(r["step_ns"] for r in ranks), sum(r["bubble_ns"] for r in ranks)
    if not total:
        return f"Nothing runs on the GPU in {where}: there is no bubble to speak of."
    what = f"The pipeline's bubble is {100.0 * free / total:.1f} % of {where}: {time_of(free, total, len(ranks))}"
    if share is None:
        return f"{what}; the schedule's ideal is not known."
    over = 100.0 * (free / total - share)
    beside = f"{abs(over):.1f} points {'more' if over > 0 else 'less'} than" if abs(over) >= 0.05 else "as much as"
    return f"{what}; {beside} the {100.0 * share:.1f} % that {shape.schedule} leaves."


def _row(w: Work, share: float | None) -> ByRank:
    length, free = w.end - w.start, w.bubble.length()
    pct = 100.0 * free / length if length else None
    return {
        "rank": w.rank,
        "pid": w.pid,
        "stage": w.stage,
        "step_ns": length,
        "bubble_ns": free,
        "bubble_pct": pct,
        "ideal_pct": None if share is None else 100.0 * share,
        "over_pct": None if share is None or pct is None else pct - 100.0 * share,
    }


def _times(chunks: pl.DataFrame) -> dict[str, float]:
    """Median compute time of the chunks of each kind, over all ranks."""
    medians = chunks.group_by("kind").agg(pl.col("compute_ns").median())
    return {kind: float(ns) for kind, ns in medians.iter_rows()}


def balance(chunks: pl.DataFrame) -> pl.DataFrame:
    """Like-for-like chunks (same kind and part), stage by stage."""
    key = ["kind", "part"]
    even = chunks.group_by(*key, "stage").agg(
        pl.col("rank").n_unique().cast(pl.Int64).alias("ranks"),
        pl.len().cast(pl.Int64).alias("n"),
        pl.col("compute_ns").median().round().cast(pl.Int64),
    )
    middle = pl.col("compute_ns").median().over(key)
    even = even.with_columns(pl.when(middle > 0).then(100.0 * (pl.col("compute_ns") / middle - 1)).alias("over_pct"))
    return even.sort(*key, "stage").select(names(ByStage))


def _slowest(chunks: pl.DataFrame) -> str | None:
    """The stage whose like-for-like chunks take longest."""
    table = balance(chunks).drop_nulls(["stage", "over_pct"]) if chunks.height else pl.DataFrame()
    if table.height == 0 or table["stage"].n_unique() < 2:
        return None
    worst = table.sort("over_pct", descending=True).row(0, named=True)
    return f"stage {worst['stage']}: {worst['kind']} chunks {worst['over_pct']:+.1f} % beyond the median stage"


def _notes(shape: Shape, share: float | None, works: list[Work], times: dict[str, float]) -> list[Note]:
    notes = [noted("pipeline-inferred", what=", ".join(shape.said))] if shape.said else []
    if share is None:
        lacking = {"--schedule": shape.schedule, "--micro-batches": shape.micro_batches, "--stages": shape.stages}
        missing = [option for option, value in lacking.items() if value is None]
        notes.append(
            noted("no-ideal", why=f"give {', '.join(missing)}" if missing else "no labelled chunks to take times from")
        )
    elif shape.schedule in ("zero-bubble", "dualpipev"):
        taken = ", ".join(f"{k} {about(ns)}" for k, ns in sorted(times.items()))
        notes.append(noted("ideal-by-median", schedule=shape.schedule, times=taken))
    if works and not any(w.piped for w in works):
        notes.append(noted("pipeline-communication-unknown"))
    return notes
