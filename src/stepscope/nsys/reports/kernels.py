"""Kernels under the name that was asked for, copies and memsets under nsys's names for them."""

from __future__ import annotations

import polars as pl

from stepscope.intervals.arrays import NONE
from stepscope.nsys.reports.spec import Args, Rows
from stepscope.nsys.reports.view import View, coded

#: By nsys's number (ENUM_CUDA_MEMCPY_OPER); an export spells them out, but not always.
COPY_LABELS = {
    0: "Unknown",
    1: "Host-to-Device",
    2: "Device-to-Host",
    3: "Host-to-Array",
    4: "Array-to-Host",
    5: "Array-to-Array",
    6: "Array-to-Device",
    7: "Device-to-Array",
    8: "Device-to-Device",
    9: "Host-to-Host",
    10: "Peer-to-Peer",
    11: "Unified Host-to-Device",
    12: "Unified Device-to-Host",
    13: "Unified Device-to-Device",
}
#: The same where the source has no numbers (Kineto).
COPY_WORDS = {
    "HtoD": "Host-to-Device",
    "DtoH": "Device-to-Host",
    "DtoD": "Device-to-Device",
    "PtoP": "Peer-to-Peer",
    "HtoH": "Host-to-Host",
}
#: ENUM_CUDA_MEM_KIND.
MEMORY_LABELS = {
    0: "Pageable",
    1: "Pinned",
    2: "Device",
    3: "Array",
    4: "Managed",
    5: "Device Static",
    6: "Managed Static",
    7: "Unknown",
}
MEMORY_WORDS = {"pageable": 0, "pinned": 1, "device": 2, "array": 3, "managed": 4, "static": 5, "unknown": 7}


def kernels(view: View, args: Args, detail: bool = False) -> Rows:
    """Kernels with `duration` and `kernel`, the code of the name asked for."""
    view.need("ops")
    variant = "short_name" if args.flag("base") else "mangled_name" if args.flag("mangled") else None
    ops = view.ops("kernel", detail=detail or variant is not None)
    name = pl.coalesce(variant, "name") if variant else pl.col("name")
    ops = ops.with_columns(name.alias("kernel"), (pl.col("end_ns") - pl.col("start_ns")).alias("duration"))
    texts = view.names
    if args.flag("nvtx-name"):
        ops, texts = _prefixed(view, ops)
    return Rows(ops, {"kernel": texts})


def _prefixed(view: View, ops: pl.DataFrame) -> tuple[pl.DataFrame, pl.Series]:
    """Kernel names behind the text of the innermost range of their launch, without its domain."""
    view.need("ranges", "calls")
    calls = view.attribution.of_ops(ops["call"].fill_null(NONE).to_numpy())
    names = view.attribution.ranges["name"]
    inside = pl.Series(calls != NONE)
    row = pl.Series(calls.clip(0))
    prefix = (
        names.gather(row).set(~inside, None) if len(names) else pl.repeat(None, ops.height, dtype=pl.UInt32, eager=True)
    )
    ops = ops.with_columns(prefix.alias("prefix"))
    pairs = ops.select("prefix", "kernel").unique()
    kernel = view.names.gather(pairs["kernel"])
    range_ = view.names.gather(pairs["prefix"].fill_null(0)).set(pairs["prefix"].is_null(), None)
    full = pl.select(pl.when(range_.is_not_null()).then(range_ + "/" + kernel).otherwise(kernel)).to_series()
    texts, codes = coded(full)
    pairs = pairs.with_columns(codes.alias("code"))
    ops = ops.join(pairs, on=["prefix", "kernel"], how="left", nulls_equal=True, maintain_order="left")
    return ops.drop("kernel", "prefix").rename({"code": "kernel"}), texts


def copies(view: View, detail: bool = False) -> pl.DataFrame:
    """Copies and memsets with `duration` and `operation`, nsys's name of what they do."""
    view.need("ops")
    ops = view.ops("memcpy", "memset", detail=detail)
    return ops.with_columns(
        (pl.col("end_ns") - pl.col("start_ns")).alias("duration"),
        operation_name(detail and ops["copy_code"].null_count() < ops.height).alias("operation"),
    )


def operation_name(numbered: bool = False) -> pl.Expr:
    words = pl.col("copy_kind").cast(pl.String).replace_strict(COPY_WORDS, default="Unknown", return_dtype=pl.String)
    if numbered:
        words = pl.coalesce(
            pl.col("copy_code").replace_strict(COPY_LABELS, default=None, return_dtype=pl.String), words
        )
    copy = pl.lit("[CUDA memcpy ") + words + pl.lit("]")
    return pl.when(pl.col("kind") == "memset").then(pl.lit("[CUDA memset]")).otherwise(copy)


def memory_label(side: str) -> pl.Expr:
    """`src` or `dst` memory of a copy, null for what is not a copy."""
    words = pl.col(f"{side}_kind").cast(pl.String)
    code = pl.coalesce(pl.col(f"{side}_code"), words.replace_strict(MEMORY_WORDS, default=None, return_dtype=pl.Int16))
    return code.replace_strict(MEMORY_LABELS, default=None, return_dtype=pl.String)


def all_ops(view: View, args: Args) -> Rows:
    """Kernels, copies and memsets with `category` and `operation`."""
    named = kernels(view, args)
    device = named.decoded().select(
        "duration", pl.lit("CUDA_KERNEL").alias("category"), pl.col("kernel").alias("operation")
    )
    moved = copies(view, detail=True).select("duration", pl.lit("MEMORY_OPER").alias("category"), "operation")
    return Rows(pl.concat([device, moved]))
