"""Pictures of answers: as many marks as rows, lengths in proportion; and simulated jobs from Python."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

import stepscope


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    shape = {"pp": 1, "ep": 1, "dp": 2, "layers": 2, "micro_batches": 2, "steps": 3}
    return stepscope.simulate(tmp_path_factory.mktemp("sim") / "job", fault="straggler:rank=1,factor=1.6", **shape)


def boxes(plot) -> list[tuple[float, float, str]]:
    """Width, height and what is said of every box."""
    root = ElementTree.fromstring(plot.svg)
    named = "{http://www.w3.org/2000/svg}"
    return [
        (float(box.attrib["width"]), float(box.attrib["height"]), box.find(f"{named}title").text)
        for box in root.iter(f"{named}rect")
    ]


def test_a_simulated_job_is_a_profile_with_its_fault(job):
    assert job.ranks["rank"].to_list() == [0, 1]
    assert "straggler" in job.diagnose().rows["id"].to_list()
    with pytest.raises(stepscope.BadInput, match="no option 'layer'; did you mean layers"):
        stepscope.simulate(layer=3)


def test_steps_are_bars_in_proportion(job):
    answer = job.iterations()
    drawn = boxes(answer.plot())
    assert len(drawn) == answer.rows.height
    lengths = answer.rows["period_ns"].to_list()
    assert [tall for _, tall, _ in drawn] == pytest.approx([56 * ns / max(lengths) for ns in lengths], abs=0.01)


def test_a_breakdown_fills_its_bars(job):
    answer = job.breakdown()
    row = answer.rows.row(0, named=True)
    by_title = {said.partition(":")[0]: wide for wide, _, said in boxes(answer.plot())[:4]}
    assert by_title["compute"] == pytest.approx(810 * row["compute_ns"] / answer.rows["window_ns"].max(), abs=0.01)


def test_a_timeline_has_a_box_per_op(job):
    answer = job.timeline(rank=0)
    assert len(boxes(answer.plot())) == answer.rows.height


def test_a_budget_ends_where_the_step_does(job):
    answer = job.compute(by="budget", rank=0)
    widths = [wide for wide, _, _ in boxes(answer.plot())]
    assert len(widths) == answer.rows.height and sum(widths) == pytest.approx(700, abs=len(widths) * 0.51)


def test_what_has_no_picture_says_what_has(job):
    with pytest.raises(stepscope.BadInput, match=r"no picture of overlap; there are some of iterations\(\)"):
        job.overlap().plot()


def test_a_picture_is_kept_as_a_file(job, tmp_path):
    plot = job.breakdown().plot()
    assert re.match(r"<svg [^>]*><style>", plot.save(tmp_path / "b.svg").read_text("utf-8"))
    assert plot.save(tmp_path / "b.html").read_text("utf-8").startswith("<!doctype html>")
    assert "<svg" in plot._repr_html_() and ":root{" not in plot._repr_html_()
    with pytest.raises(stepscope.BadInput, match="SVG or a page"):
        plot.save(tmp_path / "b.png")
