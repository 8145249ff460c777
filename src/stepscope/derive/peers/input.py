"""When a host was getting input: by ranges that name it, and by copies of input where none do.

A name proves nothing: a range that launches compute is not getting input (data that the GPU generates, a step that is
called a batch), nor is one that only copies. And a copy whose input no range names has been fetched all the same: the
host was away before it, or near it.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from stepscope.derive.rank.data import COMPUTE, RankData
from stepscope.derive.windows.steps import marks_of
from stepscope.intervals import Spans, union
from stepscope.intervals.arrays import I64, NONE, Mask
from stepscope.model.range_names import INPUT_RANGE, TORCH_OP
from stepscope.model.threshold import Threshold

FETCH = Threshold(
    1000.0,
    "µs",
    "a loader that keeps ahead hands over a batch in 70 to 200; a host that is away for longer than this is at work",
    ("h200/hf/hf1_data.sqlite", "public/aiprof_baseline.sqlite"),
)
INPUT = Threshold(
    1024,
    "bytes",
    "a batch is larger; a number or a few sizes that are copied to the device are not",
    ("public/tl_xdit_flux_capture.json.gz", "h200/hf/hf1_data.sqlite"),
)
LIKE = Threshold(
    1.5,
    "times as long or as short",
    "batches of one loader take 50.0 and 50.3 ms; other long absences of the host are not of that length",
    ("h200/hf/hf1_data.sqlite",),
)
QUIET = Threshold(
    2,
    "CUDA calls",
    "a host that fetches makes none but the launch that ends the gap, and the return of the call before it",
    ("h200/hf/hf1_data.sqlite",),
)
ABSENT = Threshold(
    5000.0,
    "µs",
    "away for so long near a copy of input, a host that makes no call fetches; between steps of transformers' Trainer, "
    "with nothing to fetch, it is away for up to 4.1 ms",
    ("h200/hf/hf1_healthy.sqlite", "h200/hf/hf4_healthy.sqlite"),
)
LEAD = Threshold(
    200.0,
    "µs",
    "a range of input that copies right from its beginning only copies; fetching a batch that is there takes 70 to 200",
    ("tests/data/moe_reference", "tests/derive/peers/test_lateness.py"),
)
SOON = Threshold(
    16,
    "launches",
    "transformers' Trainer copies and gathers a count of tokens between fetching a batch and copying it: four ops",
    ("tests/derive/peers/test_lateness.py",),
)


#: Ranges of PyTorch's own loader, as its profiler records them.
LOADER = r"enumerate\(DataLoader\)"


def data_ranges(data: RankData) -> Spans:
    """When the host was getting input, by ranges that name it, and neither compute nor only copy."""
    return data.once(_data_ranges)


def _data_ranges(data: RankData) -> Spans:
    if data.ranges.height == 0:
        return Spans.empty()
    rows, named = data.own_ranges, data.profile.names_with
    # A torch op's range lists its inputs: that is not getting input.
    names = data.ranges["name"].to_numpy()[rows]
    input_ranges = data.ranges[rows[named(INPUT_RANGE)[names] & ~named(TORCH_OP)[names]]]
    if input_ranges.height == 0:
        return Spans.empty()
    # Workers fetch ahead in threads of their own: the GPU waits only for those that launch its work.
    launched = data.launch != NONE
    launching = data.calls["tid"].gather(data.launch[launched]).unique()
    input_ranges = input_ranges.filter(pl.col("tid").is_in(launching.implode()))
    start, end = (input_ranges[c].to_numpy() for c in ("start_ns", "end_ns"))
    computing = np.sort(data.launched_at[launched & (data.role == COMPUTE)])
    computes = np.searchsorted(computing, end) > np.searchsorted(computing, start)
    copied = np.append(np.sort(data.launched_at[launched & _copies(data)]), np.iinfo(np.int64).max)
    first_copy = copied[np.searchsorted(copied, start)]
    lead = np.minimum(first_copy, end) - start
    only_copies = (first_copy < end) & (lead < np.minimum((end - start) // 2, LEAD.ns))
    fetches = ~computes & ~only_copies
    return union(start[fetches], end[fetches])


def fetching_gaps(data: RankData, ranges: Spans, start: I64, until: I64, after: I64, *, near: bool) -> Spans:
    """Of gaps in which the host kept the GPU waiting, each ended by the op `after`: those in which it fetched input
    that no range (`data_ranges`) names.

    They end with the copy of it. Of long ones, the copy may be `near`: ranks exchange a count of tokens before they
    copy the batch, and a loader that is one batch ahead (accelerate's) fetches behind the copy of the last one.
    Others are like them: a step that accumulates gradients fetches several batches.
    """
    if len(ranges) and _by_loader(data):
        return Spans.empty()
    copy = _copies(data) & ~_named(data, ranges)
    fetched = copy[after]
    # In a launch that takes long the host is not away: its driver loads code or takes memory.
    launching = np.clip(data.calls["start_ns"].to_numpy()[data.launch[after]], start, until)
    # Without steps, much near the copies of a model's weights would look like fetching.
    if near and copy.any() and marks_of(data).steps is not None:
        fetched |= _near(data, copy, after) & _quiet(data, start, until) & (launching - start >= ABSENT.ns)
    fetched |= _like(data, start, until, fetched) & (launching - start >= FETCH.ns)
    return union(start[fetched], until[fetched])


def _near(data: RankData, copy: Mask, op: I64) -> Mask:
    """Whether one of the ops launched shortly before or after is a copy."""
    order = np.flatnonzero(data.launch != NONE)
    order = order[np.argsort(data.launch[order], kind="stable")]
    copied, place = np.flatnonzero(copy[order]), np.searchsorted(data.launch[order], data.launch[op])
    next_copy = np.searchsorted(copied, place)
    ahead = copied[np.minimum(next_copy, len(copied) - 1)] - place
    behind = place - copied[np.maximum(next_copy - 1, 0)] - 1
    near: Mask = ((ahead >= 0) & (ahead <= SOON.value)) | ((behind >= 0) & (behind <= SOON.value))
    return near


def _copies(data: RankData) -> Mask:
    """Ops that copy input to the device; a number or a few sizes are not input."""
    return data.once(_input_copies)


def _input_copies(data: RankData) -> Mask:
    copies: Mask = (data.ops["copy_kind"] == "HtoD").to_numpy()
    return copies & (data.ops["bytes"].fill_null(INPUT.value).to_numpy() >= INPUT.value)


def _named(data: RankData, ranges: Spans) -> Mask:
    """Ops that are launched in a range of input or shortly behind it: what they copy has been named."""
    if len(ranges) == 0:
        return np.zeros(len(data.start), dtype=bool)
    last = np.searchsorted(ranges.start, data.launched_at, side="right") - 1
    named: Mask = (last >= 0) & (data.launched_at < ranges.end[np.maximum(last, 0)] + ABSENT.ns)
    return named


def _by_loader(data: RankData) -> bool:
    """Whether the loader itself says when it fetches, as PyTorch's does: then nothing else is input."""
    names = data.ranges["name"].to_numpy()[data.own_ranges]
    return bool(data.profile.names_with(LOADER)[names].any())


def _like(data: RankData, start: I64, until: I64, copies: Mask) -> Mask:
    """Gaps that are like those before a copy of input: about as long, and the host makes no call in them.

    A step that accumulates gradients fetches several batches, and may copy them later than it fetches them.
    """
    length = until - start
    long = copies & (length >= FETCH.ns)
    if not long.any():
        return np.zeros(len(start), dtype=bool)
    usual = float(np.median(length[long]))
    alike: Mask = (length >= usual / LIKE.value) & (length <= usual * LIKE.value) & (length >= FETCH.ns)
    return alike & _quiet(data, start, until)


def _quiet(data: RankData, start: I64, until: I64) -> Mask:
    """Gaps in which the host makes no call but the launch that ends them."""
    calls = data.calls["start_ns"].to_numpy()
    quiet: Mask = np.searchsorted(calls, until) - np.searchsorted(calls, start) <= QUIET.value
    return quiet
