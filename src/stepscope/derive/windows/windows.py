"""Windows: chosen on the host's timeline, measured on the GPU's (semantics §4)."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.derive.rank.data import RankData, ranks_of
from stepscope.errors import BadInput, CannotAnswer
from stepscope.model.profile import Profile
from stepscope.model.ranks import some_ranks as some_ranks

I64 = npt.NDArray[np.int64]

#: DualPipeV's overlapped chunk.
CHUNK = r"forward chunk .* backward chunk"
#: torch.profiler's step.
TORCH_STEP = r"^ProfilerStep#\d+"
#: What torch.autograd.profiler.emit_nvtx calls an op: numbered, but no step.
TORCH_OP = r", (seq|op_id) = \d+"
WHOLE = "(whole capture)"


@dataclass(frozen=True)
class WindowSpec:
    """How the user chose the window: `--anchor`, `--index`, `--match`, `--period`, `--whole`, `--start` and `--end`."""

    anchor: str | None = None
    index: int | Literal["median", "all"] = "median"
    match: bool = False
    #: From the first op of the instance to the first op of the next: what happens between steps counts too.
    period: bool = False
    #: Everything that was captured, whatever ranges there are.
    whole: bool = False
    start: int | None = None
    end: int | None = None

    def __post_init__(self) -> None:
        if (self.start is None) != (self.end is None):
            raise BadInput("--start and --end go together", "give both, in nanoseconds of GPU time")
        if self.start is not None and self.end is not None and self.start >= self.end:
            raise BadInput(f"--start {self.start} is not before --end {self.end}", "give a window of positive length")
        by_range = self.anchor is not None or self.period or self.match
        if (self.start is not None) + self.whole + by_range > 1:
            raise BadInput("--start/--end, --whole and --anchor, --match or --period exclude each other", "give one")
        if self.anchor is not None:
            try:
                re.compile(self.anchor)
            except re.error as error:
                raise BadInput(f"--anchor {self.anchor!r}: {error}", "give a valid regular expression") from None


@dataclass(frozen=True)
class Window:
    """One instance on one rank. GPU times are null where nothing was launched in it."""

    rank: int
    pid: int | None
    label: str
    index: int
    count: int
    cpu_start_ns: int | None
    cpu_end_ns: int | None
    gpu_start_ns: int | None
    gpu_end_ns: int | None
    #: rows, within the rank's ops, of the ops that belong to it
    ops: npt.NDArray[np.int64] = field(repr=False, default_factory=lambda: np.empty(0, np.int64))
    clipped: bool = False  # a --start/--end window: ops are cut at its edges

    @property
    def gpu_ns(self) -> int:
        """Length of the GPU window."""
        return 0 if self.gpu_start_ns is None or self.gpu_end_ns is None else self.gpu_end_ns - self.gpu_start_ns

    def row(self) -> dict[str, Any]:
        """The window as JSON's `window` shows it."""
        data = asdict(self)
        del data["ops"], data["clipped"]
        return data


@dataclass
class Windows:
    """The windows of a question, one per rank (more with `--index all`), and what was noted on the way."""

    spans: list[Window]
    notes: list[str]
    #: rank -> instances of its anchor, where windows are instances
    anchors: dict[int, Anchors] = field(default_factory=dict)

    def rows(self) -> list[dict[str, Any]]:
        return [w.row() for w in self.spans]

    def of(self, rank: int) -> list[Window]:
        return self._of_rank.get(rank, [])

    @cached_property
    def _of_rank(self) -> dict[int, list[Window]]:
        found: dict[int, list[Window]] = {}
        for w in self.spans:
            found.setdefault(w.rank, []).append(w)
        return found


@dataclass(frozen=True)
class Anchors:
    """Instances of the anchor on one rank, by start."""

    label: list[str]
    start: I64
    end: I64


def windows(profile: Profile, spec: WindowSpec) -> Windows:
    """The windows that `spec` chooses, for every rank of the profile."""
    notes: list[str] = []
    spans: list[Window] = []
    chosen: list[tuple[RankData, Anchors | None, list[int]]] = []
    for data in ranks_of(profile):
        anchors = None if spec.start is not None or spec.whole else anchors_of(data, spec.anchor)
        chosen.append((data, anchors, _pick(anchors, spec, data.rank)))
    if spec.anchor is not None and all(a is None for _, a, _ in chosen):
        raise CannotAnswer(f"no range matches --anchor {spec.anchor!r}", "`stepscope nvtx` lists the ranges there are")
    if spec.match:
        chosen = _match(chosen, notes)
    whole = [d.rank for d, a, _ in chosen if a is None]
    if whole and spec.start is None and not spec.whole:
        if spec.anchor is None:
            notes.append(f"no step or chunk range on {some_ranks(whole)}: the window is the whole capture")
        else:
            notes.append(f"no range matches --anchor {spec.anchor!r} on {some_ranks(whole)}: left out")
    for data, anchors, picks in chosen:
        if spec.start is not None and spec.end is not None:
            spans.append(_by_gpu_time(data, spec.start, spec.end))
        elif anchors is None:
            if spec.anchor is None:
                spans.append(_whole(data))
        else:
            spans += [by_launch(data, anchors, k, spec.period) for k in picks]
    idle = sorted({w.rank for w in spans if w.gpu_start_ns is None})
    if idle:
        notes.append(f"{some_ranks(idle)}: no GPU work in the window (the capture may have ended early there)")
    unlinked = sum(d.unlinked for d, _, _ in chosen)
    if unlinked:
        notes.append(f"{unlinked} GPU ops have no launch record: placed by their GPU start")
    if spec.period and (last := [w.rank for w in spans if w.label != WHOLE and w.index + 1 == w.count]):
        notes.append(f"{some_ranks(last)}: nothing follows the last instance, so its window ends with its last op")
    return Windows(spans, notes, {d.rank: a for d, a, _ in chosen if a is not None})


