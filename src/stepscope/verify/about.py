"""Who and when: ranks, setup labels, steps, steady state."""

from __future__ import annotations

import math

import numpy as np
import polars as pl

from stepscope.derive.rank.data import RankData
from stepscope.derive.windows.steps import is_chunk, marks_of
from stepscope.model.labels import SETUP_PATTERN, parse_setup
from stepscope.model.profile import Profile
from stepscope.model.ranks import INFERRED, ranks_text
from stepscope.model.statement import several
from stepscope.model.threshold import Threshold
from stepscope.verify.check import FAILED, OK, SKIPPED, WARNING, Check

#: Chunks of a pipeline, overlapped or not.
_CHUNK = r"^(?:forward|backward) chunk "
_BEFORE = Threshold(
    1.0,
    "% of the GPU's work",
    "with more before the profiled steps, a capture is of something else, too",
    ("tests/capture/test_verify.py",),
)


def ranks(profile: Profile, expected: int | None, traced: list[int] | None) -> Check:
    """All of them, without a gap."""
    have = profile.rank_ids()
    labels = [s for s in (parse_setup(t) for t in profile.ranks["setup"] if t) if s]
    product = max((math.prod(size for _, size in s.axes.values()) for s in labels), default=None)
    world = expected or next((int(w) for w in profile.ranks["world_size"] if w), None)
    ranks_seen = f"{several(len(have), 'rank')} ({ranks_text(have)})"
    fix = "were all of them traced, and is every file given? ranks that write to one name overwrite each other"
    if traced is not None:
        missing = sorted(set(traced) - set(have))
        return Check(
            "ranks",
            FAILED if missing else OK,
            ranks_text(missing),
            ranks_seen,
            ranks_text(traced),
            fix if missing else "",
        )
    if world is not None:
        missing = sorted(set(range(world)) - set(have))
        return Check(
            "ranks",
            FAILED if missing else OK,
            ranks_text(missing),
            ranks_seen,
            several(world, "rank"),
            fix if missing else "",
        )
    gaps = sorted(set(range(max(have, default=-1) + 1)) - set(have))
    if gaps:
        return Check("ranks", FAILED, ranks_text(gaps), ranks_seen, f"0 to {max(have)}", fix)
    if product is not None and len(have) < product:
        # dp and ep may overlap, so that the product of the axes is more than the world
        return Check("ranks", WARNING, "", ranks_seen, f"up to {product}, by the mesh of the labels", fix)
    return Check("ranks", OK, "", ranks_seen, f"{product} by the labels" if product else "not known")


def setup(profile: Profile) -> Check:
    """On every rank; one process needs none, and where something else states the ranks, only the mesh is inferred."""
    name, wanted = "setup label", "on every rank"
    without = profile.ranks.filter(pl.col("setup").is_null())
    labelled = f"{profile.ranks.height - without.height} of {profile.ranks.height} ranks"
    if not without.height:
        return Check(name, OK, "", labelled, wanted)
    if profile.ranks.height == 1 and int(without["world_size"][0] or 1) == 1:
        return Check(name, OK, "", "one process: none needed", wanted)
    ranks = ranks_text(without["rank"].to_list())
    stated = without.filter(pl.col("rank_from") != INFERRED)
    fix = "capture with stepscope capture run, or call stepscope.annotate.setup before the first step"
    if stated.height == without.height:
        by = ", ".join(sorted(set(stated["rank_from"].to_list())))
        return Check(name, WARNING, ranks, f"{labelled}; ranks are known by {by}, the mesh is inferred", wanted, fix)
    return Check(name, FAILED, ranks, labelled, wanted, fix)


