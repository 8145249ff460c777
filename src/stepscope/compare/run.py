"""One run, measured: every step of every rank split exactly, by part, stage, kernel family and kernel.

Each instant of a step belongs to one part (semantics §6) and to one op, so that every table sums to the step. Ranks are
averaged: they meet in every step, and the mean is what all of them pay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import polars as pl

from stepscope.compare.steps import Kind, StepSpec, host_steps, steps_of
from stepscope.derive.accounting.owners import owners
from stepscope.derive.accounting.partition import partition
from stepscope.derive.rank.data import COMM, NO_STAGE, RankData, ranks_of
from stepscope.derive.rank.needs import no_gpu_activity
from stepscope.derive.rank.recorded import contradictions
from stepscope.derive.windows.samples import Samples, notes_on_left_out
from stepscope.errors import CannotAnswer
from stepscope.intervals.arrays import F64, I64, NONE
from stepscope.model.kernel_names import short_names
from stepscope.model.note import Note, noted
from stepscope.model.profile import Profile
from stepscope.model.ranks import some_ranks
from stepscope.model.taxonomy import COMMUNICATION

By = Literal["part", "stage", "rank", "family", "kernel"]

PARTS = ("compute", "comm_exposed", "copy_exposed", "idle", "unsplit")
#: Time of steps of which only the host's side was recorded; every other step is split into the parts before it.
UNSPLIT = PARTS.index("unsplit")
IDLE = "(idle)"
_IDLE = PARTS.index("idle")


@dataclass(frozen=True)
class Table:
    """Nanoseconds of each step, by key and part: `ns[step, key, part]`; and how many ops ran, `n[step, key]`."""

    keys: list[str]
    ns: F64
    n: F64


@dataclass
class Run:
    """The steps of one run, means over its ranks."""

    labels: list[str]
    kind: Kind
    ranks: list[int]
    tables: dict[str, Table]
    window: list[dict[str, object]] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    graphs: str | None = None
    #: family of each kernel, where kernels were measured
    families: dict[str, str] = field(default_factory=dict)

    @property
    def step_ns(self) -> F64:
        """Length of each step."""
        total: F64 = self.tables["part"].ns.sum(axis=(1, 2))
        return total

    def only(self, labels: list[str]) -> Run:
        """The same run with these of its steps, in this order."""
        rows = [self.labels.index(label) for label in labels]
        tables = {by: Table(t.keys, t.ns[rows], t.n[rows]) for by, t in self.tables.items()}
        return replace(self, labels=labels, tables=tables)


@dataclass(frozen=True)
class _Rank:
    """One rank's steps: where they lie, and `ns` and `n` by step, part, stage and name."""

    rank: int
    pid: int | None
    kind: Kind
    label: list[str]
    start: I64
    end: I64
    split: pl.DataFrame
    graphs: str | None
    notes: list[Note]
    samples: Samples | None = None


def measure(profile: Profile, spec: StepSpec) -> Run:
    """The run that `profile` holds."""
    parts = profile.map(_measure_part if profile.has("ops") else _measure_host, spec)
    ranks = sorted((r for part in parts for r in part), key=lambda r: r.rank)
    if not ranks:
        raise _without_steps(spec) if profile.has("ops") else no_gpu_activity()
    notes = [note for r in ranks for note in r.notes]
    notes += notes_on_left_out([r.samples for r in ranks if r.samples is not None])
    if absent := sorted(set(profile.rank_ids()) - {r.rank for r in ranks}):
        notes.append(noted("ranks-left-out/no-step", some=some_ranks(absent)))
    kept, labels = _common(ranks, notes)
    split = pl.concat(
        r.split.with_columns(
            pl.col("step").replace_strict(
                {int(old): new for new, old in enumerate(rows)}, default=None, return_dtype=pl.Int64
            ),
            pl.lit(str(r.rank)).alias("rank"),
        ).drop_nulls("step")
        for r, rows in zip(ranks, kept, strict=True)
    )
    count = len(ranks)
    tables: dict[str, Table] = {
        key: _table(split, key, len(labels), 1 if key == "rank" else count)
        for key in ("part", "stage", "rank", "family", "kernel")
    }
    families = split.select("kernel", "family").unique(maintain_order=True)
    graphs = {r.graphs for r in ranks if r.graphs}
    return Run(
        labels,
        ranks[0].kind,
        [r.rank for r in ranks],
        tables,
        [_window(r, rows) for r, rows in zip(ranks, kept, strict=True)],
        notes,
        " and ".join(sorted(graphs)) or None,
        dict(zip(families["kernel"].to_list(), families["family"].to_list(), strict=True)),
    )