def _pick(anchors: Anchors | None, spec: WindowSpec, rank: int) -> list[int]:
    if anchors is None:
        return []
    n = len(anchors.label)
    if spec.index == "all":
        return list(range(n))
    k = n // 2 if spec.index == "median" else int(spec.index)
    if not -n <= k < n:
        raise BadInput(f"--index {k}: rank {rank} has {n} instances", f"give 0 to {n - 1}, median or all")
    return [k % n]


def _match(
    chosen: list[tuple[RankData, Anchors | None, list[int]]], notes: list[str]
) -> list[tuple[RankData, Anchors | None, list[int]]]:
    """The same label on every rank: the common one nearest to the first rank's median."""
    have = [(d, a) for d, a, _ in chosen if a is not None]
    if not have:
        raise CannotAnswer("--match needs ranges to match", "capture with the trainer's NVTX labels")
    common = set.intersection(*(set(a.label) for _, a in have))
    first = have[0][1]
    k = min(
        (i for i, t in enumerate(first.label) if t in common),
        key=lambda i: (abs(i - len(first.label) // 2), i),
        default=None,
    )
    if k is None:
        raise CannotAnswer("no chunk has the same label on every rank", "leave out --match: each rank's own median")
    label = first.label[k]
    notes.append(f"--match: {label!r} on every rank")
    return [(d, a, [a.label.index(label)] if a else []) for d, a, _ in chosen]


def anchors_of(data: RankData, pattern: str | None = None) -> Anchors | None:
    """Instances of the given anchor, or of the first default that this rank has; None where it has none."""
    table = data.anchor_ranges()
    if table.height == 0:
        return None
    for rule in (pattern,) if pattern is not None else (CHUNK, TORCH_STEP):
        texts = [t for t in table["text"].unique().to_list() if re.search(rule, t)]
        found = table.filter(pl.col("text").is_in(texts))
        if found.height:
            return _instances(found)
    return None if pattern is not None else _numbered(table)


def _instances(found: pl.DataFrame) -> Anchors:
    found = found.sort("start_ns", "end_ns", maintain_order=True)
    return Anchors(found["text"].to_list(), found["start_ns"].to_numpy(), found["end_ns"].to_numpy())


def _numbered(table: pl.DataFrame) -> Anchors | None:
    """Ranges whose texts differ in a running number: the shallowest family; of several, the one with most host time.

    A number runs if it grows by the same amount from each instance to the next: steps do, ids of ops do not.
    """
    numbered = table.with_columns(
        pl.col("text").str.replace_all(r"\d+", "#").alias("family"),
        pl.col("text").str.extract_all(r"\d+").list.last().cast(pl.Int64, strict=False).alias("number"),
    ).filter(pl.col("number").is_not_null() & ~pl.col("text").str.contains(TORCH_OP))
    families = (
        numbered.sort("start_ns")
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
    if families.height == 0:
        return None
    return _instances(numbered.filter(pl.col("family") == families["family"][0]))


def by_launch(data: RankData, anchors: Anchors, k: int, period: bool) -> Window:
    """The window of the k-th instance: its own ops, or with `period` all up to the next one's first."""
    if period and k + 1 < len(anchors.label):
        return _by_period(data, anchors, k)
    lo, hi = int(anchors.start[k]), int(anchors.end[k])
    ops, gpu = data.launched_between(lo, hi)
    return Window(data.rank, data.pid, anchors.label[k], k, len(anchors.label), lo, hi, gpu[0], gpu[1], ops)


def _by_period(data: RankData, anchors: Anchors, k: int) -> Window:
    """From the first op launched in the instance to the first op launched in the next one."""
    lo, then, hi = int(anchors.start[k]), int(anchors.start[k + 1]), int(anchors.end[k + 1])
    ops, (first, last) = data.launched_between(lo, then)
    following = data.launched_between(then, hi)[1][0]
    if first is not None and following is not None and following > first:
        last = following
    return Window(data.rank, data.pid, anchors.label[k], k, len(anchors.label), lo, then, first, last, ops)


def _whole(data: RankData) -> Window:
    every = np.arange(len(data.start), dtype=np.int64)
    lo, hi = data.host_span()
    gpu = (int(data.start.min()), int(data.end.max())) if len(every) else (None, None)
    return Window(data.rank, data.pid, WHOLE, 0, 1, lo, hi, gpu[0], gpu[1], every)


def _by_gpu_time(data: RankData, start: int, end: int) -> Window:
    ops = np.flatnonzero((data.start < end) & (data.end > start))
    return Window(data.rank, data.pid, f"[{start}, {end})", 0, 1, None, None, start, end, ops, clipped=True)
