"""`--labels` holds for every command: a trace whose labels were renamed, read by rules for them, answers as before."""

from __future__ import annotations

import csv
import json
import lzma
import re
import shlex
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from stepscope import api
from stepscope.cli.main import run
from stepscope.errors import BadInput, CannotAnswer
from stepscope.model.label_rules import load, names

TRACE = Path(__file__).parents[1] / "data" / "h200" / "moe4" / "overlapped.sqlite.xz"
#: What the renamed trace calls things: nothing that is known without asking.
RENAMED = {"stage": "fase", " chunk": " piece", "pipeline send/recv": "neighbours"}
RULES = r"""
chunk = 'forward piece .* backward piece'
first_pass = '^forward piece 0 \(phase0\)'
stage = 'fase([1-5])_([fbw])'

[[purpose]]
range = '^neighbours$'
purpose = "pp_p2p"

[[purpose]]
stage = '^fase[24]'
purpose = "ep_a2a"

[[purpose]]
stage = '^fase1'
purpose = "ep_meta"

[[micro_batch]]
pattern = '\b(?P<kind>forward|backward|weight) piece(?: (?P<mb>\d+))?(?: \(phase(?P<part>\d+)\))?'
"""


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """The trace, the same renamed, and the rules for that."""
    folder = tmp_path_factory.mktemp("labels")
    plain, renamed, rules = folder / "plain.sqlite", folder / "renamed.sqlite", folder / "mine.toml"
    plain.write_bytes(lzma.decompress(TRACE.read_bytes()))
    renamed.write_bytes(plain.read_bytes())
    rules.write_text(RULES, "utf-8")
    with sqlite3.connect(renamed) as db:
        for old, new in RENAMED.items():
            for table, column in (("StringIds", "value"), ("NVTX_EVENTS", "text")):
                kernels = " AND value NOT LIKE '%nccl%' AND value NOT LIKE '%::%'" if table == "StringIds" else ""
                db.execute(f"UPDATE {table} SET {column} = replace({column}, ?, ?) WHERE 1{kernels}", (old, new))
    db.close()
    return plain, renamed, rules


def told(text: str) -> str:
    """An answer with the names of the plain trace."""
    for old, new in RENAMED.items():
        text = text.replace(new, old)
    return text


ASKED: list[tuple[str, dict[str, Any]]] = [
    ("window", {}),
    ("streams", {}),
    ("overlap", {}),
    ("overlap", {"by": "purpose", "step": True}),
    ("exposed", {"top": 5}),
    ("kernels", {"stage": "stage2_f"}),
    ("pipeline", {"by": "rank"}),
    ("pipeline", {"by": "chunk"}),
    ("collectives", {"by": "group"}),
    ("iterations", {}),
    ("diagnose", {"least": 0.0}),
]


@pytest.mark.parametrize(
    ("name", "options"),
    [pytest.param(*a, marks=() if a[0] in ("window", "overlap", "streams") else pytest.mark.slow) for a in ASKED],
    ids=str,
)
def test_every_question(traces: tuple[Path, Path, Path], name: str, options: dict[str, Any]):
    plain, renamed, rules = traces
    wanted = api.analyse(api.open(plain, cache=False), name, **options)
    if "stage" in options:
        options = {**options, "stage": "fase2_f"}
    found = api.analyse(api.open(renamed, labels=rules, cache=False), name, **options)
    without = ("command", "module")  # a module is what the program calls it
    assert json.loads(told(found.rows.drop(without, strict=False).write_json())) == json.loads(
        wanted.rows.drop(without, strict=False).write_json()
    )
    assert told(str(found.summary.get("statement"))) == str(wanted.summary.get("statement"))


def test_without_the_rules_the_labels_are_unknown(traces: tuple[Path, Path, Path]):
    """The test above must be able to fail."""
    _, renamed, _ = traces
    profile = api.open(renamed, cache=False)
    assert set(profile.overlap().rows["stage"].to_list()) == {"(no stage)"}
    with pytest.raises(CannotAnswer, match="no range marks chunks"):
        profile.window(chunk=True)


@pytest.mark.slow
def test_what_is_kept_of_a_file_is_not_mixed_up(traces: tuple[Path, Path, Path]):
    """One file, read through the cache by three sets of rules: each answers as it does without a cache."""
    _, renamed, rules = traces
    for labels in (rules, None, "megatron", rules, None):
        kept, fresh = (api.open(renamed, labels=labels, cache=cache).overlap().rows for cache in (True, False))
        assert kept.equals(fresh)


