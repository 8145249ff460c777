"""A report (`.ncu-rep`) through NVIDIA's own package, in a process of its own (`extract`)."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from stepscope.errors import BadInput, extra
from stepscope.files import temporary
from stepscope.files.whole import working_folder
from stepscope.model.note import noted
from stepscope.sources.ncu import extract
from stepscope.sources.ncu.measured import ADVICE, KERNELS, METRICS, Measured
from stepscope.sources.ncu.units import base_unit

_PACKAGE = "ncu_report"
#: A report of 40 kernels takes a second.
_PATIENCE_S = 1800
#: The package's numbers of what a rule says and of whom it speaks, as ncu's CSV has them.
_KIND = {1: "INF", 2: "OPT", 3: "WRN", 4: "ERR"}
_OF = {1: "local", 2: "global"}
#: Links within a rule's text: `@section:Id:Title@`, `@url:Title:address@`, `@source:Title:…@`.
_SECTION = re.compile(r"@section:[^:@]*:([^@]*)@")
_URL = re.compile(r"@url:([^:@]*):([^@]*)@")
_LAUNCH = {
    **{f"{what}_{axis}": f"launch__{what}_dim_{axis}" for what in ("grid", "block") for axis in "xyz"},
    "device": "launch__device_id",
    "context": "launch__context_id",
    "stream": "launch__stream_id",
}
_CC = ("device__attribute_compute_capability_major", "device__attribute_compute_capability_minor")


def read_report(path: Path) -> Measured:
    """What the report at `path` holds."""
    if importlib.util.find_spec(_PACKAGE) is None:
        raise BadInput(
            f"{path}: to read Nsight Compute reports takes the package ncu-report",
            f"{extra('ncu')}, or give what `ncu --import REPORT --page raw --csv` prints",
        )
    with working_folder(temporary.place(), "stepscope-ncu-") as folder:
        out = folder / "report.jsonl"
        command = [sys.executable, "-P", extract.__file__, str(path.absolute()), str(out)]
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=_PATIENCE_S
            )
        except subprocess.TimeoutExpired:
            raise _unreadable(path, f"does not come to an end within {_PATIENCE_S / 60:.0f} minutes") from None
        if done.returncode != 0:
            raise _unreadable(path, "fails on it")
        try:
            with out.open("rb") as file:
                records = [msgspec.json.decode(line) for line in file]
        except msgspec.DecodeError:  # texts of a damaged report are not of any alphabet
            raise _unreadable(path, "finds texts in it that are none") from None
    whole = [kernel for kernel in records[1:-1] if kernel["name"] and kernel["ids"]]
    if not whole:
        raise _unreadable(path, "finds no kernel in it")
    measured = _measured(whole, [(name, unit) for name, unit in records[-1]["names"]])
    if lost := len(records) - 2 - len(whole):
        measured.notes.append(noted("file-cut-short", number=lost, records=len(records) - 2))
    return measured


def _unreadable(path: Path, how: str) -> BadInput:
    return BadInput(
        f"{path}: ncu-report {_version()} {how}: the report is damaged, empty, or of a newer Nsight Compute",
        "pip install -U ncu-report, or give what `ncu --import REPORT --page raw --csv` prints",
    )


def _version() -> str:
    try:
        return version("ncu-report")
    except PackageNotFoundError:
        return "of this machine"


def _measured(kernels: list[dict[str, Any]], names: list[tuple[str, str]]) -> Measured:
    bases = [base_unit(unit) for _, unit in names]
    catalog = pl.DataFrame(
        {
            "id": range(len(names)),
            "name": [name for name, _ in names],
            "unit": [unit or None for unit, _ in bases],
            "factor": [factor for _, factor in bases],
        },
        schema={"id": pl.Int64, "name": pl.String, "unit": pl.String, "factor": pl.Float64},
    )
    metrics = [_metrics(at, kernel) for at, kernel in enumerate(kernels)]
    long = pl.concat(metrics).join(catalog, on="id", how="left", maintain_order="left")
    long = long.with_columns(value=pl.col("value") * pl.col("factor")).select(list(METRICS))
    return Measured(_kernels(kernels, long), long, _advice(kernels), "report")


def _metrics(at: int, kernel: dict[str, Any]) -> pl.DataFrame:
    texts = [value if isinstance(value, str) else None for value in kernel["values"]]
    values = [None if isinstance(value, str) else float(value) for value in kernel["values"]]
    frame = pl.DataFrame(
        {"id": kernel["ids"], "value": values, "text": texts},
        schema={"id": pl.Int64, "value": pl.Float64, "text": pl.String},
    )
    return frame.with_columns(kernel=pl.lit(at, pl.Int64))


def _kernels(kernels: list[dict[str, Any]], metrics: pl.DataFrame) -> pl.DataFrame:
    wanted = [*_LAUNCH.values(), *_CC]
    launches_of: dict[tuple[int, str], int] = {
        (kernel, name): int(value)
        for kernel, name, value in metrics.filter(pl.col("name").is_in(wanted) & pl.col("value").is_not_null())
        .select("kernel", "name", "value")
        .iter_rows()
    }
    rows = []
    for at, kernel in enumerate(kernels):
        major, minor = (launches_of.get((at, name)) for name in _CC)
        rows.append(
            {"kernel": at, "name": kernel["name"], "mangled_name": kernel["mangled"]}
            | {column: launches_of.get((at, metric)) for column, metric in _LAUNCH.items()}
            | {"cc": None if major is None or minor is None else f"{major}.{minor}"}
            | {"nvtx": "/".join(kernel["nvtx"]) or None, "pid": None, "host": None}
        )
    return pl.DataFrame(rows, schema=KERNELS)


def _advice(kernels: list[dict[str, Any]]) -> pl.DataFrame:
    rows = [
        {
            "kernel": at,
            "rule": rule["rule"],
            "section": rule["section"] or None,
            "kind": _KIND.get(rule["kind"]),
            "text": _plain(rule["text"]),
            "speedup_pct": rule["speedup"],
            "speedup_of": _OF.get(rule["of"]),
        }
        for at, kernel in enumerate(kernels)
        for rule in kernel["rules"]
        if rule["text"]
    ]
    return pl.DataFrame(rows, schema=ADVICE)


def _plain(text: str) -> str:
    """As ncu prints it: without the marks of links."""
    return _URL.sub(r"\1 (\2)", _SECTION.sub(r"\1", text))
