"""A page that `ncu --csv` printed: raw (a row per kernel, a column per metric) or details (a row per metric).

What ncu says while it measures (`==PROF== …`) and what the program prints may stand before the header, and lines of
ncu's after it. The raw page has a row of units below its header.
"""

from __future__ import annotations

import io
import re
from pathlib import Path

import polars as pl

from stepscope.errors import BadInput
from stepscope.model.note import Note, noted
from stepscope.sources.ncu import HEADER
from stepscope.sources.ncu.labels import METRIC_OF
from stepscope.sources.ncu.measured import ADVICE, KERNELS, METRICS, Measured
from stepscope.sources.ncu.units import base_unit, decimal_mark, needs_unit, numbers

_AGAIN = "print it again: `ncu --import REPORT --page raw --csv`"
#: Columns of the raw page that are not metrics.
_ABOUT = (
    *("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size", "Grid Size"),
    *("Device", "CC", "API Call ID", "Section Name", "Invocations"),
)
_NVTX = re.compile(r"Domain:(Push/Pop|Start/Stop)_Range:")
_LINES = re.compile(rb"^==[A-Z]+== .*\n?", re.MULTILINE)
_DETAILS = ("Metric Name", "Metric Unit", "Metric Value")
_EMPTY = ("", "n/a", "no data", "nan", "-nan", "inf", "-inf")
#: A range of an NVTX cell: its name, then six fields that say what its payload, colour and message are.
_RANGE = re.compile(r"([^:\n]+?)(?::[^:\s]*){6}(?=\s|$)")


def read_page(path: Path) -> Measured:
    """What the page at `path` holds."""
    page = _table(path)
    if page.height == 0:
        raise BadInput(f"{path}: a page of ncu without a kernel", "was anything profiled? ncu says so at its end")
    details = all(column in page.columns for column in _DETAILS)
    return (_details if details else _raw)(path, page)


def _table(path: Path) -> pl.DataFrame:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror})", "check the path and the disk") from None
    header = HEADER.search(data)
    if header is None:
        raise BadInput(f"{path}: ncu printed no table", f"it may have measured nothing; {_AGAIN}")
    body = _LINES.sub(b"", data[header.start() :])
    try:
        page = pl.read_csv(io.BytesIO(body), infer_schema=False, encoding="utf8-lossy", truncate_ragged_lines=True)
    except pl.exceptions.PolarsError as error:
        what = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise BadInput(f"{path}: not the CSV that ncu prints ({what:.80})", _AGAIN) from None
    if missing := [column for column in ("ID", "Kernel Name") if column not in page.columns]:
        raise BadInput(f"{path}: ncu's table has no column {missing[0]!r}", _AGAIN)
    return page


# -- the raw page ------------------------------------------------------------------------------------------------------


def _raw(path: Path, page: pl.DataFrame) -> Measured:
    first = page["ID"][0]
    no_units = first is not None and first != ""
    units = {} if no_units else dict(zip(page.columns, page.row(0), strict=True))
    rows = page if no_units else page[1:]
    rows = rows.filter(pl.col("ID").str.contains(r"^\d")).with_row_index("kernel")
    if rows.height == 0:
        raise BadInput(f"{path}: a page of ncu without a kernel", "was anything profiled? ncu says so at its end")
    metrics = [c for c in page.columns if c not in _ABOUT and not _NVTX.search(c)]
    long = rows.select("kernel", *metrics).unpivot(metrics, index="kernel", variable_name="name", value_name="shown")
    unit = pl.DataFrame(
        {"name": metrics, "shown_unit": [units.get(m) or None for m in metrics]},
        schema={"name": pl.String, "shown_unit": pl.String},
    )
    long = long.join(unit, on="name", how="left", maintain_order="left").sort("kernel", maintain_order=True)
    values, notes = _valued(path, long)
    return Measured(_kernels(rows), values, pl.DataFrame(schema=ADVICE), "raw", notes)


# -- the details page --------------------------------------------------------------------------------------------------


def _details(path: Path, page: pl.DataFrame) -> Measured:
    who = [c for c in ("Process ID", "ID") if c in page.columns]
    page = page.filter(pl.col("ID").str.contains(r"^\d"))
    if page.height == 0:
        raise BadInput(f"{path}: a page of ncu without a kernel", "was anything profiled? ncu says so at its end")
    order = page.select(who).unique(maintain_order=True).with_row_index("kernel")
    page = page.join(order, on=who, how="left", maintain_order="left")
    kernels = page.unique("kernel", keep="first", maintain_order=True)
    section = pl.col("Section Name") if "Section Name" in page.columns else pl.lit(None, pl.String)
    metrics = pl.DataFrame(
        [{"section": s, "label": label, "metric": m} for (s, label), m in METRIC_OF.items()],
        schema={"section": pl.String, "label": pl.String, "metric": pl.String},
    )
    long = (
        page.filter(pl.col("Metric Name").fill_null("") != "")
        .select("kernel", section.alias("section"), label="Metric Name", shown_unit="Metric Unit", shown="Metric Value")
        .join(metrics, on=["section", "label"], how="left", maintain_order="left")
        .with_columns(name=pl.coalesce("metric", "label"))
    )
    values, notes = _valued(path, long)
    return Measured(_kernels(kernels), values, _advice(page), "details", notes)