def test_workers_read_by_the_same_rules(traces: tuple[Path, Path, Path]):
    _, renamed, rules = traces
    wanted = api.open(renamed, labels=rules, cache=False).pipeline(by="rank").rows
    assert api.open(renamed, labels=rules, cache=False, jobs=2).pipeline(by="rank").rows.equals(wanted)


def test_runs_are_compared_by_the_same_rules(traces: tuple[Path, Path, Path], tmp_path: Path, capsys: Any):
    plain, renamed, rules = traces
    assert run(["compare", str(renamed), "--to", str(renamed), "--by", "stage", "--labels", str(rules)]) == 0
    assert "fase2_f" in capsys.readouterr().out
    with pytest.raises(BadInput, match=r"read by other labels \(default\) than the new run \(mine.toml \("):
        api.compare(api.open(plain), api.open(renamed, labels=rules))
    saved = str(tmp_path / "base.json")
    assert run(["gate", str(renamed), "--save", saved, "--labels", str(rules)]) == 0
    assert run(["gate", str(renamed), "--baseline", saved, "--allow-inconclusive"]) == 2
    assert "give the same --labels" in capsys.readouterr().err
    again = ["gate", str(renamed), "--baseline", saved, "--labels", str(rules), "--allow-inconclusive"]
    assert run(again) == 0


@pytest.mark.slow
def test_sql_and_the_report_too(traces: tuple[Path, Path, Path], tmp_path: Path, capsys: Any):
    _, renamed, rules = traces
    page = tmp_path / "page.md"
    assert run(["report", str(renamed), "--labels", str(rules), "-o", str(page)]) == 0
    named = re.findall(r"(?<!\\)`(stepscope [^`]+)`", page.read_text("utf-8"))
    commands = [line for line in named if str(renamed) in line]  # others are advice: `stepscope info`
    assert len(commands) > 3
    for line in commands:
        words = shlex.split(line)
        assert words[words.index("--labels") + 1] == str(rules), line
    pytest.importorskip("duckdb")
    capsys.readouterr()
    query = "SELECT DISTINCT stage FROM exposures WHERE kind = 'chunk' AND stage IS NOT NULL ORDER BY 1"
    assert run(["sql", str(renamed), query, "--labels", str(rules), "--format", "csv"]) == 0
    assert capsys.readouterr().out.split()[1:] == ["fase2_b", "fase2_f", "fase4_b", "fase4_f"]


def test_the_worked_example_of_the_docs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any):
    """docs/labels.md as it stands: its commands run, and print the figures that it states."""
    page = (Path(__file__).parents[2] / "docs" / "labels.md").read_text("utf-8")
    example = page.partition("## A worked example")[2].partition("## Keys")[0]
    monkeypatch.chdir(tmp_path)
    (rules,) = re.findall(r"```toml\n(.*?)```", example, re.DOTALL)
    Path("passes.toml").write_text(rules, "utf-8")
    lines = [line for block in re.findall(r"```bash\n(.*?)```", example, re.DOTALL) for line in block.splitlines()]
    for line in lines:
        capsys.readouterr()
        assert run([*shlex.split(line)[1:], *([] if "simulate" in line else ["--no-cache"])]) == 0, line
    hidden = {
        row["stage"]: f"{float(row['overlap_pct']):.1f} %"
        for row in csv.DictReader(capsys.readouterr().out.splitlines())
    }
    assert list(hidden) == ["backward mb", "forward mb", "(no stage)"]
    assert f"backward pass {hidden['backward mb']}" in example and f"forward pass {hidden['forward mb']}" in example


def test_files_of_the_docs_are_good(tmp_path: Path):
    page = (Path(__file__).parents[2] / "docs" / "labels.md").read_text("utf-8")
    for k, text in enumerate(re.findall(r"```toml\n(.*?)```", page, re.DOTALL)):
        (tmp_path / f"{k}.toml").write_text(text, "utf-8")
        assert load(tmp_path / f"{k}.toml").identity != "default"
    listed = re.findall(r"^\| `([a-z-]+)` \|", page.partition("## Presets")[2], re.MULTILINE)
    assert sorted(listed) == names()
