"""What every analysis returns: rows with their scope, so that a figure never travels without its window."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Annotated, Any, TypedDict, TypeVar, cast, get_type_hints

import numpy as np
import polars as pl

from stepscope.errors import BadInput, extra, meant_of
from stepscope.model.note import CONTRADICTORY, Note
from stepscope.model.source import SourceInfo
from stepscope.model.statement import STATEMENT


@dataclass(frozen=True)
class Col:
    """A column of a result. The unit is the suffix: `_ns`, `_bytes`, `_pct`, `_gbps`, `_us`, none for the rest."""

    name: str
    doc: str


#: A row of an answer: a `TypedDict` whose keys are the columns, each `Annotated` with its text.
Row = TypeVar("Row", bound=Mapping[str, object])


class OfRank(TypedDict):
    """What a row about a rank begins with."""

    rank: Annotated[int, "rank of the process"]
    pid: Annotated[int | None, "process id on its host"]


class OfWindow(TypedDict):
    """What names the window that a row is of.

    Columns of every row where all windows were asked for (`--index all`), and of CSV and Parquet, which carry nothing
    beside their rows.
    """

    window: Annotated[str, "what the window is: step, chunk, range, span or capture"]
    index: Annotated[int, "which instance it is, by start"]
    label: Annotated[str, "its text"]


class Placed(OfRank):
    """A window of a rank: where it lies on the host and on the GPU."""

    label: Annotated[str, "text of the anchor range"]
    index: Annotated[int, "which instance, by start"]
    count: Annotated[int, "how many instances there are"]
    cpu_start_ns: Annotated[int | None, "start on the host; of a step, the end of the one before it"]
    cpu_end_ns: Annotated[int | None, "end on the host"]
    gpu_start_ns: Annotated[
        int | None, "first start of an op launched in it; of a step, the end of all that was launched before"
    ]
    gpu_end_ns: Annotated[int | None, "last end of an op launched in it"]


class WindowRow(Placed, total=False):
    """The same as JSON's `window` shows it: with what it is, and of a comparison with the side and the run."""

    kind: str
    side: str
    run: int
    steps: int


@cache
def columns(row: type) -> tuple[Col, ...]:
    """The columns that a row declares, in their order."""
    hints = get_type_hints(row, include_extras=True)
    return tuple(Col(name, hints[name].__metadata__[0]) for name in row.__annotations__)


def names(row: type) -> list[str]:
    """The columns' names: the keys of a row."""
    return list(row.__annotations__)


#: People who read a list of more than LONG rows see the SHOWN that matter most.
SHOWN, LONG = 10, 15
#: Rows that are not a list by weight (one per rank or window) are all shown up to so many; of more, the first so many.
MANY = 256
#: The code of the note that says that rows are left out (`showing`).
ROWS_NOT_SHOWN = "rows-not-shown"
#: Rows of a tree, of a path and of steps are read in their order, also where some are left out.
_IN_ORDER = frozenset({"depth", "order", "index"})


