"""A part of the capture: `--filter-time`, `--filter-nvtx`, and the arguments start, end, nvtx, process, thread."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from stepscope.errors import BadInput, CannotAnswer
from stepscope.model.capturing import capture_with
from stepscope.model.profile import Profile
from stepscope.model.times import nanoseconds

_LAST = 0x7FFF_FFFF_FFFF_FFFF


@dataclass(frozen=True)
class Part:
    """Records that overlap [start, end), of one rank and thread where given. The default is everything."""

    start: int | None = None
    end: int | None = None
    rank: int | None = None
    tid: int | None = None

    @property
    def whole(self) -> bool:
        return self == Part()

    def mask(self, frame: pl.DataFrame, per_thread: bool = False) -> pl.Series:
        """Which rows belong to it. A record that ends exactly at the start belongs to it, as in nsys."""
        low = 0 if self.start is None else self.start
        high = _LAST if self.end is None else self.end
        start, end = pl.col("start_ns"), pl.col("end_ns")
        inside = ((start >= low) & (start < high)) | ((end >= low) & (end < high)) | ((start < low) & (end >= high))
        if self.rank is not None:
            inside &= pl.col("rank") == self.rank
        if self.tid is not None and per_thread:
            inside &= pl.col("tid") == self.tid
        return frame.select(inside.alias("inside"))["inside"]


def part_of(profile: Profile, args: dict[str, object]) -> Part:
    """The part that the arguments name. Explicit times override those of the range."""
    start, end, nvtx = (args.get(k) for k in ("start", "end", "nvtx"))
    process, thread = args.get("process"), args.get("thread")
    if nvtx is not None:
        if process is not None or thread is not None:
            raise BadInput("nvtx= cannot be combined with process= or thread=", "give one or the other")
        chosen = nvtx_range(profile, str(nvtx))
        start = chosen.start if start is None else start
        end = chosen.end if end is None else end
        part = Part(start, end, chosen.rank, tid=chosen.tid)  # type: ignore[arg-type]
    else:
        rank = None if process is None else _rank_of(profile, int(str(process)))
        part = Part(start, end, rank, tid=thread)  # type: ignore[arg-type]
    if part.start is not None and part.end is not None and part.start > part.end:
        raise BadInput(f"the part starts at {part.start}, after its end {part.end}", "swap them")
    return part


def _rank_of(profile: Profile, pid: int) -> int:
    of_process = profile.ranks.filter(pl.col("pid") == pid)
    return int(of_process["rank"][0]) if of_process.height else -1


def nvtx_range(profile: Profile, text: str) -> Part:
    """The range `name[@domain][/index]`: its times, process, and thread (all threads where it is the main one's)."""
    name, slash, index = text.rpartition("/")
    wanted, at = (name, int(index)) if slash and index.isdigit() else (text, 0)
    if not profile.has("ranges"):
        raise CannotAnswer("the profile has no NVTX ranges", capture_with())
    ranges = profile.ranges.filter(pl.col("kind") != "mark")
    names = profile.names
    label = names.gather(ranges["name"])
    domain = ranges["domain"]
    if domain.null_count() < len(domain):
        suffix = ("@" + names.gather(domain.fill_null(0))).set(domain.is_null(), "")
        label = label + suffix
    instances = ranges.filter(label == wanted).sort("start_ns", maintain_order=True)
    if at >= instances.height:
        which = f" with index {at}" if instances.height else ""
        raise BadInput(f"no NVTX range {wanted!r}{which}", "write name[@domain][/index]; the domain is not optional")
    row = instances.row(at, named=True)
    pid = profile.ranks.filter(pl.col("rank") == row["rank"])["pid"][0]
    # nsys takes a range of the main thread for one of the whole process.
    return Part(row["start_ns"], row["end_ns"], row["rank"], tid=None if row["tid"] == pid else row["tid"])


def parse_span(text: str) -> tuple[int | None, int | None]:
    """`--filter-time`: `[start]/[end]`, each a sum of numbers with units, as in `1s2ms/3.5s`."""
    start, slash, end = text.partition("/")
    if not slash or not (start or end):
        raise BadInput(f"--filter-time {text!r}: not a span", "write START/END, either may be left out, as in 1s/1.5s")
    low, high = (nanoseconds(side, "--filter-time") if side else None for side in (start, end))
    if low is not None and high is not None and low > high:
        raise BadInput(f"--filter-time {text!r}: ends before it starts", "swap the times")
    return low, high