def steps(data: list[RankData], expected: int | None) -> Check:
    """Exactly the profiled ones."""
    marks = {d.rank: marks_of(d) for d in data}
    steps = {rank: m.steps or m.repeats for rank, m in marks.items()}
    counts = {rank: 0 if s is None else len(s) for rank, s in steps.items()}
    seen = sorted(set(counts.values()))
    by = "steps, by chunks that recur" if any(m.repeats for m in marks.values()) else "step ranges"
    steps_seen = f"{' to '.join(map(str, dict.fromkeys([seen[0], seen[-1]])))} {by}" if seen else "none"
    if not any(seen):
        why = "no step ranges in the capture" + (f"; {expected} were profiled" if expected else "")
        return Check("steps", SKIPPED, "", why, f"{expected or 'the same number'} on every rank")
    want = expected if expected is not None else max(seen, key=lambda n: sum(c == n for c in counts.values()))
    wrong = [r for r, n in counts.items() if n != want]
    fix = "start and stop the profiler at the same steps on every rank: stepscope.annotate.step does" if wrong else ""
    return Check("steps", FAILED if wrong else OK, ranks_text(wrong), steps_seen, f"{want} on every rank", fix)


def nothing_before(data: list[RankData], profile: Profile) -> Check:
    """No warm-up: GPU work before the setup label, which stands around the profiled steps."""
    name = "nothing before the steps"
    setup = profile.names_with(SETUP_PATTERN)
    early: dict[int, float] = {}
    labelled = False
    for d in data:
        mine = d.ranges.filter(pl.Series(setup[d.ranges["name"].to_numpy()])) if d.ranges.height else d.ranges
        if mine.height == 0 or len(d.start) == 0:
            continue
        labelled = True
        share = float((d.launched_at < int(mine["start_ns"].min())).mean())  # type: ignore[arg-type]
        if share > _BEFORE.share:
            early[d.rank] = share
    if not labelled:
        return Check(name, SKIPPED, "", "no rank has both a setup label and GPU work", "")
    if not early:
        return Check(name, OK, "", "GPU work begins with the setup label", "no warm-up")
    early_text = f"{max(early.values()):.0%} of the GPU work comes before the setup label"
    return Check(
        name, FAILED, ranks_text(early), early_text, "no warm-up", "start the profiler at the first profiled step"
    )


def steady(data: list[RankData]) -> Check:
    """The median chunk lies between others like it: in warm-up and drain, overlapped chunks stand alone."""
    alone, counts = [], []
    for d in data:
        chunks = _texts(d, _CHUNK).sort("start_ns")
        both = [is_chunk(d, text) for text in chunks["text"]]
        places = [i for i, b in enumerate(both) if b]
        if not places:
            continue
        counts.append(len(places))
        at = places[len(places) // 2]
        if not (0 < at < len(both) - 1 and both[at - 1] and both[at + 1]):
            alone.append(d.rank)
    if not counts:
        return _steady_steps(data)
    chunks_seen = (
        f"{min(counts)} to {max(counts)} overlapped chunks" if min(counts) < max(counts) else f"{counts[0]} chunks"
    )
    if alone:
        chunks_seen += "; the median one has no neighbour like it"
    several = max((len(marks_of(d).steps or marks_of(d).repeats or ["the capture"]) for d in data), default=1)
    # With an even number of steps, the median chunk is the first of one of them.
    fix = (
        "more micro-batches (stepscope capture plan says how many)" if several % 2 else "profile an odd number of steps"
    )
    fix = fix if alone else ""
    return Check(
        "steady state", FAILED if alone else OK, ranks_text(alone), chunks_seen, "the median chunk among its like", fix
    )


def _steady_steps(data: list[RankData]) -> Check:
    """Without chunks: no step far longer than the median."""
    marked = {d.rank: steps for d in data if (steps := marks_of(d).steps) is not None}
    lengths = {rank: steps.end - steps.start for rank, steps in marked.items() if len(steps) >= 3}
    slow = [rank for rank, length in lengths.items() if length[0] > 1.5 * float(np.median(length))]
    if not lengths:
        return Check("steady state", SKIPPED, "", "no chunks, and fewer than three steps", "")
    fix = "warm up for longer (--warmup)" if slow else ""
    pace = "the first step is over 1.5 times the median" if slow else "steps are alike"
    return Check("steady state", WARNING if slow else OK, ranks_text(slow), pace, "steps of like length", fix)


def _texts(d: RankData, pattern: str) -> pl.DataFrame:
    table = d.anchor_ranges()
    return table.filter(pl.col("text").str.contains(pattern))
