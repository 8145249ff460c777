"""The rules of `nsys analyze` over many ranks: each rank is asked, and what was found is one list."""

from __future__ import annotations

from functools import partial

import polars as pl

from stepscope.model.note import Note, noted
from stepscope.model.profile import Profile
from stepscope.nsys.recipes.picture import Bars
from stepscope.nsys.recipes.spec import Outcome, Recipe, per_source, view_of
from stepscope.nsys.reports.registry import all_rules
from stepscope.nsys.reports.spec import Args, Argument
from stepscope.nsys.reports.view import View

#: Our names of the rules' columns, in the order in which they are shown.
_HEADERS = {
    "rank": "Rank",
    "pid": "PID",
    "tid": "TID",
    "device": "Device ID",
    "start_ns": "Start",
    "dur_ns": "Duration",
    "used_pct": "In-Use",
    "bytes": "Bytes",
    "src": "Src Kind",
    "dst": "Dst Kind",
    "memory": "Memory Kind",
    "context": "Context ID",
    "green_context": "Green Context ID",
    "stream": "Stream ID",
    "api": "API Name",
}
_ROWS = Argument("rows", int, "most rows per file; -1 for all", -1)
#: Arguments that choose a part of a rank.
_NOT_OURS = ("rows", "process", "thread")


def _found(view: View, args: Args, rule: str) -> pl.DataFrame:
    """What the rule finds on each rank of a source, and no more rows than asked for."""
    profile = view.profile
    ranks = profile.ranks.select("rank", "pid")
    if ranks["pid"].n_unique() == ranks.height:
        joined = _asked(view, args, rule).join(ranks, on="pid", how="left", nulls_equal=True)
    else:  # rules know processes by their pids, and ranks merged into one file may share one
        parts = [(rank, _asked(view_of(profile.view([rank]), args), args, rule)) for rank in ranks["rank"]]
        joined = pl.concat([part.with_columns(pl.lit(rank, pl.Int32).alias("rank")) for rank, part in parts])
    rows = args.number("rows")
    joined = _sorted(joined.select([c for c in _HEADERS if c in joined.columns]))
    return joined.head(rows) if rows >= 0 else joined


def _asked(view: View, args: Args, rule: str) -> pl.DataFrame:
    """All rows of the rule, under our names."""
    asked = all_rules()[rule]
    ours = {nsys: own for own, nsys in _HEADERS.items()}
    frame = asked.query(view, Args({**args, "rows": -1}))
    frame.columns = [ours.get(c.name, c.name) for c in asked.columns]
    return frame


def _sorted(frame: pl.DataFrame) -> pl.DataFrame:
    """Least used first, or longest first."""
    if "used_pct" in frame.columns:
        return frame.sort("used_pct", "dur_ns", "rank", maintain_order=True)
    return frame.sort("dur_ns", "start_ns", "rank", descending=[True, False, False], maintain_order=True)


def _listed(profile: Profile, args: Args, rule: str) -> Outcome:
    notes: list[Note] = []
    table = _sorted(pl.concat(per_source(profile, partial(_found, rule=rule), args, notes)))
    ranks = table.group_by("rank", "pid").agg(
        pl.len().cast(pl.Int64).alias("n"),
        pl.col("dur_ns").sum().alias("total_ns"),
        pl.col("dur_ns").max().alias("max_ns"),
    )
    ranks = ranks.sort("rank")
    quiet = len(set(profile.rank_ids()) - set(table["rank"].to_list()))
    if quiet:
        notes.append(noted("ranks-without/rule", without=quiet, all=profile.ranks.height))
    picture = Bars(
        "Total by rank",
        [f"rank {r}" for r in ranks["rank"].to_list()],
        ranks["total_ns"].to_list(),
        "total_ns",
        [f"{row['n']} of them, the longest {row['max_ns']} ns" for row in ranks.iter_rows(named=True)],
    )
    return Outcome({"analysis": table, "ranks": ranks}, [picture] if table.height else [], notes)


RECIPES = tuple(
    Recipe(
        rule.name,
        rule.title,
        partial(_listed, rule=rule.name),
        f"{rule.doc} {rule.advice}",
        (_ROWS, *(a for a in rule.args if a.name not in _NOT_OURS)),
        headers=_HEADERS,
    )
    for rule in all_rules().values()
)
