"""Rows are declared (decision 0049): types of columns are those of the answers, and no table is a list of any dicts."""

from __future__ import annotations

import re
import typing
from pathlib import Path

import polars as pl
import pytest

from stepscope import api, questions
from stepscope.errors import StepscopeError
from stepscope.model.result import names
from stepscope.simulate.job.scenario import Scenario
from stepscope.simulate.run import simulate_to

SOURCE = Path(__file__).parents[1] / "src" / "stepscope"
#: Where rows are of a shape that is not ours to declare, how many such places there are, and why.
UNDECLARED = {
    "agent/answers.py": (4, "rows of any question"),
    "agent/shapes.py": (5, "schemas of answers about any question"),
    "analyses/compile/mode.py": (1, "options of torch.compile, out of a manifest"),
    "analyses/source/chosen.py": (1, "records of torch ops, by the columns that the host table has of them"),
    "annotate/cupti.py": (1, "annotations of graph nodes, as torch has them and takes them"),
    "annotate/recorder.py": (1, "options of torch.compile, as the program gave them"),
    "api/profile.py": (1, "options of torch.compile, out of a manifest"),
    "capture/manifest.py": (1, "options of torch.compile, out of a manifest"),
    "capture/watch.py": (1, "options of torch.compile, out of a manifest"),
    "model/exported.py": (2, "JSON of a file, held against `_Told` when it is read"),
    "model/label_rules.py": (1, "TOML of users"),
    "model/profile.py": (1, "options of torch.compile, out of a manifest"),
    "render/roofline.py": (1, "rows of a result, whatever its view"),
    "report/sections/timeline.py": (2, "what the page draws"),
    "simulate/hang/recorded.py": (2, "dumps as torch writes them"),
    "simulate/programs/assemble.py": (1, "columns of any table of a trace"),
    "sources/flight/beside.py": (1, "JSON of py-spy"),
    "sources/flight/reading.py": (1, "dumps of torch"),
    "sources/ncu/report.py": (3, "what ncu-report gives"),
    "sources/nsys/stacks.py": (1, "JSON in nsys' strings"),
    "sources/snapshot/collect.py": (1, "a pickle of torch"),
    "sources/snapshot/source.py": (1, "a pickle of torch"),
    "sql/values.py": (1, "nested values of any column"),
}


def test_rows_of_tables_are_declared():
    there = {
        path.relative_to(SOURCE).as_posix(): n
        for path in SOURCE.rglob("*.py")
        if (n := len(re.findall(r"list\[dict\[str, Any\]\]", path.read_text("utf-8"))))
    }
    more = {file: n for file, n in there.items() if n > UNDECLARED.get(file, (0, ""))[0]}
    assert not more, "declare the row: a TypedDict (decision 0049)"


def _asked(variant: str) -> dict[str, str | bool]:
    """Options that a variant is asked for with: `by=step`, `across`."""
    pairs = (part.strip().partition("=") for part in variant.split(",") if part)
    return {key: value or True for key, _, value in pairs}


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory):

    folder = tmp_path_factory.mktemp("rows")
    simulate_to(Scenario(steps=2, seed=5, pp=2, ep=2, layers=2, micro_batches=4, schedule="1f1b"), folder, ("nsys",))
    return api.open(folder, cache=False)


_KINDS: dict[object, tuple[typing.Any, ...]] = {
    int: (pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64),
    float: (pl.Float64, pl.Float32, pl.Int64),  # of whole numbers alone, an integer
    str: (pl.String, pl.Categorical, pl.Enum),
    bool: (pl.Boolean,),
}


def _fits(hint: typing.Any, series: pl.Series) -> bool:
    declared = typing.get_args(hint)[0] if typing.get_origin(hint) is typing.Annotated else hint
    kinds = typing.get_args(declared) if typing.get_origin(declared) not in (list, dict) else (declared,)
    kinds = kinds or (declared,)
    if series.null_count() and type(None) not in kinds:
        return False
    nested = any(typing.get_origin(kind) in (list, dict) for kind in kinds)
    return series.dtype == pl.Null or nested or any(series.dtype in _KINDS.get(kind, ()) for kind in kinds)


@pytest.mark.parametrize("name", questions.names())
def test_columns_have_the_type_that_is_declared(name: str, profile):
    module = __import__(f"stepscope.{questions._MODULES[name]}", fromlist=["Row"])
    usual = "by=k" if name == "pipeline" else ""  # of what it is by default decides the profile
    for variant, row in {usual: module.Row, **getattr(module, "VARIANTS", {})}.items():
        try:
            table = api.analyse(profile, name, **_asked(variant)).rows
        except StepscopeError:
            continue  # nothing of it in this job
        hints = typing.get_type_hints(row, include_extras=True)
        for column in names(row):
            assert _fits(hints[column], table[column]), (variant, column, hints[column], table[column].dtype)
