"""What a step is: which ranges of a rank mark its steps or chunks, and in which order. All questions ask here.

Ranges mark the steps where the trainer's labels name them (`--labels`), or where one family of them says so (texts that
differ in their numbers are one family; the patterns are data, `model/trainers/default.toml`). The first of these that
applies:
1. Numbered, and called a step: `ProfilerStep#3`, `step 3`, `train step 3`, `iteration_3`, `Batch 3`. One instance is
   enough. Of several such families the one with most host time counts: that is the enclosing one.
2. Called a step without a number, and recurring: `train_step`, JAX's `hlo_module=jit_step`.
3. What an inference server runs once per batch: its execute, forward-step and decode ranges.
4. Where the trainer marks no chunks: a family whose number grows by the same amount from each to the next, the
   shallowest one, unless it is a part of a step by its name (a layer). It needs two instances.
5. Where it marks no chunks: the ends of `Optimizer.step#…`, which torch.profiler records, if one optimizer recurs.
A family that launched nothing is not the step, unless the rank has no GPU work at all. Steps that are a warm-up by name
are none where work follows them: then what is called a step after them, or the shallowest family that recurs there.

DualPipeV's trainer marks chunks, and no steps: the window is the capture. Its pace is told by the first forward pass
of micro-batch 0, from one to the next; what follows the last one is not a whole step.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import polars as pl

from stepscope.derive.rank.data import RankData
from stepscope.intervals import union
from stepscope.intervals.arrays import I64
from stepscope.model.range_names import RECORD

#: What a question is about by default: `step`; `chunk`, where there are chunks; or `pace`, what recurs.
Unit = Literal["chunk", "step", "pace"]

#: Steps that a program runs before those that it measures.
_WARM_UP = r"(?i)warm[ _-]?up"
#: What a step is called that its first forward pass tells.
BY_CHUNKS = "from forward chunk 0"


@dataclass(frozen=True)
class Anchors:
    """Ranges of one rank that windows are taken from, by start."""

    label: list[str]
    start: I64
    end: I64

    def __len__(self) -> int:
        return len(self.label)


@dataclass(frozen=True)
class Marks:
    """What ranges say about the steps of one rank."""

    #: steps that ranges mark
    steps: Anchors | None
    #: DualPipeV's overlapped chunks
    chunks: Anchors | None
    #: the pace of a trainer that marks only chunks: ranks cut it at different places, so it is not a window for all
    repeats: Anchors | None

    def anchors(self, unit: Unit) -> Anchors | None:
        """Instances of the unit, None where the window is the capture."""
        if unit == "step":
            return self.steps
        if unit == "chunk":
            return self.chunks or self.steps
        paced = self.steps or self.repeats
        return self.chunks or paced if paced is None or len(paced) == 1 else paced


def marks_of(data: RankData) -> Marks:
    """The steps and chunks that the rank's ranges mark."""
    return data.once(_marks_of)


def _marks_of(data: RankData) -> Marks:
    table = data.anchor_ranges()
    if table.height == 0:
        return Marks(None, None, None)
    chunks = _matching(table, data.profile.labels.chunk)
    steps = _labelled(data, table) or _measured(data, table)
    if steps is None and chunks is None:
        steps = _counted(data, table) or _optimizers(data, table)
    repeats = _repeats(data, table) if steps is None and chunks is not None else None
    return Marks(steps, chunks, repeats)


def _measured(data: RankData, table: pl.DataFrame) -> Anchors | None:
    """Ranges that are called steps; where these are a warm-up by their names, what recurs after it."""
    steps = _called_steps(data, table) or _recurring_family(data, table)
    if steps is None or not all(re.search(_WARM_UP, text) for text in steps.label):
        return steps
    over = int(steps.end.max())
    later = table.filter(pl.col("start_ns") >= over)
    if not later.height or not _launched(data, later):
        return steps
    return _called_steps(data, later) or _recurring_family(data, later) or _shallowest(data, later)


