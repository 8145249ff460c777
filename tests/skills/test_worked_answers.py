"""The worked answers of the skills, followed literally: each command is run, then the Python below it.

What that prints is what the skill shows, and equals what Polars makes of the raw tables without our code (raw_nsys).
"""

from __future__ import annotations

import gzip
import json
import lzma
import pickle
import re
import shlex
import subprocess
import sys
from collections import Counter
from pathlib import Path
from statistics import mean, median

import polars as pl
import pytest

from raw_nsys import Covered, Raw
from stepscope.cli.main import run
from stepscope.files.skill_files import SKILLS

DATA = Path(__file__).parents[1] / "data"
ANSWERS = SKILLS / "analyze-profile" / "references" / "answers.md"
#: The capture whose figures the skill shows.
SHOWN = "moe4mps"
QUESTIONS = {
    "phases": "How well is each EP phase overlapped?",
    "worst": "Which stage is worst?",
    "balance": "Are the pipeline stages balanced?",
    "most": "Which rank and stage expose most?",
    "idle": "Why is the GPU idle?",
}


def section(path: Path, title: str) -> str:
    """The text below a heading, up to the next one."""
    found = re.search(rf"^##+ {re.escape(title)}\n(.*?)(?=^##|\Z)", path.read_text("utf-8"), re.S | re.M)
    assert found is not None, title
    return found[1]


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.S | re.M)


