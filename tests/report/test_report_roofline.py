"""The section on measured kernels: there where a report of Nsight Compute was given, and nowhere else."""

from __future__ import annotations

import lzma
from pathlib import Path

from stepscope import api
from stepscope.render.html.report import to_html
from stepscope.render.report_markdown import to_markdown
from stepscope.report import Asker, Report, gather

DATA = Path(__file__).parents[1] / "data/ncu/train"


def made(*paths: Path) -> Report:
    profile = api.open(*paths, cache=False).view(in_one_part=True)
    asker = Asker(lambda name, **options: api.analyse(profile, name, **options), tuple(map(str, paths)))
    return gather(asker, "stepscope report")


def test_kernels_of_a_report_are_drawn(tmp_path: Path) -> None:
    page = tmp_path / "train.raw.csv"
    page.write_bytes(lzma.decompress((DATA / "train.raw.csv.xz").read_bytes()))
    report = made(DATA / "train.pt.trace.json.gz", page)
    (part,) = [p for p in report.parts if p.id == "roofline"]
    assert len(part.data["rows"]) == 6
    first = part.data["rows"][0]
    assert (first["name"], first["bound"], first["ops"], first["matched"]) == ("scatter_rows", "bandwidth", 16, "kind")
    assert {roof["roof"] for roof in part.data["roofs"]} >= {"bf16 tensor", "DRAM", "L2", "L1"}
    assert str(page) in part.command
    assert "How near the measured kernels are to their roofs" in to_html(report)
    assert "`scatter\\_rows`" in to_markdown(report) or "scatter" in to_markdown(report)


def test_identical_launches_are_one_row(shared: Path) -> None:
    report = made(shared / "traces/h200/train/eager.sqlite", shared / "traces/h200/ncu/ncu_full_raw.csv")
    (part,) = [p for p in report.parts if p.id == "roofline"]
    assert [row["n"] for row in part.data["rows"]] == [4, 4, 4, 8, 4, 4, 4, 8]
    assert part.data["left_out"] == 0


def test_a_timeline_alone_misses_nothing(tmp_path: Path) -> None:
    report = made(DATA / "train.pt.trace.json.gz")
    assert "roofline" not in [p.id for p in report.parts]
    assert "roofs" not in " ".join(m.title for m in report.missing)
