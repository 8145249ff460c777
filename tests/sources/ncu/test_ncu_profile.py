"""What Nsight Compute measured, as a profile: alone, beside a timeline, and where it is no answer."""

from __future__ import annotations

import lzma
from pathlib import Path

import pytest

import stepscope
from stepscope import questions

EAGER = Path(__file__).parents[2] / "data/h200/train/eager.sqlite.xz"


def test_alone(raw: Path) -> None:
    profile = stepscope.open(raw)
    assert not profile.has_timeline
    assert not profile.has("ops")
    summary = profile.info().summary
    assert summary["tables"] == ["measured", "metrics"]
    assert [entry["kernels"] for entry in summary["measured"]] == [7]


def test_questions_about_a_timeline_say_what_the_file_is(raw: Path) -> None:
    profile = stepscope.open(raw)
    for name in questions.names():
        if questions.get(name).timeless or not questions.get(name).needs_profile:
            continue
        with pytest.raises(
            stepscope.CannotAnswer, match=r"raw\.csv is a page exported by Nsight Compute.*`info`"
        ) as error:
            stepscope.api.analyse(profile, name)
        assert "\n" not in str(error.value)


def test_beside_a_timeline_it_is_no_rank(raw: Path, details: Path, tmp_path: Path) -> None:
    timeline = tmp_path / "eager.sqlite"
    timeline.write_bytes(lzma.decompress(EAGER.read_bytes()))
    profile = stepscope.open(raw, timeline, details)
    alone = stepscope.open(timeline)
    assert profile.ranks.drop("source").equals(alone.ranks.drop("source"))
    assert profile.ops.equals(alone.ops)
    measured = {Path(profile.sources[i].file).name for i in profile.table("measured")["source"].unique()}
    assert measured == {raw.name, details.name}
    assert profile.breakdown().rows.equals(alone.breakdown().rows)
    assert len(profile.breakdown().sources) == 3
    assert profile.view([0]).table("measured").height == 14


def test_from_the_cache_as_from_the_file(raw: Path) -> None:
    for _ in range(2):
        profile = stepscope.open(raw)
        assert profile.table("measured", detail=True).height == 7
    fresh = stepscope.open(raw, cache=False)
    for table in ("measured", "metrics", "advice"):
        assert profile.table(table, detail=True).equals(fresh.table(table, detail=True))


def test_two_runs_are_not_compared(raw: Path) -> None:
    with pytest.raises(stepscope.CannotAnswer, match="page exported by Nsight Compute"):
        stepscope.api.compare(str(raw), str(raw))
