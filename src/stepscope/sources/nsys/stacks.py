"""Call stacks: native ones of CUDA calls in a table of their own, Python's as marks in NVTX domains.

`--cudabacktrace` fills CUDA_CALLCHAINS, which calls refer to by `callchainId`. `--python-backtrace=cuda` writes a mark
per call, of the call's thread and start, whose payload (exported as JSON, with ids of the string table) has the frames.
`--python-sampling` writes such marks of every Python thread at a fixed rate.
"""

from __future__ import annotations

import json
from typing import Any

import polars as pl

from stepscope.model.columns import Part
from stepscope.model.source import Chunk
from stepscope.sources.nsys.events import Export, chunk, read_events
from stepscope.sources.nsys.mapping import NVTX, RUNTIME
from stepscope.sources.nsys.ranges import MARK, domains
from stepscope.sources.nsys.strings import Names
from stepscope.sources.nsys.tables import decode, field

CHAINS = "CUDA_CALLCHAINS"
_BACKTRACE, _SAMPLING = "Python Backtrace", "Python Periodic Sampling"
_AT = ["proc", "tid", "start_ns"]
_FRAMES = {"chain": field("id"), "depth": field("stackDepth"), "name": field("symbol"), "file": field("module")}


def has_stacks(export: Export) -> bool:
    return export.tables.has(CHAINS) or bool(_python_domains(export))


def read_stacks(export: Export, part: Part) -> Chunk:
    names = Names()
    frames = [_native(export, names), _python(export, names)]
    return chunk(export, pl.concat(frames, how="diagonal"), "stacks", part, names)


def python_chains(export: Export) -> pl.DataFrame:
    """The Python stack of each call that has one: `proc`, `tid`, `start_ns` of the call, and `python_chain`."""
    marks = _marks(export).filter(~pl.col("sampled"))
    return marks.select(*_AT, "python_chain").unique(_AT, keep="first", maintain_order=True)


def python_samples(export: Export, names: Names) -> pl.DataFrame:
    """Python samples with their innermost frame: `proc`, `tid`, `start_ns`, `name`, `file`, `line`, `chain`."""
    marks = _marks(export).filter("sampled").select(*_AT, chain="python_chain")
    innermost = _python(export, names).filter(pl.col("depth") == 0).drop("depth")
    return marks.join(innermost, on=["proc", "chain"], how="left", maintain_order="left")


def has_python_samples(export: Export) -> bool:
    return bool(_domains(export, _SAMPLING))


def _native(export: Export, names: Names) -> pl.DataFrame:
    frame = export.tables.frame(CHAINS, _FRAMES)
    calls = read_events(export, RUNTIME, ("callchain",))
    users = calls.drop_nulls("callchain").unique().rename({"callchain": "chain"})
    joined = frame.join(users, on="chain", how="inner")
    return joined.with_columns(
        pl.col("depth").cast(pl.Int32, strict=False),
        names.by_id(joined["name"], export.strings),
        names.by_id(joined["file"], export.strings),
    )


def _python_domains(export: Export) -> list[int]:
    return sorted({*_domains(export, _BACKTRACE), *_domains(export, _SAMPLING)})


def _domains(export: Export, name: str) -> set[int]:
    """Numbers of the domains whose name begins so; none where the export has no payloads."""
    if not {"jsonText", "jsonTextId"} & export.tables.columns(NVTX.table):
        return set()
    return {number for (_, number), text in domains(export).items() if text.startswith(name)}


def _marks(export: Export) -> pl.DataFrame:
    """The marks that carry a stack. Equal payloads are one stack, numbered downwards from -1."""
    wanted = _python_domains(export)
    columns = ("start_ns", "tid", "domain_id", "json", "json_id")
    marks = read_events(export, NVTX, columns if wanted else (), only=("eventType", (MARK,) if wanted else ()))
    if not wanted or marks.height == 0:
        times = {"proc": pl.Int32, "tid": pl.Int32, "start_ns": pl.Int64}
        return pl.DataFrame(schema={**times, "text": pl.String, "sampled": pl.Boolean, "python_chain": pl.Int64})
    marks = marks.filter(pl.col("domain_id").is_in(wanted))
    raw = zip(marks["json"], marks["json_id"], strict=True)
    text = [decode(own) if own else export.strings.get(key) if key is not None else None for own, key in raw]
    sampled = pl.col("domain_id").is_in(sorted(_domains(export, _SAMPLING)))
    marks = marks.with_columns(text=pl.Series(text, dtype=pl.String), sampled=sampled).drop_nulls("text")
    # Sorted, so that both tables that use the numbers number alike.
    return marks.with_columns(python_chain=-pl.col("text").rank("dense").cast(pl.Int64))


def _python(export: Export, names: Names) -> pl.DataFrame:
    stacks = _marks(export).select("proc", "text", "python_chain").unique(maintain_order=True)
    rows = [
        (proc, chain, depth, _text(export, names, f.get("Function")), _text(export, names, f.get("File")), _line(f))
        for proc, text, chain in stacks.iter_rows()
        for depth, f in enumerate(_frames(text))
    ]
    ids = {"name": pl.UInt32, "file": pl.UInt32}
    schema = {"proc": pl.Int32, "chain": pl.Int64, "depth": pl.Int32, **ids, "line": pl.Int32}
    return pl.DataFrame(rows, schema=schema, orient="row")


def _frames(text: str) -> list[dict[str, Any]]:
    """Frames of one payload, innermost first; none where it is not such a payload."""
    try:
        payload = json.loads(text)
    except (ValueError, RecursionError):
        return []
    bodies = payload.values() if isinstance(payload, dict) else ()
    frames_of = [b["Frames"] for b in bodies if isinstance(b, dict) and isinstance(b.get("Frames"), list)]
    return [f for f in frames_of[0] if isinstance(f, dict)] if frames_of else []


def _text(export: Export, names: Names, value: object) -> int | None:
    """Texts are ids of the string table; take a text itself too."""
    text = export.strings.get(value) if isinstance(value, int) else value
    return names.intern(text.encode("utf-8", "replace").decode()) if isinstance(text, str) else None


def _line(frame: dict[str, Any]) -> int | None:
    line = frame.get("Line")
    return line if isinstance(line, int) and 0 <= line < 2**31 else None