@dataclass
class Result:
    """Rows, and what they rest on. `window` has one entry per rank (and instance): see `Window.row`.

    `ranked_by` says that rows may be many, and by which column they matter; empty where the first matter most.
    """

    rows: pl.DataFrame
    window: list[WindowRow] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)
    #: Filled in by the front end that ran the analysis.
    command: str = ""
    #: How a notebook shows it.
    notebook: Callable[[Result], str] | None = field(default=None, repr=False, compare=False)
    #: How `print` shows it.
    printed: Callable[[Result], str] | None = field(default=None, repr=False, compare=False)
    #: How it is drawn.
    drawn: Callable[[Result], Any] | None = field(default=None, repr=False, compare=False)
    sources: list[SourceInfo] = field(default_factory=list)
    ranks: int = 0
    #: By rank, when the capture begins on its clock; empty where that is not known.
    begins: dict[int, int] = field(default_factory=dict, repr=False)
    #: ranks of the job, where the sources say
    world: int | None = None
    ranked_by: str | None = None
    #: What the user asked for: how many rows, 0 for all.
    top: int | None = None
    #: how many rows there are, of which some may be left out
    total: int = -1
    #: `51-100 of 812; --offset 100 for the next`: which rows they are, where the user asked for a page
    page: str | None = None

    def __post_init__(self) -> None:
        if self.total < 0:
            self.total = self.rows.height

    def sorted(self, by: str) -> Result:
        """Rows by columns: `exposed_ns`, `rank,exposed_ns`, `dur_ns:asc`. Numbers largest first, texts from A to Z."""
        columns, descending = [], []
        for part in by.split(","):
            name, _, way = part.strip().partition(":")
            if name not in self.rows.columns:
                raise BadInput(f"--sort {by}: no column {name!r}", meant_of(name, self.rows.columns))
            if way not in ("", "asc", "desc"):
                raise BadInput(f"--sort {by}: {way!r} is not a direction", "write COLUMN:asc or COLUMN:desc")
            if self.rows.schema[name].is_nested():
                raise BadInput(f"--sort {by}: {name} holds lists, which have no order", "name another column")
            columns.append(name)
            descending.append(way == "desc" if way else self.rows.schema[name].is_numeric())
        rows = self.rows.sort(columns, descending=descending, nulls_last=True, maintain_order=True)
        return replace(self, rows=rows, ranked_by=None if self.ranked_by is None else "")

    def largest(self, top: int) -> Result:
        """The `top` rows that matter most, 0 for all; the others are counted."""
        if not top or self.rows.height <= top:
            return replace(self, top=top)
        order = np.arange(self.rows.height)
        if self.ranked_by:
            values = self.rows[self.ranked_by].cast(pl.Float64).fill_null(-np.inf).to_numpy()
            order = np.argsort(-values, kind="stable")
        kept = np.sort(order[:top]) if _IN_ORDER & set(self.rows.columns) else order[:top]
        return replace(self, rows=self.rows[kept], top=top)

    def paged(self, limit: int, offset: int) -> Result:
        """The `limit` rows (0 for all) from row `offset` on, and which of how many they are."""
        count = self.rows.height
        rows = self.rows.slice(offset, limit or None)
        last = offset + rows.height
        if rows.height:
            next_page = f"; --offset {last} for the next" if last < count else ""
            shown = f"{offset + 1:,}-{last:,} of {count:,}{next_page}"
        else:
            shown = f"from {offset + 1:,} on: none, there are {count:,}"
        return replace(self, rows=rows, top=self.top or 0, page=shown if rows.height < count else None)

    def for_people(self) -> Result:
        """What a table or Markdown shows: of a long list the rows that matter, unless the user said how many."""
        if self.top is not None:
            return self
        most, shown = (MANY, MANY) if self.ranked_by is None else (LONG, SHOWN)
        return self.largest(shown) if self.rows.height > most else self

    @property
    def more(self) -> str | None:
        """The line under a list of which not all is shown."""
        if self.page is not None:
            return f"rows {self.page}"
        left_out = self.total - self.rows.height
        return f"… and {left_out:,} more (--top 0 shows all)" if left_out else None

    @property
    def doubts(self) -> list[Note]:
        """The notes that come before any figure: records that contradict each other."""
        return [n for n in self.notes if getattr(n, "code", "") in CONTRADICTORY]

    @property
    def notes_below(self) -> list[Note]:
        """The notes, but for `doubts` and for what `more` says."""
        return [n for n in self.notes if getattr(n, "code", "") not in (*CONTRADICTORY, ROWS_NOT_SHOWN)]

    def with_window(self) -> pl.DataFrame:
        """The rows with the window that each is of; null in what the windows of several ranks do not share."""
        frame = pl.DataFrame(
            [[w.get("rank"), w.get("kind"), w.get("index"), w.get("label")] for w in self.window],
            schema={"rank": pl.Int64, "window": pl.String, "index": pl.Int64, "label": pl.String},
            orient="row",
        )
        missing = [name for name in names(OfWindow) if name not in self.rows.columns]
        if not missing or frame["window"].null_count() == frame.height:  # recipes, and sides of a comparison, have none
            return self.rows
        if "rank" in self.rows.columns and frame["rank"].is_unique().all():
            of_rank = frame.select("rank", *missing)
            rank = pl.col("rank").cast(pl.Int64)  # of no rows, a column without a type
            return self.rows.with_columns(rank).join(of_rank, on="rank", how="left", maintain_order="left")
        shared = (frame[name].unique() for name in missing)
        return self.rows.with_columns(
            pl.lit(values[0] if len(values) == 1 else None, frame.schema[name]).alias(name)
            for name, values in zip(missing, shared, strict=True)
        )

    def to_pandas(self) -> Any:
        """The rows as a pandas frame. It needs pandas and pyarrow: `pip install 'stepscope[pandas]'`."""
        try:
            return self.rows.to_pandas()
        except ImportError as error:  # Polars' own words: which of the two
            raise BadInput(f"to_pandas: {error}", extra("pandas")) from None

    def plot(self) -> Any:
        """A picture of the answer, where there is one: of steps, the budget, a breakdown, a timeline; `.save(path)`."""
        if self.drawn is None:
            raise BadInput("plot: only answers of a profile have a picture", "ask the profile: p.iterations().plot()")
        return self.drawn(self)

    def __str__(self) -> str:
        """What the command prints: `print(p.overlap())`."""
        return self.printed(self) if self.printed is not None else str(self.rows)

    def __repr__(self) -> str:
        return str(self)  # a prompt of Python shows what the command prints, not every field

    @property
    def statement(self) -> str | None:
        """The sentence to quote, where the question has one."""
        return self.summary.get(STATEMENT)

    def _repr_html_(self) -> str:
        html: str = self.notebook(self) if self.notebook is not None else self.rows._repr_html_()
        return html


def blank(row: type[Row]) -> Row:
    """A row that says nothing yet: null in every column."""
    return cast(Row, dict.fromkeys(names(row)))


def rows(row: type[Row], data: Sequence[Row] | pl.DataFrame, *, windows: bool = False) -> pl.DataFrame:
    """A table with exactly the columns of `row`, in their order; even of none. With `windows`, the window's too."""
    wanted = names(row)
    if windows and not {"index", "label"} <= set(wanted):
        at = sum(name in ("rank", "pid") for name in wanted[:2])
        wanted[at:at] = [name for name in names(OfWindow) if name not in wanted]
    if isinstance(data, pl.DataFrame):
        return data.select(wanted)
    if not data:
        return pl.DataFrame(schema=dict.fromkeys(wanted, pl.Null))
    return pl.DataFrame(list(data), infer_schema_length=None).select(wanted)
