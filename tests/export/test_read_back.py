"""An export that is read back gives the same answers, to every question that the original can answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from exports import H200, h200, job
from marks import slow_unless
from stepscope import api, questions
from stepscope.errors import CannotAnswer, StepscopeError
from stepscope.model.exported import TITLES
from stepscope.model.schema import TABLES

#: Endings of what is read back.
ENDINGS = (".pftrace", ".json.gz", ".parquet")
#: Questions about files, or that need a file besides.
_ABOUT_FILES = {"info"}


def _same_tables(one: api.Profile, other: api.Profile) -> None:
    for table in TITLES:
        assert one.has(table) == other.has(table), table
        if one.has(table):
            frames = []
            for profile in (one, other):
                frame = profile.table(table, detail=True)
                texts = [c for c in TABLES[table].name_ids() if c in frame.columns]
                frames.append(frame.with_columns(profile.names.gather(frame[c]).alias(c) for c in texts))
            left, right = frames
            different = [c for c in left.columns if not left[c].equals(right[c])]
            assert left.height == right.height and not different, (table, different)


def _answers(profile: api.Profile) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in questions.names():
        if name in _ABOUT_FILES:
            continue
        try:
            result = api.analyse(profile, name)
        except StepscopeError as reason:
            found[name] = (type(reason), reason.message)
            continue
        rows = result.rows.drop("file", strict=False)
        if "command" in rows.columns:  # it names the files
            rows = rows.with_columns(pl.col("command").cast(pl.String).str.replace_all(r"\S*/\S*", "PROFILE"))
        found[name] = (rows, result.window, result.summary)
    return found


def _same_answers(one: api.Profile, other: api.Profile) -> None:
    left, right = _answers(one), _answers(other)
    answered = 0
    for name, (kind, *rest) in left.items():
        if isinstance(kind, pl.DataFrame):
            answered += 1
            assert isinstance(right[name][0], pl.DataFrame), (name, right[name])
            assert kind.equals(right[name][0]), name
            assert str(rest) == str(list(right[name][1:])), name
        else:
            assert kind is right[name][0] is CannotAnswer or kind is right[name][0], name
    assert answered >= 15


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("name", slow_unless("eager".__eq__, sorted(H200)))
def test_tables_of_real_captures_come_back(name, ending, tmp_path):
    profile = api.open(h200(name, tmp_path), cache=False)
    profile.export(tmp_path / f"out{ending}", findings=False)
    _same_tables(profile, api.open(tmp_path / f"out{ending}", cache=False))


@pytest.mark.slow
def test_answers_of_a_real_capture_come_back(tmp_path):
    profile = api.open(h200("payloads", tmp_path), cache=False)
    profile.export(tmp_path / "out.pftrace", findings=False)
    _same_answers(profile, api.open(tmp_path / "out.pftrace", cache=False))


@pytest.mark.parametrize(
    ("written", "ending"), [pytest.param("nsys", ".pftrace", marks=pytest.mark.slow), ("kineto", ".json.gz")]
)
def test_answers_of_a_job_come_back(written, ending, tmp_path):
    folder = job(tmp_path / "job", written)
    profile = api.open(folder, cache=False) if written == "nsys" else _one_rank(folder)
    profile.export(tmp_path / f"out{ending}")
    again = api.open(tmp_path / f"out{ending}", cache=False)
    _same_tables(profile, again)
    _same_answers(profile, again)


@pytest.mark.parametrize("ending", ENDINGS)
def test_an_export_beside_its_traces_is_left_alone(ending, tmp_path):
    folder = tmp_path / "traces"
    folder.mkdir()
    path = h200("eager", folder)
    api.open(folder, cache=False).export(folder / f"job{ending}", findings=False)
    assert api.open(folder, cache=False).paths == [path]
    path.unlink()
    assert api.open(folder, cache=False).ops.height > 0  # alone it is a profile


def _one_rank(folder: Path) -> api.Profile:
    """Torch's traces are a file per rank: of several, the export is on one clock."""
    return api.open(next(iter(sorted(folder.glob("*rank0*")))), cache=False)


@pytest.mark.slow
def test_ranks_of_several_files_come_on_one_clock(tmp_path):
    clocks = ("clock:node=1,offset_us=700,drift_ppm=0",)
    folder = job(tmp_path / "job", "kineto", nodes=2, faults=clocks)
    profile = api.open(folder, cache=False)
    assert len(profile.sources) == 4
    profile.export(tmp_path / "out.pftrace")
    again = api.open(tmp_path / "out.pftrace", cache=False)
    lengths = ["window_ns", "compute_ns", "comm_exposed_ns", "idle_ns", "comm_hidden_ns"]
    # The fitted clocks differ in pace by a few parts in a million: so do lengths, by some ns.
    for one, other in zip(
        profile.breakdown().rows[lengths].rows(), again.breakdown().rows[lengths].rows(), strict=True
    ):
        assert one == pytest.approx(other, rel=1e-4, abs=2_000)
    met = ["group", "op", "seq", "ranks", "bytes", "last_rank"]
    assert profile.collectives().rows.select(met).equals(again.collectives().rows.select(met))
    took = [p.collectives().rows["transfer_ns"].to_list() for p in (profile, again)]
    assert took[0] == pytest.approx(took[1], rel=1e-4, abs=20)
    # As recorded, the second node is 700 µs off; exported, all are on the clock of the first.
    shifted = again.ops.filter(pl.col("rank") == 3)["start_ns"] - profile.ops.filter(pl.col("rank") == 3)["start_ns"]
    assert abs(abs(int(shifted.median())) - 700_000) < 20_000  # type: ignore[arg-type]
