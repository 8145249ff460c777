"""Reports in a real Chromium: page/tests/report.test.mjs does what a reader does, here the reports are made.

What the browser must find is worked out from the profile's tables, not from the report.
"""

from __future__ import annotations

import json
import lzma
import shlex
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from report_answers import answers, diagnosis, finding, ops

from page_tools import read_in_browser
from stepscope import api
from stepscope.cli.main import run
from stepscope.model.result import Result
from stepscope.render.html.report import to_html
from stepscope.report import Asker, gather
from stepscope.simulate.job.scenario import Scenario
from stepscope.simulate.run import simulate_to

HOSTILE = "</script><script>window.hacked=1</script>"
IMAGE = '<img src="x" onerror="window.hacked=2">'
DATA = Path(__file__).parents[1] / "data"
SNAPSHOT = DATA / "h200/memory/llama_b4.snapshot.pickle.gz"
#: Ops of the large report.
MANY = 100_000


@pytest.mark.slow
def test_a_reader_can_use_it(page_tools, chromium, tmp_path, capsys):
    shown = _job(tmp_path)
    _hostile(tmp_path)
    _large(tmp_path)
    _measured(tmp_path)
    read_in_browser(page_tools, chromium, tmp_path, "report.test.mjs")
    # The command that the page gives for an op prints that op.
    assert run([*shlex.split(shown["command"])[1:], "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert shown["name"] in {row["name"] for row in rows}
    # Those that it gives for a span have the sums that it shows.
    span, sums = json.loads((tmp_path / "span.json").read_text("utf-8")), Counter[str]()
    for command in span["commands"]:
        assert run([*shlex.split(command)[1:], "--format", "json"]) == 0
        for row in json.loads(capsys.readouterr().out)["rows"]:
            sums.update({key: row[key] for key in span["sums"] if span["sums"][key] is not None})
    assert sums == {key: value for key, value in span["sums"].items() if value is not None} and sums["window_ns"]


def _write(folder: Path, report: str, asker: Asker, /, **expected: Any) -> dict[str, Any]:
    (folder / f"{report}.html").write_text(to_html(gather(asker, asker.command("report"))), "utf-8")
    (folder / f"{report}.expected.json").write_text(json.dumps(expected), "utf-8")
    return expected


def _job(folder: Path) -> dict[str, Any]:
    """A simulated job, with a finding on its longest compute kernel."""
    traces = folder / "traces"
    shape = {"pp": 2, "ep": 1, "dp": 2, "layers": 4, "micro_batches": 4, "steps": 2, "seed": 5}
    simulate_to(Scenario(schedule="1f1b", faults=("straggler:rank=3,factor=1.5",), **shape), traces, ("nsys",))
    profile = api.open(traces)
    step = profile.window()
    shown = _running(profile, step)
    longest = shown.filter((pl.col("rank") == 3) & (pl.col("role") == "compute")).sort("dur").row(-1, named=True)
    place = {"rank": 3, "start_ns": longest["start_ns"], "end_ns": longest["end_ns"], "stream": longest["stream"]}
    concluded = diagnosis(finding(ranks="3", where=[place]), statement="rank 3 is slow", window=step.window)

    def answer(name: str, **options: Any) -> Result:
        return concluded if name == "diagnose" else api.analyse(profile, name, **options)

    origin = min(int(shown[c].min()) for c in ("first", "start_ns"))  # type: ignore[arg-type]
    wanted = "flash_bwd"
    found = shown.filter(pl.col("text").str.contains(wanted)).sort("start_ns")
    assert found.height and not profile.names.gather(profile.ranges["name"]).str.contains(wanted).any()
    return _write(
        folder,
        "job",
        Asker(answer, (str(traces),)),
        statement="rank 3 is slow",
        titles=["rank 0 is slow"],
        chunks=profile.pipeline(by="chunk").rows.height,
        search={"text": wanted, "matches": found.height, "first": _span(found.row(0, named=True), origin)},
        place=_span(longest, origin),
        rank=3,
        name=longest["text"],
        command=f"stepscope timeline {shlex.quote(str(traces))} --rank 3 --start @{longest['start_ns']} "
        f"--end @{longest['end_ns']}",
    )


def _running(profile: api.Profile, step: Result) -> pl.DataFrame:
    """Ops that run in the step of their rank, from the moment that the host begins it."""
    first = pl.min_horizontal("cpu_start_ns", "gpu_start_ns").alias("first")
    spans = pl.DataFrame(step.window).select(pl.col("rank").cast(pl.Int32), first, "gpu_end_ns")
    return (
        profile.ops.join(spans, on="rank")
        .filter((pl.col("start_ns") < pl.col("gpu_end_ns")) & (pl.col("end_ns") > pl.col("first")))
        .with_columns(
            (pl.col("end_ns") - pl.col("start_ns")).alias("dur"),
            pl.col("name").replace_strict(dict(enumerate(profile.names.to_list()))).alias("text"),
        )
    )


def _span(op: dict[str, Any], origin: int) -> dict[str, int]:
    return {"start": op["start_ns"] - origin, "end": op["end_ns"] - origin}


def _hostile(folder: Path) -> None:
    bad = finding(title=HOSTILE, evidence=IMAGE, try_next=HOSTILE, id=IMAGE, stage=IMAGE)
    answer = answers(ops([HOSTILE, IMAGE], [IMAGE, HOSTILE]), diagnosis(bad, statement=HOSTILE), IMAGE)
    _write(folder, "hostile", Asker(answer, (IMAGE,)), texts=[HOSTILE, IMAGE])


def _large(folder: Path) -> None:
    names = [f"kernel_{i % 97}" for i in range(MANY)]
    answer = answers(ops(names, [None] * MANY), diagnosis(finding()))
    _write(folder, "large", Asker(answer, ("trace.sqlite",)), ops=MANY)


def _measured(folder: Path) -> None:
    """A capture with what the simulated job lacks: measured kernels, the model's FLOPs, the allocator's memory."""
    page = folder / "train.raw.csv"
    page.write_bytes(lzma.decompress((DATA / "ncu/train/train.raw.csv.xz").read_bytes()))
    paths = (DATA / "ncu/train/train.pt.trace.json.gz", page)
    profile, held = api.open(*paths, cache=False).view(in_one_part=True), api.open(SNAPSHOT, cache=False)
    concluded = diagnosis(finding())

    def answer(name: str, **options: Any) -> Result:
        return concluded if name == "diagnose" else api.analyse(profile, name, **options)

    of_memory = Asker(lambda name, **options: api.analyse(held, name, **options), (str(SNAPSHOT),))
    _write(folder, "measured", Asker(answer, tuple(map(str, paths)), of_memory=of_memory))


@pytest.mark.slow
@pytest.mark.parametrize("trace", ["moe4mps/overlapped.sqlite", "train/eager.pt.trace.json.gz"])
def test_real_traces_have_reports(shared, trace, tmp_path):
    target = tmp_path / "report.html"
    assert run(["report", str(shared / "traces" / "h200" / trace), "-o", str(target)]) == 0
    assert target.stat().st_size < 1_000_000
