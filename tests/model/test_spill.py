"""Tables in files: the same values, no memory, and nothing left behind."""

from __future__ import annotations

import tempfile

import numpy as np
import polars as pl
import pytest

from stepscope.files import budget, temporary
from stepscope.model import spill


@pytest.fixture
def cramped(monkeypatch, tmp_path):
    """Whatever there is, there is no room for it."""
    monkeypatch.setattr(budget, "roomy", lambda more, held=0: False)
    monkeypatch.setattr(spill, "_SMALL", 0)
    monkeypatch.setattr(temporary, "on_disk", lambda: tmp_path)
    return tmp_path


def table(rows: int = 1000) -> pl.DataFrame:
    numbers = np.arange(rows)
    kinds = [pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64, pl.Float32, pl.Float64]
    columns = [pl.Series(str(kind), numbers % 100).cast(kind) for kind in kinds]
    return pl.DataFrame(columns).with_columns(
        pl.Series("word", ["a", "b"] * (rows // 2), dtype=pl.Enum(["a", "b"])),
        pl.Series("text", [str(n) for n in numbers.tolist()]),
        pl.Series("flag", numbers % 3 == 0),
        pl.when(pl.col("Int64") > 5).then(pl.col("Int64")).alias("some"),
        pl.lit(None, pl.Int64).alias("none"),
    )


def test_what_has_room_stays(monkeypatch):
    monkeypatch.setattr(budget, "total", lambda: 1 << 60)
    frame = table()
    assert spill.kept(frame) is frame


@pytest.mark.parametrize("rows", [0, 2, 1000])
def test_the_same_values(cramped, rows):
    frame = table(rows)
    found = spill.kept(frame)
    assert found.equals(frame)
    assert found.schema == frame.schema


def test_columns_in_several_chunks(cramped):
    frame = pl.concat([table(10), table(20)[3:17], table(2)], rechunk=False)
    assert frame.n_chunks() == 3
    found = spill.kept(frame)
    assert found.equals(frame)
    assert found["Int64"].n_chunks() == 1


def test_rows_are_gathered_by_column(cramped):
    frame = table()
    rows = np.random.default_rng(0).permutation(1000)
    assert spill.gathered(frame, rows).equals(frame[rows])


def test_files_have_no_name(cramped):
    found = spill.kept(table())
    assert list(cramped.iterdir()) == []
    assert int(found["Int64"].sum()) == sum(n % 100 for n in range(1000))


def test_a_table_in_files_takes_no_memory(monkeypatch, tmp_path):
    monkeypatch.setattr(temporary, "on_disk", lambda: tmp_path)
    monkeypatch.setattr(budget, "total", lambda: 0)
    before = budget.used()
    frame = pl.DataFrame({"n": np.arange(8_000_000)})
    assert budget.used() - before > 60_000_000
    frame = spill.kept(frame)
    assert int(frame["n"].to_numpy()[-1]) == 7_999_999
    assert budget.used() - before < 10_000_000


def test_where_nothing_can_be_written_tables_stay(cramped, monkeypatch):
    def full(**_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    frame = table()
    assert spill.kept(frame).equals(frame)
    assert spill.kept_column(frame["Int64"]).equals(frame["Int64"])
    assert spill.gathered(frame, np.array([3, 1])).equals(frame[[3, 1]])
