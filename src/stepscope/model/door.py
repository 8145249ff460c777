"""The door: what a source delivers is validated here, once, where it becomes part of the model.

Readers (`sources`) turn values of any type into those of the schema, and anything else into null. Here is what
becomes of nulls, and of values that cannot be:

1. Columns have the names and types of the schema. A source that delivers others is refused.
2. Rows are in order of process and keys. Others are sorted.
3. A value outside of its column's bounds (a negative size), a number that is not finite, and the id of a name that is
   not there are as good as null. A place in a communicator that is not below its size says nothing of either.
4. A row is left out that is of no process; that lacks a time, or another value that nothing can replace; whose end is
   before its start; that lies beyond ±2^62 ns (146 years), or over a year from the median of its table; that is longer
   than twice the capture and a second, or than a day where the source does not say how long the capture was; or that
   repeats a GPU op or a call: same times, place, name and correlation. So is a GPU op that goes on after later launches
   of its stream are over, or ends long after the host's last record (`model.stream_order`). A table with rows, and no
   such row left, is refused.
5. A null stays where the column is `nullable`; else `instead` takes its place, `(no name)` that of a name.

What is repaired is counted in a note of the source. The parts of a table keep the same rows, decided by its core.
Behind the door nothing asks again.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from stepscope.errors import BadInput
from stepscope.intervals.arrays import I64, Mask
from stepscope.model.admission import flaws, repeated
from stepscope.model.columns import NO_NAME, Dtype, Part, Table
from stepscope.model.fields import MOST_RANKS
from stepscope.model.kernel_names import shorten
from stepscope.model.labels import no_axes
from stepscope.model.note import noted
from stepscope.model.schema import PROCESSES, TABLES
from stepscope.model.source import Chunk, Quality, Source, SourceInfo, order_of
from stepscope.model.spill import gathered
from stepscope.model.stream_order import beyond, out_of_order, too_long
from stepscope.model.units import about

_AGAIN = "export or record it again"


def admitted(source: Source) -> Source:
    """The source behind a door. What a cache keeps came through one already."""
    return source if isinstance(source, Door) or getattr(source, "behind_door", False) else Door(source)


def forget(source: Source) -> None:
    """Let go what is held of a source, of one among thousands; if it is asked again, so are the file and the door."""
    if let_go := getattr(getattr(source, "source", source), "let_go", None):  # behind `devices.DevicesApart`
        let_go()


@dataclass(frozen=True)
class Admission:
    """Rows of a table that were delivered, and which of them are admitted, in order (None: all, as they stand)."""

    delivered: int
    rows: I64 | None


class Door:
    """A source whose tables are what the schema promises."""

    def __init__(self, source: Source, processes: pl.DataFrame | None = None) -> None:
        self.path: Path = source.path
        self._source = source
        self._processes = processes  # where they came through already
        self.admissions: dict[str, Admission] = {}  # by table: what its core decided for all parts

    @property
    def info(self) -> SourceInfo:
        return self._source.info

    @property
    def quality(self) -> Quality:
        return self._source.quality

    def tables(self) -> frozenset[str]:
        return self._source.tables()

    def check(self) -> None:
        self._source.check()

    def let_go(self) -> None:
        """Forget which rows were admitted, and what the reader holds."""
        self.admissions.clear()
        if let_go := getattr(self._source, "let_go", None):
            let_go()

    def processes(self) -> pl.DataFrame:
        if self._processes is None:
            frame = self._source.processes()
            self._require(frame, PROCESSES, "processes")
            if frame["proc"].to_list() != list(range(frame.height)):
                raise BadInput(f"{self.path}: processes.proc does not count from 0", _AGAIN)
            frame = self._bounded(frame, "processes", "rank", 0, MOST_RANKS)
            frame = self._bounded(frame, "processes", "world_size", 1, MOST_RANKS)
            for label in frame["setup"].drop_nulls():
                for pair in no_axes(label):
                    rank = label.split(";")[0].strip()
                    self.quality.note(noted("label-not-an-axis", rank=rank, pair=pair))
            self._processes = frame.with_columns(pl.when(pl.col("rank").is_not_null()).then(pl.col("rank_from")))
        return self._processes

    def read(self, table: str, part: Part = "core") -> Chunk:
        if part != "core" and table not in self.admissions:
            self.read(table)
        spec = TABLES[table]
        chunk = self._source.read(table, part)
        self._require(chunk.frame, spec.part(part), table)
        height = chunk.frame.height
        frame = self._valued(chunk.frame, spec, len(chunk.names))
        if part == "core":
            self.admissions[table] = Admission(height, self._admissible(frame, spec, chunk.names))
        admission = self.admissions[table]
        if height != admission.delivered:
            one, other = admission.delivered, height
            raise BadInput(f"{self.path}: {table} has {one} rows in one part and {other} in the other", _AGAIN)
        if admission.rows is not None:
            frame = gathered(frame, admission.rows)
        return self._filled(frame, spec, chunk.names)

    # -- types -------------------------------------------------------------------------------------------------------

    def _require(self, frame: pl.DataFrame, schema: dict[str, Dtype], table: str) -> None:
        if frame.schema == pl.Schema(schema):
            return
        for name, dtype in schema.items():
            if name not in frame.columns:
                raise BadInput(f"{self.path}: {table} has no column {name}", _AGAIN)
            if frame.schema[name] != dtype:
                raise BadInput(f"{self.path}: {table}.{name} is {frame.schema[name]}, not {dtype}", _AGAIN)
        raise BadInput(f"{self.path}: {table} has the columns {', '.join(frame.columns)}", _AGAIN)

    # -- values ------------------------------------------------------------------------------------------------------

    def _valued(self, frame: pl.DataFrame, spec: Table, names: int) -> pl.DataFrame:
        """Null for what cannot be."""
        for column in spec.delivered(frame.columns):
            if column.name_id:
                frame = self._bounded(frame, spec.name, column.name, 0, names - 1)
            elif column.least is not None or column.most is not None:
                frame = self._bounded(frame, spec.name, column.name, column.least, column.most)
            elif column.dtype == pl.Float64:
                frame = self._finite(frame, spec.name, column.name)
        return self._placed(frame) if "comm_rank" in frame.columns else frame

    def _bounded(
        self, frame: pl.DataFrame, table: str, column: str, least: int | None, most: int | None
    ) -> pl.DataFrame:
        values = frame[column]
        low, high = values.min(), values.max()
        below = least is not None and low is not None and low < least  # type: ignore[operator]
        above = most is not None and high is not None and high > most  # type: ignore[operator]
        if not below and not above:
            return frame
        fits = values.is_between(low if least is None else least, high if most is None else most)
        return self._unknown(frame, table, column, ~fits.fill_null(True), str(low if below else high))

    def _finite(self, frame: pl.DataFrame, table: str, column: str) -> pl.DataFrame:
        values = frame[column]
        outside = ~values.is_finite().fill_null(True)
        return self._unknown(frame, table, column, outside, str(values.filter(outside)[0])) if outside.any() else frame

    def _unknown(self, frame: pl.DataFrame, table: str, column: str, outside: pl.Series, example: str) -> pl.DataFrame:
        count = int(outside.sum())
        self.quality.note(
            noted(
                "values-unknown/value", table=table, count=count, s="s" * (count != 1), column=column, example=example
            )
        )
        return frame.with_columns(pl.when(~outside).then(pl.col(column)).alias(column))

    def _placed(self, comms: pl.DataFrame) -> pl.DataFrame:
        outside = (comms["comm_rank"] >= comms["comm_size"]).fill_null(False)
        if not outside.any():
            return comms
        comms = self._unknown(comms, "comms", "comm_size", outside, "not above comm_rank")
        return self._unknown(comms, "comms", "comm_rank", outside, "not below comm_size")

    def _filled(self, frame: pl.DataFrame, spec: Table, names: pl.Series) -> Chunk:
        """Something in place of every null that may not stay."""
        for column in spec.delivered(frame.columns):
            count = frame[column.name].null_count()
            if not count or column.nullable:
                continue
            instead: object = column.instead
            if column.name_id:
                names, instead = _with(names, NO_NAME)
            frame = frame.with_columns(pl.col(column.name).fill_null(pl.lit(instead, column.dtype)))
            taken = NO_NAME if column.name_id else instead
            if (spec.name, column.name) == ("ops", "name"):
                taken = f"{NO_NAME}, and counted as compute"
            self.quality.note(
                noted("values-assumed", table=spec.name, count=_rows(count), column=column.name, taken=taken)
            )
        return Chunk(frame, names)

    # -- rows --------------------------------------------------------------------------------------------------------

    def _admissible(self, frame: pl.DataFrame, spec: Table, names: pl.Series) -> I64 | None:
        """Rows that are admitted, in order; None where all are, as they stand."""
        bad: Mask | None = None
        for rows, why in flaws(frame, spec, self.processes().height, self.info.capture_ns):
            fresh = rows if bad is None else rows & ~bad
            worth_noting = fresh if spec.name == "ops" and fresh.any() else None
            example = "" if worth_noting is None else self._example_of(frame.filter(worth_noting), names)
            self._left_out(spec, int(np.count_nonzero(fresh)), why, example)
            bad = rows if bad is None else bad | rows
            if bad.all():
                raise BadInput(f"{self.path}: {spec.name}: none of {len(bad)} rows is usable (rows {why})", _AGAIN)
        kept = None if bad is None else np.flatnonzero(~bad)
        if (order := order_of(frame if kept is None else frame[kept], spec.name)) is not None:
            kept = order if kept is None else kept[order]
        again = repeated(frame if kept is None else frame[kept], spec.name)
        if again is not None:
            count = int(np.count_nonzero(again))
            self._left_out(spec, count, "that repeat others" if count > 1 else "that repeats another")
            kept = np.flatnonzero(~again) if kept is None else kept[~again]
        return self._in_order(frame, kept, spec, names) if spec.name == "ops" else kept

    def _in_order(self, frame: pl.DataFrame, kept: I64 | None, spec: Table, names: pl.Series) -> I64 | None:
        """Of the ops that are kept, those that stream order and the end of the capture allow."""
        ops = frame if kept is None else frame[kept]
        wrong = out_of_order(ops)
        if wrong is not None:  # unless these are streams of several contexts
            context = self._source.read(spec.name, "detail").frame["context"]
            wrong = out_of_order(ops, context if kept is None else context.gather(kept))
        kept, ops = self._without(wrong, "that went on after later ops of the stream were over", kept, ops, names)
        if ops.height == 0:
            return kept
        start, end = ops["start_ns"].to_numpy(), ops["end_ns"].to_numpy()
        late = too_long(start, end)
        if late is not None:
            late = beyond(start, end, late, self._host_end())
        return self._without(late, "that ended long after the capture", kept, ops, names)[0]

    def _host_end(self) -> int | None:
        """The end of the capture and of what it has of the host, whichever is later."""
        tables = [self.read(table).frame for table in ("calls", "ranges") if table in self.tables()]
        ends = [int(frame["end_ns"].max()) for frame in tables if frame.height]  # type: ignore[arg-type]
        return max([*ends, self.info.capture_ns or ends[0]]) if ends else None

    def _without(
        self, wrong: Mask | None, why: str, kept: I64 | None, ops: pl.DataFrame, names: pl.Series
    ) -> tuple[I64 | None, pl.DataFrame]:
        if wrong is None or not wrong.any():
            return kept, ops
        rows = np.flatnonzero(wrong)
        self._left_out(TABLES["ops"], len(rows), why, self._example(ops[rows], names))
        return (np.flatnonzero(~wrong) if kept is None else kept[~wrong]), ops.filter(~wrong)

    def _example_of(self, ops: pl.DataFrame, names: pl.Series) -> str:
        """The longest of the ops that have times and a process; nothing where none has."""
        whole = ops.drop_nulls(["proc", "start_ns", "end_ns"]).filter(pl.col("proc") < self.processes().height)
        whole = whole.filter(
            pl.col("proc") >= 0, pl.col("end_ns") > pl.col("start_ns"), pl.col("start_ns").abs() < 1 << 61
        )
        return self._example(whole, names) if whole.height else ""

    def _example(self, ops: pl.DataFrame, names: pl.Series) -> str:
        """The longest of these ops: which, where and when."""
        row = ops.row(int((ops["end_ns"] - ops["start_ns"]).arg_max() or 0), named=True)
        process = self.processes().row(row["proc"], named=True)
        who = f"rank {process['rank']}" if process["rank"] is not None else f"pid {process['pid']}"
        name = NO_NAME if row["name"] is None else shorten(names[row["name"]])
        length = about(row["end_ns"] - row["start_ns"])
        return f": {name} on stream {row['stream']} of {who}, {length} from {row['start_ns']} ns"

    def _left_out(self, spec: Table, count: int, why: str, example: str = "") -> None:
        if count:
            self.quality.note(noted("rows-impossible", name=spec.name, count=_rows(count), why=why, example=example))


def _with(names: pl.Series, text: str) -> tuple[pl.Series, int]:
    """Names with `text` among them, and its id."""
    at = names.index_of(text)
    return (names, at) if at is not None else (names.extend_constant(text, 1), len(names))


def _rows(count: int) -> str:
    return f"{count} row{'s' * (count != 1)}"