def _without_steps(spec: StepSpec) -> CannotAnswer:
    if spec.warmup:
        return CannotAnswer(f"--warmup {spec.warmup} leaves no step on any rank", "give a smaller one")
    if spec.unit is not None:
        return CannotAnswer(f"no rank has {spec.unit}s with GPU work", "give --anchor REGEX, or --whole")
    if spec.anchor is not None:
        what = f"no range with GPU work matches --anchor {spec.anchor!r}"
        return CannotAnswer(what, "`stepscope nvtx` lists the ranges there are")
    return CannotAnswer("the profile has no GPU work in any step", "capture steps that use the GPU")


def _measure_part(part: Profile, spec: StepSpec) -> list[_Rank]:
    ranks = []
    for data in ranks_of(part):
        steps = steps_of(data, spec)
        if steps is not None:
            split = _named(part, _split(data, steps.start, steps.end))
            where = (steps.kind, steps.label, steps.start, steps.end)
            ranks.append(_Rank(data.rank, data.pid, *where, split, _graphs(data), contradictions(data), steps.samples))
    return ranks


def _measure_host(part: Profile, spec: StepSpec) -> list[_Rank]:
    """Steps of a profile without GPU records: how long each takes on the host, and nothing more."""
    ranks = []
    for data in ranks_of(part):
        steps = host_steps(data, spec)
        if steps is not None:
            count = len(steps.label)
            split = pl.DataFrame(
                {"step": np.arange(count), "part": np.full(count, UNSPLIT), "ns": steps.end - steps.start}
            ).with_columns(
                pl.lit(NO_STAGE).alias("stage"), pl.lit(IDLE).alias("kernel"), pl.lit(IDLE).alias("family"), n=pl.lit(0)
            )
            where = (steps.kind, steps.label, steps.start, steps.end)
            note = noted("steps-on-host")
            ranks.append(_Rank(data.rank, data.pid, *where, split, None, [note], steps.samples))
    return ranks


def _split(data: RankData, start: I64, end: I64) -> pl.DataFrame:
    """`ns` and `n` by step, part, stage and name id; linear in the number of ops."""
    whole = partition(data, int(min(data.start.min(), start.min())), int(max(data.end.max(), end.max())))
    pieces = owners(data, whole, np.concatenate([start, end]))
    stage = data.stage_of(np.arange(len(data.start)))
    frames = []
    for part, (op, at, ns) in enumerate(pieces):
        order = np.argsort(at, kind="stable")
        row, step = _inside(at[order], start, end)
        row = order[row]
        frames.append(_frame(data, stage, step, part, op[row], ns[row], 0))
    row, step = _inside(data.start, start, end)
    part_of = data.role[row].astype(np.int64)  # compute, comm and copy, in the order of the parts
    frames.append(_frame(data, stage, step, part_of, row, np.zeros(len(row), np.int64), 1))
    return pl.concat(frames).group_by("step", "part", "stage", "name", "comm").agg(pl.col("ns", "n").sum())


def _frame(data: RankData, stage: pl.Series, step: I64, part: I64 | int, op: I64, ns: I64, n: int) -> pl.DataFrame:
    of_op = pl.Series(op != NONE)
    at = np.maximum(op, 0)
    frame = pl.DataFrame(
        {
            "step": step,
            "part": np.broadcast_to(np.asarray(part, np.int64), len(step)),
            "stage": stage.gather(at),
            "name": data.name[at],
            "comm": data.role[at] == COMM,
            "ns": ns,
            "n": np.full(len(step), n, np.int64),
        }
    )
    return frame.with_columns(pl.when(of_op).then("stage").otherwise(pl.lit(NO_STAGE)).alias("stage"))


