"""The report's Python side: what it asks, what it embeds, and that no name becomes markup."""

from __future__ import annotations

import base64
import gzip
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from report_answers import STEP_NS, answers, diagnosis, finding, ops

import stepscope
from stepscope import api
from stepscope.cli.main import run
from stepscope.derive.host.idle_causes import CAUSES
from stepscope.errors import CannotAnswer
from stepscope.model.result import Result
from stepscope.render.html.palette import COLOURS
from stepscope.render.html.report import to_html
from stepscope.render.inert import markdown as text
from stepscope.render.md import code
from stepscope.render.report_markdown import to_markdown
from stepscope.report import Asker, gather
from stepscope.simulate.job.scenario import Scenario
from stepscope.simulate.run import simulate_to
from stepscope.timeline.scale import drawn, scales

BUNDLE = Path(stepscope.__file__).parent / "render" / "html" / "bundle"
HOSTILE = '</script><script>window.hacked=1</script><img src=x onerror="window.hacked=2"><!--'


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pipeline of four ranks; rank 3 is slow."""
    folder = tmp_path_factory.mktemp("job")
    faults = ("straggler:rank=3,factor=1.5",)
    shape = {"pp": 2, "ep": 1, "dp": 2, "layers": 4, "micro_batches": 4, "steps": 2, "seed": 5}
    simulate_to(Scenario(schedule="1f1b", faults=faults, **shape), folder, ("nsys",))
    return folder


@pytest.fixture(scope="module")
def page(job: Path) -> dict:
    target = job.parent / "report.html"
    assert run(["report", str(job), "-o", str(target)]) == 0
    return embedded(target.read_text("utf-8"))


def embedded(html: str) -> dict:
    """The JSON of a page, and its block of numbers as columns."""
    found = re.search(r'<script type="application/json" id="report">(.*?)</script>', html, re.S)
    block = re.search(r'<script type="text/plain" id="block">(.*?)</script>', html, re.S)
    assert found is not None and block is not None
    data = json.loads(found[1])
    if data["timeline"]:
        raw = gzip.decompress(base64.b64decode(block[1]))
        data["marks"] = {
            name: np.frombuffer(raw, f"<{c['type']}", c["n"], c["at"])
            for name, c in data["timeline"]["marks"]["columns"].items()
        }
    return data


def lanes(page: dict) -> Iterator[tuple[dict, slice, np.ndarray]]:
    """Every lane, where its marks lie in the columns, and when they start."""
    first = 0
    for lane, n, base in page["timeline"]["marks"]["rows"]:
        rows = slice(first, first + n)
        yield (
            page["timeline"]["drawing"]["lanes"][lane],
            rows,
            base + np.cumsum(page["marks"]["start"][rows].astype(int)),
        )
        first += n


def fake(table: pl.DataFrame, *findings: dict, **said: str) -> Asker:
    return Asker(answers(table, diagnosis(*findings, **said)), ("trace.sqlite",))


# -- what it says ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_figures_are_those_of_the_commands(job, page):
    profile = api.open(job)
    mine = {r["rank"]: r for r in page["parts"]["breakdown"]["rows"]}
    for row in profile.breakdown().rows.to_dicts():
        assert {k: mine[row["rank"]][k] for k in row} == row
        assert sum(mine[row["rank"]]["causes"].values()) == row["idle_ns"]
    assert page["findings"]["statement"] == profile.diagnose().summary["statement"]
    assert page["parts"]["stragglers"]["rows"] == profile.stragglers().rows.to_dicts()
    total = profile.overlap(by=page["parts"]["overlap"]["by"]).rows["comm_ns"].sum()
    assert sum(r["comm_ns"] for r in page["parts"]["overlap"]["rows"]) == total
    assert len(page["parts"]["pipeline"]["chunks"]) == profile.pipeline(by="chunk").rows.height
    assert [m["title"] for m in page["missing"]] == ["How much of the peak is used", "Memory"]  # not simulated


def test_the_peak_where_shapes_are_recorded(shared):
    opened = api.open(shared / "traces" / "h200" / "train" / "eager.pt.trace.json.gz", cache=False)
    asker = Asker(lambda name, **options: getattr(opened, name.replace("-", "_"))(**options), ("eager",))
    report = gather(asker, "stepscope report", drawn=False)
    (peak,) = [p for p in report.parts if p.id == "peak"]
    assert peak.data["rows"] == opened.mfu().rows.to_dicts()
    terms = opened.mfu(by="term").rows
    shown = [t["hardware_flops"] for t in peak.data["terms"]]
    assert shown == terms["hardware_flops"].to_list()[: len(shown)]
    assert len(shown) + peak.data["left_out"] == terms.height
    assert peak.data["terms"][0]["peak_pct"] == pytest.approx(terms["peak_pct"][0])
    assert "989.5 TFLOP/s (bf16)" in to_markdown(report)


@pytest.mark.slow
def test_commands_on_the_page_can_be_run(job, page, capsys):
    parts = [page["findings"], *page["parts"].values(), page["timeline"]]
    for line in dict.fromkeys([p["command"] for p in parts] + [f["command"] for f in page["findings"]["rows"]]):
        words = shlex.split(line)
        assert words[0] == "stepscope" and str(job) in words
        assert run([*words[1:], "--format", "json"]) == 0, line
    capsys.readouterr()


def test_the_timeline_has_every_op_at_its_time(job, page):
    profile = api.open(job)
    marks, texts = page["marks"], [t[-1] for t in page["timeline"]["texts"]]
    scale = {r["rank"]: r for r in page["timeline"]["drawing"]["ranks"]}
    found = set()
    for lane, rows, start in lanes(page):
        if lane["group"] != "streams":
            continue
        assert lane["n"] == len(start) and not marks["busy"][rows].any()
        own = int(scale[lane["rank"]]["own"]) - scale[lane["rank"]]["drawn"]
        names = [texts[i] for i in marks["name"][rows]]
        every = zip((start + own).tolist(), marks["dur"][rows].tolist(), names, strict=True)
        found |= {(lane["rank"], lane["level"], *op) for op in every}
    spans = {w["rank"]: (min(w["cpu_start_ns"], w["gpu_start_ns"]), w["gpu_end_ns"]) for w in profile.window().window}
    want = {
        (r["rank"], r["stream"], r["start_ns"], r["end_ns"] - r["start_ns"], profile.names[r["name"]])
        for r in profile.ops.iter_rows(named=True)
        if r["start_ns"] < spans[r["rank"]][1] and r["end_ns"] > spans[r["rank"]][0]
    }
    assert found == want


def test_hosts_are_drawn_on_one_clock(tmp_path):
    """The clock of node 1 is ahead, and drifts: its ranks are drawn where they were, and can be told back."""
    faults = ("clock:node=1,offset_us=700,drift_ppm=40",)
    shape = {"pp": 2, "ep": 1, "dp": 2, "nodes": 2, "layers": 2, "micro_batches": 4, "steps": 2, "seed": 5}
    simulate_to(Scenario(schedule="1f1b", faults=faults, **shape), tmp_path, ("kineto",))
    rows = api.open(tmp_path).timeline(step=True).rows
    by_rank = scales(rows, int(rows["common_start_ns"].min()))
    ahead = {r: s.own - s.common for r, s in by_rank.items()}
    assert ahead[1] - ahead[0] == pytest.approx(0, abs=2_000)
    assert [ahead[r] - ahead[0] for r in (2, 3)] == pytest.approx([700_000] * 2, abs=20_000)
    origin = int(rows["common_start_ns"].min())
    moved = drawn(rows, by_rank, "start_ns")["start_ns"] - (rows["common_start_ns"] - origin)
    assert moved.abs().max() <= 1


def test_a_range_around_everything_is_cut_at_the_drawing_s_edge():
    """Also on a clock that drifts: it began a second before, 60 µs off by the clock of the others."""
    table = ops(["gemm"], [None])
    inner = answers(table, diagnosis(finding()))

    def answer(name: str, **options: object) -> Result:
        found = inner(name, **options)
        if options.get("by") == "host":
            early = {"start_ns": -(10**9), "end_ns": 10**9, "dur_ns": 2 * 10**9, "common_start_ns": -(10**9) - 60_000}
            found.rows = found.rows.with_columns(pl.lit(v, pl.Int64).alias(k) for k, v in early.items())
        return found

    data = embedded(to_html(gather(Asker(answer, ("t.sqlite",)), "x")))
    rows, start = next((rows, start) for lane, rows, start in lanes(data) if lane["group"] == "host")
    assert (start.tolist(), data["marks"]["dur"][rows].tolist()) == ([0], [STEP_NS])


def test_the_page_is_told_what_it_draws(page: dict):
    """Kinds, causes and chunks come with the data, and the style sheet has a colour for each."""
    sheet = (BUNDLE / "report.css").read_text("utf-8")
    kinds = page["timeline"]["drawing"]["kinds"]
    assert [k["part"] for k in kinds if k["part"]] == ["compute", "exposed communication", "exposed copies", "idle"]
    assert all(k["colour"] in COLOURS for k in kinds)
    assert max(page["marks"]["kind"]) < len(kinds)
    causes = [cause for cause, _ in page["parts"]["breakdown"]["causes"]]
    assert sorted(causes) == sorted(CAUSES)
    assert all(f".idle-{cause}" in sheet for cause in causes)
    chunks = dict(page["parts"]["pipeline"]["kinds"])
    assert {c["kind"] for c in page["parts"]["pipeline"]["chunks"]} <= set(chunks)
    assert all(f".chunk-{kind}" in sheet for kind in chunks)


def test_lanes_say_what_they_hold(page: dict, job: Path):
    of_rank = [lane for lane in page["timeline"]["drawing"]["lanes"] if lane["rank"] == 0]
    groups = [lane["group"] for lane in of_rank]
    assert sorted(set(groups), key=groups.index) == ["parts", "ranges", "streams", "host"]
    known = {r["stream"]: r for r in api.open(job).streams().rows.to_dicts() if r["rank"] == 0}
    for lane in of_rank:
        if lane["group"] == "streams":
            row = known[lane["level"]]
            told = row["kind"] == "comm" and row["purpose"] != "unknown"
            what = row["purpose"] if told else row["kind"]
            assert lane["label"] == f"stream {lane['level']} {what}"
    profile = api.open(job)
    threads = set(profile.calls.filter(pl.col("rank") == 0)["tid"].to_list())
    calls = [lane["label"] for lane in of_rank if lane["label"].endswith(": calls")]
    assert set(calls) == {f"thread {tid}: calls" for tid in threads}


def test_what_cannot_be_answered_is_said():
    report = gather(fake(ops(["gemm"], [None]), finding()), "stepscope report")
    assert {m.title for m in report.missing} == {
        "What stands between the step and the hardware",
        "Is communication hidden?",
        "How much of the peak is used",
        "Memory",
        "Collectives",
        "Who makes whom wait",
        "Pipeline",
    }
    assert "no pipeline here; profile a step of a multi-GPU run" in to_html(report)
    assert "no stragglers here" in to_markdown(report)


def test_without_gpu_activity_there_is_no_report(capsys, tmp_path):
    def nothing(name: str, **_: object) -> None:
        raise CannotAnswer("the profile has no GPU activity")

    with pytest.raises(CannotAnswer):
        gather(Asker(nothing, ()), "x")  # type: ignore[arg-type]


def test_a_finding_without_a_place_shows_its_rank_s_step():
    data = embedded(to_html(gather(fake(ops(["gemm"], [None]), finding(where=[])), "x")))
    assert data["findings"]["rows"][0]["where"] == [{"rank": 0, "stream": None, "start": 0, "end": STEP_NS}]
    assert data["findings"]["rows"][0]["command"] == "stepscope stragglers trace.sqlite"


# -- the command -------------------------------------------------------------------------------------------------------


def test_markdown_is_small_and_says_the_same(job, capsys):
    assert run(["report", str(job), "--rank", "0,3"]) == 0
    out = capsys.readouterr().out
    statement = api.open(job).view([0, 3]).diagnose().summary["statement"]  # type: ignore[attr-defined]
    assert text(statement) in out and len(out) < 8000
    rows = [line for line in out.splitlines() if re.match(r"\| [0-3] \| [\d.]+ m?s", line)]
    assert [line.split(" | ")[0] for line in rows if "ms" in line][:2] == ["| 0", "| 3"]


@pytest.mark.parametrize(
    ("file", "why"), [("report.pdf", "end it in .html or .md"), ("gone/report.html", "no directory")]
)
def test_what_cannot_be_written_is_refused_first(file, why, tmp_path, capsys):
    assert run(["report", str(tmp_path / "nothing.sqlite"), "-o", str(tmp_path / file)]) == 2
    assert why in capsys.readouterr().err


# -- nothing becomes markup --------------------------------------------------------------------------------------------


def hostile_page() -> str:
    bad = finding(title=HOSTILE, evidence=HOSTILE, try_next=HOSTILE, id=HOSTILE, stage=HOSTILE)
    asker = Asker(answers(ops([HOSTILE], [HOSTILE]), diagnosis(bad, statement=HOSTILE), HOSTILE), (HOSTILE,))
    return to_html(gather(asker, asker.command("report")))


def test_names_do_not_become_markup():
    html = hostile_page()
    outside = re.sub(r"<script>.*?</script>\n</body>", "", html, flags=re.S)  # the bundle itself
    assert "window.hacked=1</script>" not in outside and "<img" not in outside
    assert html.count("<script") == 3 + (BUNDLE / "report.js").read_text("utf-8").count("<script")
    assert embedded(html)["findings"]["rows"][0]["title"] == HOSTILE


def test_the_bundle_cannot_close_its_own_tag():
    assert "</script" not in (BUNDLE / "report.js").read_text("utf-8").lower()
    assert "</style" not in (BUNDLE / "report.css").read_text("utf-8").lower()


def test_the_page_forbids_every_request():
    html = hostile_page()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', html)
    assert policy is not None and policy[1].startswith("default-src 'none'")
    assert not re.findall(r"(?:src|href)=[\"']?https?:", html)


@pytest.mark.parametrize(
    ("plain", "shown"),
    [
        ("a_b*c`d`", r"a_b\*c\`d\`"),
        ("_a_ b_", r"\_a\_ b\_"),
        ("void k<float, 4>(x)", "void k&lt;float, 4&gt;(x)"),
        ("a | b", r"a \| b"),
        ("@someone fixed #12", "@<!-- -->someone fixed #<!-- -->12"),
        ("[x](http://y)", r"\[x\](http://y)"),
        ("# a\nb", r"\# a b"),
        (r"back\slash", r"back\\slash"),
    ],
)
def test_markdown_shows_texts_as_they_are(plain, shown):
    assert text(plain) == shown


def test_markdown_code_takes_any_text():
    assert code("a b") == "`a b`"
    assert code("a `b` c") == "``a `b` c``"
    assert code("`x`") == "`` `x` ``"


def test_markdown_tables_keep_their_columns():
    bad = finding(title="a | b", evidence="`|` | x", try_next="y|z", command="x | y", id="a|b")
    report = gather(fake(ops(["gemm"], [None]), bad), "stepscope report 'a|b'", drawn=False)
    table = [line for line in to_markdown(report).splitlines() if line.startswith("| 1 |")]
    assert len(table) == 1 and len(re.findall(r"(?<!\\)\|", table[0])) == 9


# -- packing -----------------------------------------------------------------------------------------------------------


def test_the_same_report_has_the_same_bytes():
    table = ops(["a", "b", "a"], ["x", None, "y"])
    assert to_html(gather(fake(table, finding()), "x")) == to_html(gather(fake(table, finding()), "x"))


def test_a_very_large_window_is_thinned_and_says_so(monkeypatch):
    from stepscope.report.sections import timeline

    monkeypatch.setitem(timeline.MOST, "streams", 50)
    data = embedded(to_html(gather(fake(ops(["k"] * 500, [None] * 500), finding()), "x")))
    lane, rows, start = next(each for each in lanes(data) if each[0]["group"] == "streams")
    assert lane["n"] == 500 and len(start) <= 50
    assert data["marks"]["n"][rows].sum() == 500
    drawing = data["timeline"]["drawing"]
    assert drawing["ops"] == 500 and "500 of 500 ops" in data["timeline"]["left_out"][0]
