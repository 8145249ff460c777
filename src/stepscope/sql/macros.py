"""Functions that a query may call beside DuckDB's own: of intervals, half open and in nanoseconds as everywhere."""

from __future__ import annotations

from dataclasses import dataclass

from stepscope.sql.tops import NO_THREAD


@dataclass(frozen=True)
class Macro:
    """One function: how it is called, what it gives, and the tables that it reads itself."""

    call: str
    doc: str
    body: str
    reads: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.call.partition("(")[0]


# With starts and ends sorted each for itself, the k-th end and the (k+1)-th start enclose a gap wherever the one comes
# before the other: by then as many intervals have ended as have begun. So no row need know its predecessors.
_STARTS, _ENDS = (
    f"(list({x} ORDER BY {x}) FILTER (WHERE starts IS NOT NULL AND ends IS NOT NULL))" for x in ("starts", "ends")
)
_UNION = (
    "(max(ends) FILTER (WHERE starts IS NOT NULL) - min(starts) FILTER (WHERE ends IS NOT NULL)"
    f" - coalesce(list_sum(list_transform(list_zip({_STARTS}[2:], {_ENDS}[:-2]),"
    " lambda gap: greatest(gap[1] - gap[2], 0))), 0))::BIGINT"
)


def _last(table: str, also: str = "") -> str:
    """The range that is on top in a table of changes, at a moment."""
    return (
        f"(SELECT s.name FROM (SELECT of_rank AS rank, coalesce(of_tid::BIGINT, {NO_THREAD}) AS tid, at_ns AS at_ns) q"
        f" ASOF LEFT JOIN {table} s ON s.rank = q.rank AND {also}q.at_ns >= s.since_ns)"
    )


MACROS = (
    Macro(
        "overlap_ns(a_start, a_end, b_start, b_end)",
        "how long two intervals have in common; 0 for nothing, null where an edge is null",
        # least() and greatest() leave out what is null, as of a LEFT JOIN: without these, nothing would cover it all
        "CASE WHEN a_start IS NOT NULL AND a_end IS NOT NULL AND b_start IS NOT NULL AND b_end IS NOT NULL"
        " THEN greatest(least(a_end, b_end) - greatest(a_start, b_start), 0) END",
    ),
    Macro(
        "overlapping(a_start, a_end, b_start, b_end)",
        "whether two intervals have an instant in common",
        "(a_start < b_end AND b_start < a_end)",
    ),
    Macro(
        "union_ns(starts, ends)",
        "an aggregate: the length of the union of all intervals of the group; what overlaps counts once",
        _UNION,
    ),
    Macro(
        "enclosing_range(of_rank, of_tid, at_ns)",
        "text of the innermost own range of the rank's thread at that moment, else of any of its threads",
        # Joins find the last change before each moment: looking through all ranges for each takes minutes.
        f"coalesce({_last('_tops_of_threads', 's.tid = q.tid AND ')}, {_last('_tops_of_ranks')})",
        reads=("_tops_of_threads", "_tops_of_ranks"),
    ),
)
