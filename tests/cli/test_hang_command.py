"""`hang` by every front: the same verdict as a table, JSON, Markdown, a page, Python and MCP; and its exit statuses."""

from __future__ import annotations

import json
import re

import pytest

from agent_client import asked
from stepscope import api
from stepscope.agent.roots import Roots
from stepscope.agent.server import server
from stepscope.cli.main import run
from stepscope.simulate.hang.faults import CLASSES as HANGS
from stepscope.simulate.hang.faults import parse
from stepscope.simulate.hang.job import HangJob
from stepscope.simulate.hang.run import simulate_hang


@pytest.fixture(scope="module")
def dumps(tmp_path_factory):
    """By class, the folder of a job of which rank 3 is the culprit."""
    folder = tmp_path_factory.mktemp("dumps")
    for fault in ("host:rank=3", "healthy", "slow:rank=3"):
        job = HangJob(tp=2, pp=2, dp=2, seed=2, steps=8)
        simulate_hang(job, parse(fault)).write(folder / fault.partition(":")[0])
    return folder


def test_exit_statuses(dumps, tmp_path, capsys):
    assert run(["hang", str(dumps / "host")]) == 0
    assert "rank 3 stopped on the host" in capsys.readouterr().out
    assert run(["hang", str(dumps / "host"), "--fail-on", "hung"]) == 1
    assert "rank 3 stopped on the host" in capsys.readouterr().out
    assert run(["hang", str(dumps / "host" / "nccl_trace_rank_1")]) == 3
    assert "does not say who waits for whom" in capsys.readouterr().err
    (tmp_path / "log.txt").write_text("nothing\n")
    assert run(["hang", str(tmp_path)]) == 3
    assert "capture hang" in capsys.readouterr().err
    assert run(["hang", str(tmp_path / "nowhere")]) == 2


@pytest.mark.parametrize("fault", HANGS)
def test_dumps_of_every_class_from_the_command_line(fault, tmp_path, capsys):
    """Without a mesh, as one tries it first; what is planted is what is found."""
    assert run(["simulate", "--hang", fault, "--seed", "4", "-o", str(tmp_path)]) == 0
    planted = re.search(r"planted: (\S+?)(?:, ranks? (.*))?$", capsys.readouterr().out, re.M)
    assert planted is not None
    result = api.hang(tmp_path)
    verdict = {result.summary["verdict"], *result.summary.get("also_possible", ())}
    assert planted[1] in verdict or (planted[1] in ("slow", "healthy", "running") and verdict <= {"running", "slow"})
    if planted[2]:
        assert {int(rank) for rank in planted[2].split(", ")} & set(result.summary["culprits"])


def test_a_mesh_of_dumps_is_the_one_that_was_asked_for(tmp_path, capsys):
    assert run(["simulate", "--hang", "healthy", "--tp", "4", "--steps", "3", "-o", str(tmp_path)]) == 0
    assert "16 ranks, planted: running" in capsys.readouterr().out


@pytest.mark.parametrize("fault", ["healthy", "slow"])
def test_a_job_that_goes_on_passes_the_gate(dumps, fault, capsys):
    assert run(["hang", str(dumps / fault), "--fail-on", "hung"]) == 0
    assert "Not hung" in capsys.readouterr().out


def test_json_is_what_python_answers(dumps, capsys):
    assert run(["hang", str(dumps / "host"), "--format", "json"]) == 0
    said = json.loads(capsys.readouterr().out)
    result = api.hang(dumps / "host")
    assert said["summary"]["verdict"] == result.summary["verdict"] == "host-stopped"
    assert said["summary"]["culprits"] == [3] and len(said["rows"]) == result.rows.height


def test_markdown_has_the_verdict_and_a_row_for_each_place(dumps, tmp_path, capsys):
    assert run(["hang", str(dumps / "host"), "-o", str(tmp_path / "hang.md")]) == 0
    page = (tmp_path / "hang.md").read_text()
    result = api.hang(dumps / "host")
    assert "rank 3 stopped on the host" in page
    assert len(re.findall(r"^\| *(?:\d|\d.*\d) *\|", page, re.MULTILINE)) == result.rows.height


def test_the_page_shows_ranks_and_marks_the_culprit(dumps, tmp_path, capsys):
    assert run(["hang", str(dumps / "host"), "-o", str(tmp_path / "hang.html")]) == 0
    page = (tmp_path / "hang.html").read_text()
    picture = page[page.index("<svg") : page.index("</svg>")]
    assert "rank 3 stopped on the host" in page and "<script" not in page.lower()
    culprit = re.findall(r'<text[^>]*class="culprit"[^>]*>([^<]*)<', picture)
    assert culprit and all("3" in text for text in culprit)


def test_a_page_of_a_job_that_goes_on(dumps, tmp_path, capsys):
    assert run(["hang", str(dumps / "healthy"), "-o", str(tmp_path / "hang.html")]) == 0
    page = (tmp_path / "hang.html").read_text()
    assert "Not hung" in page and 'class="culprit"' not in page


def test_texts_of_dumps_do_not_become_markup(dumps, tmp_path, capsys):
    for file in (dumps / "host").iterdir():
        data = file.read_bytes().replace(b"trainer.py", b"<script>x/")
        (tmp_path / file.name).write_bytes(data)
    run(["hang", str(tmp_path), "-o", str(tmp_path / "hang.html")])
    assert "<script>x" not in (tmp_path / "hang.html").read_text()


def test_the_agent_is_told_the_same(dumps):
    made = server(Roots([dumps]))
    result = asked(made, "hang", dumps=str(dumps / "host"))
    assert not result.is_error
    text = json.dumps(result.structured_content)
    assert "host-stopped" in text and "rank 3 stopped on the host" in text
    failed = asked(made, "hang", dumps=str(dumps / "nowhere"))
    assert failed.is_error and "\n" not in failed.structured_content["error"]["message"]
