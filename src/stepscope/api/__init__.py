"""What every front end calls: open a profile, ask it a question. Questions are methods of the profile."""

from __future__ import annotations

from stepscope.api.analysing import analyse, prepare_sql, sql
from stepscope.api.comparing import Given, compare, gate, save_baseline
from stepscope.api.hanging import hang
from stepscope.api.opening import open, open_runs
from stepscope.api.options import RESERVED, parse_ranks
from stepscope.api.profile import Profile

__all__ = [
    "RESERVED",
    "Given",
    "Profile",
    "analyse",
    "compare",
    "gate",
    "hang",
    "open",
    "open_runs",
    "parse_ranks",
    "prepare_sql",
    "save_baseline",
    "sql",
]
