"""The profile's tables as the reports see them: cut to a part of the capture, with texts, shared between reports."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from stepscope.errors import CannotAnswer
from stepscope.intervals.arrays import I64
from stepscope.model.capturing import capture_by, capture_with
from stepscope.model.profile import Profile
from stepscope.nsys.reports.part import Part

if TYPE_CHECKING:
    from stepscope.nsys.reports.attribution import Attribution

#: What a capture must have been told to trace, by table of the model.
_CAPTURE = {
    "ops": f"no GPU activity; {capture_with()}",
    "calls": f"no CUDA API calls; {capture_with()}",
    "ranges": f"no NVTX ranges; {capture_with()}",
}
#: The same for records, by their kind or its first word.
_TRACES = {
    "osrt": ("OS runtime calls", capture_with("osrt")),
    "mpi": ("MPI calls", capture_by("--trace cuda,nvtx,mpi")),
    "openmp": ("OpenMP events", capture_by("--trace cuda,nvtx,openmp")),
    "openacc": ("OpenACC events", capture_by("--trace cuda,nvtx,openacc")),
    "cudnn": ("cuDNN calls", capture_by("--trace cuda,nvtx,cudnn")),
    "cublas": ("cuBLAS calls", capture_by("--trace cuda,nvtx,cublas")),
    "um_cpu_fault": (
        "page faults of the CPU on unified memory",
        capture_by("--nsys-args=--cuda-um-cpu-page-faults=true"),
    ),
    "um_gpu_fault": (
        "page faults of the GPU on unified memory",
        capture_by("--nsys-args=--cuda-um-gpu-page-faults=true"),
    ),
    "um": (
        "unified-memory events",
        capture_by("--nsys-args '--cuda-um-cpu-page-faults=true --cuda-um-gpu-page-faults=true'"),
    ),
}


class View:
    """One profile, or a part of it. Everything derived is kept: reports asked for together share it."""

    def __init__(self, profile: Profile, part: Part | None = None) -> None:
        self.profile = profile
        self.part = part or Part()
        self._ops: dict[tuple[bool, tuple[str, ...]], pl.DataFrame] = {}

    def need(self, *tables: str) -> None:
        """CannotAnswer where a table was not recorded at all: an empty report would look like a zero."""
        for table in tables:
            if not self.profile.has(table):
                message, hint = _CAPTURE[table].split("; ")
                raise CannotAnswer(f"the profile has {message}", hint)

    # -- names ---------------------------------------------------------------------------------------------------

    @property
    def names(self) -> pl.Series:
        """Texts by code. Grows as tables are read: ask for it after the table whose codes are to be looked up."""
        return self.profile.names

    def pid(self, rank: pl.Expr) -> pl.Expr:
        """The process id of each rank."""
        ranks = self.profile.ranks
        return rank.replace_strict(ranks["rank"], ranks["pid"], return_dtype=pl.Int64, default=None)

    # -- tables --------------------------------------------------------------------------------------------------

    def ops(self, *kinds: str, detail: bool = False) -> pl.DataFrame:
        """Operations on the GPU; without `kinds` kernels, copies and memsets, as nsys knows no whole graphs.

        `call` is the row, in `calls`, of the launching call; null where there is none in this part of the capture.
        """
        if (detail, ()) not in self._ops:
            self._ops[detail, ()] = self._read_ops(detail)
        wanted = kinds or ("kernel", "memcpy", "memset")
        if (detail, wanted) not in self._ops:
            ops = self._ops[detail, ()]
            have = ops["kind"].unique().to_list()
            self._ops[detail, wanted] = ops if set(have) <= set(wanted) else ops.filter(pl.col("kind").is_in(wanted))
        return self._ops[detail, wanted]

    def _read_ops(self, detail: bool) -> pl.DataFrame:
        ops = self.profile.table("ops", detail)
        calls = self.profile.calls
        ranks = ops["rank"].to_numpy()
        every = np.arange(int(ranks.max(initial=0)) + 1, dtype=ranks.dtype)
        first = np.searchsorted(calls["rank"].to_numpy(), every, side="left")
        ops = ops.with_columns((pl.col("launch").cast(pl.Int64) + pl.Series(first[ranks])).alias("call"))
        if self.part.whole:
            return ops
        inside = pl.Series(self.part.mask(calls, per_thread=True))
        at = ops["call"].fill_null(0)
        ops = ops.with_columns(pl.when(inside.gather(at)).then("call").alias("call")) if len(inside) else ops
        return ops.filter(self.part.mask(ops))

    @cached_property
    def calls(self) -> pl.DataFrame:
        """All CUDA calls, of whatever part of the capture: `ops` points into them."""
        calls = self.profile.calls
        return calls.with_columns(api=self._api(calls))

    def api_calls(self, detail: bool = False) -> pl.DataFrame:
        """CUDA calls of this part of the capture. `api` is their name as recorded."""
        calls = self.profile.table("calls", detail)
        calls = calls.with_columns(api=self._api(calls))
        return calls if self.part.whole else calls.filter(self.part.mask(calls, per_thread=True))

    @staticmethod
    def _api(calls: pl.DataFrame) -> pl.Series:
        return calls.select(pl.coalesce("raw_name", "name").alias("api"))["api"]

    @cached_property
    def api_names(self) -> pl.Series:
        """Names of calls without a version of four digits, by code: that, and no other suffix, is what nsys strips."""
        return self.names.str.replace(r"_v.{4}$", "")

    @cached_property
    def ranges(self) -> pl.DataFrame:
        """NVTX ranges of this part of the capture, with `label`, a code of `labels`: `domain:text`, or the text."""
        ranges = self.profile.ranges
        ranges = ranges.with_columns(pl.Series("position", np.arange(ranges.height, dtype=np.uint32)))
        ranges = ranges.filter(pl.col("kind") != "mark")
        if not self.part.whole:
            ranges = ranges.filter(self.part.mask(ranges, per_thread=True))
        ranges = ranges.with_columns(pl.when("domain_recorded").then("domain").alias("domain"))
        pairs = ranges.select("domain", "name").unique()
        prefix = self._text(pairs["domain"])
        text = self._text(pairs["name"])
        full = pl.select(pl.when(prefix.is_not_null()).then(prefix + ":" + text).otherwise(text)).to_series()
        self.labels, codes = coded(full)
        pairs = pairs.with_columns(label=codes)
        return ranges.join(pairs, on=["domain", "name"], how="left", nulls_equal=True, maintain_order="left")

    def range_numbers(self, ranges: pl.DataFrame) -> I64:
        """What nsys calls these ranges: the number of their record; counted afresh where the source has none."""
        numbers = self.profile.table("ranges", detail=True)["row"].gather(ranges["position"])
        if numbers.null_count():
            return np.arange(1, ranges.height + 1, dtype=np.int64)
        return numbers.to_numpy()

    #: Texts of the ranges' labels; filled when `ranges` is first read.
    labels = pl.Series("labels", [], dtype=pl.String)

    def _text(self, ids: pl.Series) -> pl.Series:
        if len(self.names) == 0:
            return pl.repeat(None, len(ids), dtype=pl.String, eager=True).alias(ids.name)
        return self.names.gather(ids.fill_null(0)).set(ids.is_null(), None)

    @cached_property
    def attribution(self) -> Attribution:
        """NVTX ranges of every launching call."""
        from stepscope.nsys.reports.attribution import attribute

        return attribute(self)

    def records(self, *kinds: str) -> pl.DataFrame:
        """Records of other traces; CannotAnswer where there are none of these kinds."""
        if self.profile.has("records"):
            records = self.profile.table("records", detail=True).filter(pl.col("kind").is_in(kinds))
            if records.height:
                return records if self.part.whole else records.filter(self.part.mask(records, per_thread=True))
        kind = kinds[0] if len(kinds) == 1 and kinds[0] in _TRACES else kinds[0].split("_")[0]
        what, how = _TRACES[kind]
        raise CannotAnswer(f"the profile has no {what}", how)


def coded(texts: pl.Series) -> tuple[pl.Series, pl.Series]:
    """(distinct texts, code of each)."""
    distinct = texts.unique(maintain_order=True)
    codes = pl.DataFrame({"text": distinct, "code": np.arange(len(distinct), dtype=np.uint32)})
    coded = pl.DataFrame({"text": texts}).join(codes, on="text", how="left", nulls_equal=True, maintain_order="left")
    return distinct, coded["code"]


def ints(frame: pl.DataFrame, *columns: str) -> list[I64]:
    return [frame[c].cast(pl.Int64).to_numpy() for c in columns]