def follow(text: str, folder: Path, **files: Path) -> str:
    """Run the commands of a section, then its Python; what that prints."""
    for line in "".join(blocks(text, "bash")).splitlines():
        words = [str(files.get(word, word)) for word in shlex.split(line)]
        assert words[0] == "stepscope" and run(words[1:]) == 0, line
    (script,) = blocks(text, "python")
    done = subprocess.run([sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout


def unpacked(name: str, folder: Path) -> Path:
    path = folder / f"{name}.sqlite"
    path.write_bytes(lzma.decompress((DATA / "h200" / name / "overlapped.sqlite.xz").read_bytes()))
    return path


@pytest.fixture(scope="module", params=["moe4mps", "payloads", "shared moe4mps", "shared payloads"])
def trace(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A capture with two pipeline stages and two expert ranks: those committed, and the same as they were recorded."""
    where, _, name = request.param.rpartition(" ")
    if where:
        return name, request.getfixturevalue("shared") / "traces" / "h200" / name / "overlapped.sqlite"
    return name, unpacked(name, tmp_path_factory.mktemp("traces"))


@pytest.fixture(scope="module")
def raw(trace: tuple[str, Path]) -> Raw:
    return Raw(trace[1])


# -- what the raw tables say, in the words of the answers --------------------------------------------------------------


def every_exposure(raw: Raw) -> pl.DataFrame:
    """By rank, chunk and stage, of all overlapped chunks."""
    ops = pl.concat([raw.exposures(rank) for rank in sorted(raw.ranks["rank"])])
    return (
        ops.group_by("rank", "chunk", "stage").agg(pl.col("comm_ns", "exposed_ns").sum()).sort("rank", "chunk", "stage")
    )


def of_middle(raw: Raw, table: pl.DataFrame) -> pl.DataFrame:
    middle = {rank: raw.chunks(rank).height // 2 for rank in raw.ranks["rank"]}
    return table.filter(pl.col("chunk") == pl.col("rank").replace_strict(middle))


def phases(raw: Raw) -> str:
    table = of_middle(raw, every_exposure(raw))
    out = ""
    for stage in ("stage2_b", "stage2_f", "stage4_b", "stage4_f"):
        rows = table.filter(pl.col("stage") == stage).with_columns(
            hidden=100 * (1 - pl.col("exposed_ns") / pl.col("comm_ns"))
        )
        worst = rows.sort("hidden").row(0, named=True)
        hidden = 100 - 100 * rows["exposed_ns"].sum() / rows["comm_ns"].sum()
        out += f"{stage}: {hidden:.1f} % hidden; worst rank {worst['rank']}: {worst['hidden']:.1f} %\n"
    return out


def worst(raw: Raw) -> str:
    table = every_exposure(raw).with_columns(hidden=100 * (1 - pl.col("exposed_ns") / pl.col("comm_ns")))
    table = table.group_by("stage").agg(pl.col("exposed_ns", "hidden").median()).sort("stage")
    out = ""
    for stage, exposed, hidden in table.iter_rows():
        out += f"{stage}: {exposed / 1e6:.3f} ms exposed per rank and chunk, {hidden:.1f} % hidden\n"
    most, least = table.sort("exposed_ns")["stage"][-1], table.sort("hidden")["stage"][0]
    return f"{out}costs most: {most}\nhidden least: {least}\n"


def balance(raw: Raw) -> str:
    place = dict(raw.ranks.select("rank", "pp").iter_rows())
    chunks = pl.concat([raw.chunk_compute(rank).with_columns(stage=pl.lit(pp)) for rank, pp in place.items()])
    out = ""
    for part in (0, 1):
        rows = chunks.filter(pl.col("part") == part)
        typical = {stage: rows.filter(pl.col("stage") == stage)["compute_ns"].median() for stage in (0, 1)}
        for stage, ns in typical.items():
            over = 100 * (ns / median(typical.values()) - 1)
            out += f"fb chunks of part {part}, stage {stage}: {ns / 1e6:.3f} ms, {over:+.1f} %\n"
    compute = {rank: Covered(raw.of(rank).filter(pl.col("kernel") & ~pl.col("nccl"))).total for rank in place}
    means = {stage: mean(ns for rank, ns in compute.items() if place[rank] == stage) for stage in (0, 1)}
    out += "".join(f"stage {stage} computes {ns / 1e6:.1f} ms per rank\n" for stage, ns in means.items())
    return out + f"largest over smallest: {100 * (max(means.values()) / min(means.values()) - 1):+.1f} %\n"


def most(raw: Raw) -> str:
    table = of_middle(raw, every_exposure(raw)).sort("exposed_ns")
    row = table.row(-1, named=True)
    share = 100 * row["exposed_ns"] / table["exposed_ns"].sum()
    out = f"rank {row['rank']}, {row['stage']}: {row['exposed_ns'] / 1e6:.3f} ms exposed, "
    out += f"{share:.0f} % of all ranks and stages\n"
    ops = of_middle(raw, pl.concat([raw.exposures(rank) for rank in raw.ranks["rank"]])).sort("exposed_ns")
    op = ops.row(-1, named=True)
    out += f"largest op: rank {op['rank']}, {op['text']}, "
    out += f"{op['exposed_ns'] / 1e6:.3f} of {op['comm_ns'] / 1e6:.3f} ms exposed\n"
    # The next kernel of the compute stream was launched before this op began: all of it is held.
    later = (
        raw.of(op["rank"]).filter(pl.col("kernel") & ~pl.col("nccl"), pl.col("start") >= op["gpu_end"]).sort("start")
    )
    assert later["launch"][0] < op["gpu_start"]
    out += f"held {op['exposed_ns'] / 1e6:.3f} ms, starved 0.000 ms\n"
    for first, second in ((0, 1), (2, 3)):  # the expert groups: their all-to-alls meet in order
        a, b = (ops.filter(pl.col("rank") == rank).sort("launch") for rank in (first, second))
        last = pl.Series(
            pl.concat([a["gpu_start"].to_frame("a"), b["gpu_start"].to_frame("b")], how="horizontal").max_horizontal()
        )
        wait = ((last - a["gpu_start"]) + (last - b["gpu_start"])).sum()
        end = pl.concat([a["gpu_end"].to_frame("a"), b["gpu_end"].to_frame("b")], how="horizontal").min_horizontal()
        transfer = (end - last).clip(lower_bound=0).sum()
        out += f"ep {first}-{second}: {wait / 1e6:.3f} ms of waiting, {transfer / 1e6:.3f} ms of transfers\n"
    return out


def idle(raw: Raw) -> str:
    """Without the names of causes other than `queue`, and of ranges: those are told apart below."""
    ranks = sorted(raw.ranks["rank"])
    gaps = pl.concat([raw.gaps(rank) for rank in ranks])
    window = sum(int(raw.of(r)["end"].max() - raw.of(r)["start"].min()) for r in ranks)  # type: ignore[operator]
    total, queue = gaps["gap_ns"].sum(), gaps["queue_ns"].sum()
    return (
        f"idle {100 * total / window:.1f} % of the window, {total / len(ranks) / 1e6:.1f} ms per rank\n"
        f"cause queue: {100 * queue / total:.1f} % of it\n"
    )


# -- the tests ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("question", ["phases", "worst", "balance", "most"])
def test_the_answer_is_that_of_the_raw_tables(question, trace, raw, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = follow(section(ANSWERS, QUESTIONS[question]), tmp_path, PROFILE=trace[1])
    assert said == globals()[question](raw)


def test_idle_time_is_that_of_the_raw_tables(trace, raw, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = follow(section(ANSWERS, QUESTIONS["idle"]), tmp_path, PROFILE=trace[1])
    assert set(idle(raw).splitlines()) <= set(said.splitlines())
    # Ranges of queued ops are those that launched them; where nearly all is queued, they can be told without our code.
    if trace[0] == SHOWN:
        assert "cause queue: 99.8 %" in said
        gaps = pl.concat([raw.gaps(rank) for rank in raw.ranks["rank"]])
        ranges = raw.ranges.filter(pl.col("text").str.contains("stage")).sort("start")
        by = gaps.sort("launch").join_asof(
            ranges.rename({"start": "open", "end": "shut"}),
            left_on="launch",
            right_on="open",
            by="tid",
            check_sortedness=False,
        )
        by = (
            by.filter(pl.col("launch") < pl.col("shut")).group_by("text").agg(pl.col("queue_ns").sum()).sort("queue_ns")
        )
        name, ns = by.row(-1)
        assert f"range {name}: {100 * ns / gaps['gap_ns'].sum():.1f} % of it\n" in said


def test_others_run_while_a_rank_that_shares_its_gpu_is_idle(tmp_path):
    """The sentence of the skill says so of the capture that it shows."""
    raw = Raw(unpacked(SHOWN, tmp_path))
    for rank in raw.ranks["rank"]:
        others, gaps = Covered(raw.ops.filter(pl.col("rank") != rank)), raw.gaps(rank)
        assert (others.until(gaps["start"]) - others.until(gaps["free"])).sum() > 0.99 * gaps["gap_ns"].sum()


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_skill_shows_what_is_printed(question, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = section(ANSWERS, QUESTIONS[question])
    assert [follow(text, tmp_path, PROFILE=unpacked(SHOWN, tmp_path))] == blocks(text, "text")


@pytest.mark.parametrize("question", QUESTIONS)
def test_sentences_only_have_figures_that_were_printed(question):
    text = section(ANSWERS, QUESTIONS[question])
    (sentence,) = re.findall(r"(?:^> .*\n)+", text, re.M)
    (printed,) = blocks(text, "text")
    shown = Counter(re.findall(r"\d+\.\d+", printed))
    assert not [figure for figure in re.findall(r"\d+\.\d+", sentence) if figure not in shown]


def test_the_query_of_layers(tmp_path, monkeypatch):
    pytest.importorskip("duckdb")
    monkeypatch.chdir(tmp_path)
    trace = unpacked(SHOWN, tmp_path)
    text = section(SKILLS / "analyze-profile" / "SKILL.md", "5. What no command asks: SQL")
    for line in "".join(blocks(text, "bash")).splitlines():
        assert run([str(trace) if word == "PROFILE" else word for word in shlex.split(line)[1:]]) == 0
    said = {row["layer"]: row["exposed_ns"] for row in json.loads((tmp_path / "layers.json").read_text())["rows"]}
    raw = Raw(trace)
    ops = of_middle(raw, pl.concat([raw.exposures(rank) for rank in raw.ranks["rank"]]))
    layers = ops.group_by(layer=pl.col("text").str.extract(r"(layer\d+)")).agg(pl.col("exposed_ns").sum())
    assert said == dict(layers.iter_rows())


def test_comparing(shared, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = shared / "traces" / "h200" / "moe4mps"
    before, after = folder / "overlapped.sqlite", folder / "serialized.sqlite"
    text = section(SKILLS / "compare-runs" / "SKILL.md", "A worked answer")
    said = follow(text, tmp_path, BEFORE=before, AFTER=after)
    assert [said] == blocks(text, "text")
    lengths = [median(chunk_lengths(Raw(path))) / 1e6 for path in (before, after)]
    assert said.splitlines()[0] == f"slower: {lengths[0]:.2f} to {lengths[1]:.2f} ms"


def chunk_lengths(raw: Raw) -> list[float]:
    """Of each chunk: from its first op to the end of its last, on average over ranks."""
    ranks = sorted(raw.ranks["rank"])
    table = []
    for rank in ranks:
        for n, (start, end) in enumerate(raw.chunks(rank).select("start", "end").iter_rows()):
            ops = raw.of(rank).filter(pl.col("launch").is_between(start, end, closed="left"))
            table.append({"chunk": n, "ns": ops["end"].max() - ops["start"].min()})  # type: ignore[operator]
    return pl.DataFrame(table).group_by("chunk").agg(pl.col("ns").mean())["ns"].to_list()


def both(title: str) -> tuple[str, str]:
    """The two worked answers of a skill that has them under the same heading."""
    text = (SKILLS / "read-kernel-and-memory" / "SKILL.md").read_text("utf-8")
    first, second = re.findall(rf"^### {title}\n(.*?)(?=^##|\Z)", text, re.S | re.M)
    return first, second


def test_a_kernel_and_its_roof(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    report = DATA / "ncu" / "raw.csv"
    text, _ = both("A worked answer")
    said = follow(text, tmp_path, REPORT=report)
    assert [said] == blocks(text, "text")
    table = pl.read_csv(report, infer_schema=False)[1:].select(  # the first row has the units
        us=pl.col("gpu__time_duration.sum").str.replace_all(",", "").cast(pl.Float64),
        compute=pl.col("sm__throughput.avg.pct_of_peak_sustained_elapsed").cast(pl.Float64),
        memory=pl.col("gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed").cast(pl.Float64),
    )
    for row in table.sort("us", descending=True).head(2).iter_rows(named=True):
        assert f"1 launches, {100 * row['us'] / table['us'].sum():.1f} % of {table['us'].sum():.1f} us measured" in said
        assert f"compute {row['compute']:.1f} %, memory {row['memory']:.1f} % of peak" in said


def test_memory_at_its_peak(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    snapshot = tmp_path / "rank0.pickle"
    snapshot.write_bytes(gzip.decompress((DATA / "h200" / "memory" / "adamw_6layer.snapshot.pickle.gz").read_bytes()))
    _, text = both("A worked answer")
    said = follow(text, tmp_path, SNAPSHOT=snapshot)
    assert [said] == blocks(text, "text")
    state = pickle.loads(snapshot.read_bytes())  # our own file
    reserved = now = sum(segment["total_size"] for segment in state["segments"])
    for event in reversed(state["device_traces"][0]):
        now -= {"segment_alloc": 1, "segment_free": -1}.get(event["action"], 0) * event["size"]
        reserved = max(reserved, now)
    assert f"{reserved / 2**20:.1f} MiB reserved" in said