def _shallowest(data: RankData, table: pl.DataFrame) -> Anchors | None:
    """The family nearest to the root that recurs and launches work; of several the one with most host time."""
    named = _folded(table, ~pl.col("text").str.contains(RECORD))
    families = [f for _, f in named.group_by("family", maintain_order=True) if f.height > 1 and _launched(data, f)]
    if not families:
        return None
    top = min(int(f["depth"].min()) for f in families)  # type: ignore[arg-type]
    return _numbered(_outermost(_by_start(_enclosing([f for f in families if f["depth"].min() == top]))))


def _repeats(data: RankData, table: pl.DataFrame) -> Anchors | None:
    """Steps of a trainer that marks only chunks: from one first forward pass to the next, the last to the end."""
    first = _matching(table, data.profile.labels.first_pass)
    if first is None or len(first := _outermost(first)) == 1:
        return None
    last = max(int(first.end.max()), data.host_span()[1] or 0)
    label = [f"{BY_CHUNKS} #{k}" for k in range(len(first))]
    return Anchors(label, first.start, np.append(first.start[1:], last))


def matching(data: RankData, pattern: str) -> Anchors | None:
    """Ranges whose text matches what the user gave."""
    return _matching(data.anchor_ranges(), pattern)


def by_chunks(steps: Anchors) -> bool:
    """Whether no range marks these steps: chunks that recur tell them."""
    return steps.label[0].startswith(BY_CHUNKS)


def is_chunk(data: RankData, label: str) -> bool:
    """Whether a range of this text is one of the trainer's overlapped chunks."""
    return re.search(data.profile.labels.chunk, label) is not None


def recurring(anchors: Anchors) -> Anchors | None:
    """Instances of the label that occurs most often, the first of several such; None where none occurs twice."""
    label, times = Counter(anchors.label).most_common(1)[0]
    if times == 1:
        return None
    rows = [i for i, text in enumerate(anchors.label) if text == label]
    return Anchors([f"{label} #{k}" for k in range(times)], anchors.start[rows], anchors.end[rows])


def _matching(table: pl.DataFrame, pattern: str) -> Anchors | None:
    wanted = [t for t in table["text"].unique().to_list() if re.search(pattern, t)]
    return _by_start(table.filter(pl.col("text").is_in(wanted))) if wanted else None


def _folded(table: pl.DataFrame, wanted: pl.Expr) -> pl.DataFrame:
    """Ranges whose text is wanted, with their `family`: the text without its numbers. Texts are judged once each."""
    texts = table.select(pl.col("text").unique()).filter(wanted)
    texts = texts.with_columns(pl.col("text").str.replace_all(r"\d+", "#").alias("family"))
    return table.join(texts, on="text", how="inner", maintain_order="left")


def _by_start(table: pl.DataFrame) -> Anchors:
    table = table.sort("start_ns", "end_ns", maintain_order=True)
    return Anchors(table["text"].to_list(), table["start_ns"].to_numpy(), table["end_ns"].to_numpy())


def _labelled(data: RankData, table: pl.DataFrame) -> Anchors | None:
    """The ranges that the trainer's labels call steps."""
    pattern = data.profile.labels.step
    named = table.filter(pl.col("text").str.contains(pattern)) if pattern else table.clear()
    return _numbered(_outermost(_by_start(named))) if named.height and _launched(data, named) else None


def _called_steps(data: RankData, table: pl.DataFrame) -> Anchors | None:
    """The family of ranges that is called a step; of several the one with most host time."""
    named = _folded(table, pl.col("text").str.contains(data.profile.labels.recognized.numbered))
    families = [family for _, family in named.group_by("family", maintain_order=True) if _launched(data, family)]
    if not families:
        return None
    return _numbered(_outermost(_by_start(_enclosing(families))))


def _enclosing(families: list[pl.DataFrame]) -> pl.DataFrame:
    """Of several families the one with most host time."""
    covered = [union(f["start_ns"].to_numpy(), f["end_ns"].to_numpy()).length() for f in families]
    depth = [f["depth"].min() for f in families]
    order = sorted(range(len(families)), key=lambda i: (-covered[i], depth[i], families[i]["family"][0]))
    return families[order[0]]


