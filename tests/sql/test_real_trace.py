"""On a trace of four H200 ranks: derived tables hold what the commands say, and times what the file itself holds."""

from __future__ import annotations

import lzma
import sqlite3
from pathlib import Path

import pytest
from test_cookbook import QUERIES

from stepscope import api

PACKED = Path(__file__).parents[1] / "data" / "h200" / "moe4" / "overlapped.sqlite.xz"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("moe4") / "overlapped.sqlite"
    path.write_bytes(lzma.decompress(PACKED.read_bytes()))
    return path


@pytest.fixture(scope="module")
def profile(file):
    return api.open(file, cache=False)


def test_ops_are_the_file_s(file, profile):
    connection = sqlite3.connect(file)
    text = (
        "SELECT s.value, count(*), sum(k.end - k.start) FROM CUPTI_ACTIVITY_KIND_KERNEL k"
        " JOIN StringIds s ON s.id = k.demangledName GROUP BY s.value ORDER BY s.value"
    )
    raw = connection.execute(text).fetchall()
    connection.close()
    ours = "SELECT name, count(*) AS n, sum(dur_ns) AS ns FROM ops WHERE kind = 'kernel' GROUP BY name ORDER BY name"
    assert profile.sql(ours).rows.rows() == raw and len(raw) > 5


@pytest.mark.parametrize(("options", "kind"), [({"step": True}, "<> 'chunk'"), ({"chunk": True}, "= 'chunk'")])
def test_exposure_is_that_of_the_command(profile, options, kind):
    columns = ("rank", "range", "name", "stream", "start_ns", "dur_ns", "exposed_ns", "barrier")
    asked = profile.sql(f"SELECT {', '.join(columns)} FROM exposures WHERE chosen AND kind {kind}").rows
    said = profile.exposed(**options).rows.select(columns)
    assert sorted(asked.rows(), key=str) == sorted(said.rows(), key=str) and said.height > 20


def test_stages_are_those_of_the_command(profile):
    text = (
        "SELECT rank, coalesce(stage, '(no stage)') AS stage, count(*) AS n, sum(exposed_ns) AS ns FROM exposures"
        " WHERE chosen AND kind = 'chunk' AND NOT barrier GROUP BY ALL"
    )
    said = profile.overlap().rows.select("rank", "stage", "n", "exposed_ns")
    assert set(profile.sql(text).rows.rows()) == {row for row in said.rows() if row[2]} != set()


def test_meetings_are_the_collectives(profile):
    columns = ("op", "seq", "ranks", "bytes", "transfer_ns", "max_wait_ns", "wait_ns", "last_rank", "busbw_gbps")
    asked = profile.sql(f"SELECT {', '.join(columns)} FROM meetings").rows.rows()
    assert sorted(asked, key=str) == sorted(profile.collectives().rows.select(columns).rows(), key=str)


def test_the_cookbook_has_rows_where_the_trainer_marks_chunks_alone(profile):
    for title, text in QUERIES.items():
        assert profile.sql(text).rows.height, title