def _advice(page: pl.DataFrame) -> pl.DataFrame:
    if not {"Rule Name", "Rule Description"} <= set(page.columns):
        return pl.DataFrame(schema=ADVICE)
    rules = page.filter((pl.col("Rule Name").fill_null("") != "") & pl.col("Rule Description").is_not_null())

    def column(name: str) -> pl.Expr:
        text = pl.col(name) if name in page.columns else pl.lit(None, pl.String)
        return pl.when(text != "").then(text)

    speedup = column("Estimated Speedup")
    mark = decimal_mark(rules.select(speedup).to_series()) or "."
    return rules.select(
        pl.col("kernel").cast(pl.Int64),
        rule="Rule Name",
        section=column("Section Name"),
        kind=column("Rule Type"),
        text="Rule Description",
        speedup_pct=numbers(speedup, mark),
        speedup_of=column("Estimated Speedup Type"),
    )


# -- what both have ----------------------------------------------------------------------------------------------------


def _valued(path: Path, long: pl.DataFrame) -> tuple[pl.DataFrame, list[Note]]:
    """Metrics with numbers in units without prefixes. What has no unit, and should, is unknown."""
    long = long.with_columns(pl.col("shown", "shown_unit").str.strip_chars())
    long = long.filter(~pl.col("shown").str.to_lowercase().is_in(_EMPTY).fill_null(True))
    mark = decimal_mark(long["shown"])
    if mark is None:
        raise BadInput(
            f"{path}: numbers with a decimal point and with a decimal comma", f"LC_ALL=C.UTF-8, and {_AGAIN}"
        )
    shown = long["shown_unit"].drop_nulls().unique().to_list()
    bases = {unit: base_unit(unit) for unit in shown}
    table = pl.DataFrame(
        [{"shown_unit": unit, "unit": base or None, "factor": factor} for unit, (base, factor) in bases.items()],
        schema={"shown_unit": pl.String, "unit": pl.String, "factor": pl.Float64},
    )
    long = long.join(table, on="shown_unit", how="left", maintain_order="left")
    lost = (pl.col("unit").is_null() & needs_unit(pl.col("name"))).fill_null(False)
    without = long.filter(lost)
    notes = []
    if without.height:
        count = without["name"].n_unique()
        example = without["name"][0]
        notes.append(noted("units-missing", number=count, example=example, again=_AGAIN))
    value = numbers(pl.col("shown"), mark)
    long = long.filter(~lost).with_columns(number=value)
    return (
        long.select(
            pl.col("kernel").cast(pl.Int64),
            "name",
            "unit",
            value=pl.col("number") * pl.col("factor").fill_null(1.0),
            text=pl.when(pl.col("number").is_null()).then(pl.col("shown")),
        ).select(list(METRICS)),
        notes,
    )


def _kernels(rows: pl.DataFrame) -> pl.DataFrame:
    def number(column: str) -> pl.Expr:
        text = pl.col(column) if column in rows.columns else pl.lit(None, pl.String)
        return text.str.replace_all(r"\D", "").cast(pl.Int64, strict=False)

    def place(column: str, at: int) -> pl.Expr:
        text = pl.col(column) if column in rows.columns else pl.lit(None, pl.String)
        return text.str.extract(r"\(\s*(\d+),\s*(\d+),\s*(\d+)\s*\)", at + 1).cast(pl.Int32, strict=False)

    def text(column: str) -> pl.Expr:
        return pl.col(column) if column in rows.columns else pl.lit(None, pl.String)

    nvtx = [c for c in rows.columns if _NVTX.search(c)]
    paths = [_path_of(list(cells)) for cells in rows.select(nvtx).iter_rows()] if nvtx else [None] * rows.height
    frame = rows.select(
        pl.col("kernel").cast(pl.Int64),
        name="Kernel Name",
        mangled_name=pl.lit(None, pl.String),
        pid=number("Process ID"),
        host=text("Host Name"),
        device=number("Device"),
        context=number("Context"),
        stream=number("Stream"),
        **{f"grid_{axis}": place("Grid Size", at) for at, axis in enumerate("xyz")},
        **{f"block_{axis}": place("Block Size", at) for at, axis in enumerate("xyz")},
        cc=text("CC"),
    )
    return frame.with_columns(nvtx=pl.Series(paths, dtype=pl.String)).select(
        pl.col(name).cast(dtype, strict=False) for name, dtype in KERNELS.items()
    )


def _path_of(cells: list[str | None]) -> str | None:
    """The ranges that a kernel's NVTX cells name, outermost first."""
    names = [match.group(1).strip() for cell in cells if cell for match in _RANGE.finditer(cell)]
    return "/".join(names) or None