def _recurring_family(data: RankData, table: pl.DataFrame) -> Anchors | None:
    """Ranges that recur and are called a step, or are what a server runs per batch; numbered here, as they are not."""
    text, rules = pl.col("text"), data.profile.labels.recognized
    called = text.str.contains(rules.unnumbered) & ~text.str.contains(rules.never)
    for wanted in (called, text.str.contains(rules.serving)):
        named = _folded(table, wanted & ~text.str.contains(rules.part) & ~text.str.contains(RECORD))
        families = [f for _, f in named.group_by("family", maintain_order=True) if f.height > 1 and _launched(data, f)]
        if families:
            return _numbered(_outermost(_by_start(_enclosing(families))))
    return None


def _optimizers(data: RankData, table: pl.DataFrame) -> Anchors | None:
    """Steps that end with the optimizer's, if there is one optimizer; the first begins with the capture."""
    named = _folded(table, pl.col("text").str.contains(data.profile.labels.recognized.optimizer))
    if named.height < 2 or named["family"].n_unique() > 1 or not _launched(data, named):
        return None
    ends = _by_start(named)
    begin = data.host_span()[0]
    start = np.r_[ends.start[0] if begin is None else begin, ends.end[:-1]]
    return _numbered(Anchors(ends.label, start, ends.end))


def _numbered(anchors: Anchors) -> Anchors:
    """Labels that tell instances apart: a program that counts anew in every epoch has `batch 3 #0` and `batch 3 #1`."""
    if len(set(anchors.label)) == len(anchors.label):
        return anchors
    seen = Counter[str]()
    label = []
    for text in anchors.label:
        label.append(f"{text} #{seen[text]}")
        seen[text] += 1
    return replace(anchors, label=label)


def _counted(data: RankData, table: pl.DataFrame) -> Anchors | None:
    """The shallowest family with a running number; of several the one with most host time.

    A number runs if it grows by the same amount from each instance to the next: steps do, ids of ops do not.
    """
    text, part = pl.col("text"), data.profile.labels.recognized.part
    wanted = text.str.contains(r"\d") & ~text.str.contains(part) & ~text.str.contains(RECORD)
    numbered = _folded(table, wanted).with_columns(
        text.str.extract_all(r"\d+").list.last().cast(pl.Int64, strict=False).alias("number")
    )
    families = (
        numbered.drop_nulls("number")
        .sort("start_ns")
        .group_by("family", maintain_order=True)
        .agg(
            pl.len().alias("n"),
            pl.col("number").diff().drop_nulls().unique().alias("stride"),
            pl.col("depth").min().alias("depth"),
            (pl.col("end_ns") - pl.col("start_ns")).sum().alias("total"),
        )
        .filter((pl.col("n") >= 2) & (pl.col("stride").list.len() == 1) & (pl.col("stride").list.first() > 0))
        .sort(["depth", "total", "family"], descending=[False, True, False])
    )
    candidates = (numbered.filter(pl.col("family") == name) for name in families["family"])
    return next((_by_start(family) for family in candidates if _launched(data, family)), None)


def _launched(data: RankData, family: pl.DataFrame) -> bool:
    """Whether any of the ranges launched something, or the rank has no GPU work to launch."""
    if len(data.start) == 0:
        return True
    return bool(data.launches_in(family["start_ns"].to_numpy(), family["end_ns"].to_numpy()).any())


def _outermost(anchors: Anchors) -> Anchors:
    """Without instances that lie within another: `step 3` may stand on several threads, or around `step 0`."""
    reach = np.maximum.accumulate(anchors.end)
    rows = np.flatnonzero(np.r_[True, anchors.end[1:] > reach[:-1]])
    return Anchors([anchors.label[i] for i in rows], anchors.start[rows], anchors.end[rows])