def _inside(at: I64, start: I64, end: I64) -> tuple[I64, I64]:
    """Rows of sorted moments that lie in each step, and the step: rows repeat where steps overlap."""
    first, last = np.searchsorted(at, start), np.searchsorted(at, end)
    count = np.maximum(last - first, 0)
    step = np.repeat(np.arange(len(start)), count)
    row = np.arange(len(step)) - np.repeat(np.cumsum(count) - count, count) + np.repeat(first, count)
    return row, step


def _named(profile: Profile, split: pl.DataFrame) -> pl.DataFrame:
    """With short names and families for name ids; idle time is nobody's kernel."""
    ids = split["name"].unique().sort()
    text = profile.names.gather(ids)
    table = pl.DataFrame({"name": ids, "kernel": short_names(text), "family": profile.taxonomy.family(text)})
    idle = pl.col("part") == _IDLE
    comm = pl.col("comm")
    return (
        split.join(table, on="name", how="left")
        .with_columns(
            pl.when(idle).then(pl.lit(IDLE)).otherwise("kernel").alias("kernel"),
            pl.when(idle)
            .then(pl.lit(IDLE))
            .when(comm)
            .then(pl.lit(COMMUNICATION))
            .otherwise("family")
            .fill_null("other")
            .alias("family"),
        )
        .group_by("step", "part", "stage", "kernel", "family")
        .agg(pl.col("ns", "n").sum())
    )


def _graphs(data: RankData) -> str | None:
    whole = bool((data.ops["kind"] == "graph").any())
    return "recorded whole" if whole else None


def _common(ranks: Sequence[_Rank], notes: list[Note]) -> tuple[list[list[int]], list[str]]:
    """Steps that every rank has: per rank, which of its own; and what they are called."""
    first = ranks[0]
    counts = {len(r.label) for r in ranks}
    if len(counts) == 1:
        return [list(range(len(first.label)))] * len(ranks), first.label
    shared = set.intersection(*(set(r.label) for r in ranks))
    if shared and all(len(set(r.label)) == len(r.label) for r in ranks):
        labels = [t for t in first.label if t in shared]
        rows = [[r.label.index(t) for t in labels] for r in ranks]
    else:
        labels = first.label[: min(counts)]
        rows = [list(range(min(counts)))] * len(ranks)
    notes.append(noted("steps-in-common", fewest=min(counts), most=max(counts), kind=first.kind, common=len(labels)))
    return rows, labels


def _table(split: pl.DataFrame, by: str, steps: int, share: int) -> Table:
    """Dense sums by step, key and part, divided by `share` ranks."""
    if by == "part":
        keys = ["step"]
        at = np.zeros(split.height, np.int64)
    else:
        keys = sorted(split[by].unique().to_list(), key=lambda k: (int(k), k) if by == "rank" else (0, k))
        at = split[by].replace_strict({k: i for i, k in enumerate(keys)}, return_dtype=pl.Int64).to_numpy()
    step, part = split["step"].to_numpy(), split["part"].to_numpy()
    shape = (steps, len(keys), len(PARTS))
    flat = np.ravel_multi_index((step, at, part), shape)
    size = int(np.prod(shape))
    ns = np.bincount(flat, split["ns"].to_numpy(), size).reshape(shape)
    n = np.bincount(flat, split["n"].to_numpy(), size).reshape(shape).sum(axis=2)
    return Table(keys, ns / share, n / share)


def _window(r: _Rank, rows: list[int]) -> dict[str, object]:
    """The stretch that the steps of a rank cover, as results show windows."""
    where = "cpu" if (r.split["part"] == UNSPLIT).all() else "gpu"
    label = r.label[rows[0]] if len(rows) == 1 else f"{r.label[rows[0]]} … {r.label[rows[-1]]}"
    return {
        "rank": r.rank,
        "pid": r.pid,
        "label": label,
        "steps": len(rows),
        f"{where}_start_ns": int(r.start[rows[0]]),
        f"{where}_end_ns": int(r.end[rows[-1]]),
    }
