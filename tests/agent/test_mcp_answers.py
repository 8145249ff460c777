"""Answers: in pages that together are all rows, never over the limit, whole as a resource, and findings with calls."""

from __future__ import annotations

import json
import shlex
import threading
import time
from pathlib import Path
from typing import Any

import anyio
import polars as pl
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

import cited
from agent_client import asked, call, every_row, talk
from stepscope import api, questions
from stepscope.agent import asking, kept, tools
from stepscope.agent.answers import MOST_TOKENS, tokens
from stepscope.agent.roots import Roots
from stepscope.agent.server import Server, server
from stepscope.agent.words import run as run_description
from stepscope.api.options import RESERVED
from stepscope.cli.main import run
from stepscope.files.skill_files import SKILLS
from stepscope.model.result import Result

TRACE = "moe4mps.sqlite"
ANSWERS = (SKILLS / "analyze-profile" / "references" / "answers.md").read_text("utf-8")


def printed(path: Path, folder: Path, *words: str) -> dict[str, Any]:
    """What the command line answers, as JSON."""
    assert run([words[0], str(path), *words[1:], "-o", str(folder / "answer.json")]) == 0
    return dict(json.loads((folder / "answer.json").read_text()))


def test_pages_are_together_what_the_command_line_prints(made: Server, traces: Path, tmp_path: Path) -> None:
    expected = printed(traces / TRACE, tmp_path, "timeline", "--rank", "0")["rows"]
    arguments = {"profile": TRACE, "analysis": "timeline", "options": {"rank": 0}}
    assert talk(made, lambda c: every_row(c, "run", **arguments, detail="full")) == expected
    assert talk(made, lambda c: every_row(c, "run", **arguments, detail="full", limit=77)) == expected


def test_a_concise_answer_has_the_rows_that_matter_and_says_so(made: Server, traces: Path, tmp_path: Path) -> None:
    answer = asked(made, "run", profile=TRACE, analysis="timeline").structured_content
    expected = printed(traces / TRACE, tmp_path, "timeline")["rows"]
    longest = sorted((row["dur_ns"] for row in expected), reverse=True)
    assert [row["dur_ns"] for row in answer["rows"]] == longest[: len(answer["rows"])]
    assert answer["page"]["rows"] == len(answer["rows"]) == 20 and answer["page"]["of"] == len(expected)
    assert answer["page"]["order"] == "dur_ns, largest first"
    rest = asked(made, "run", **answer["page"]["next"]["arguments"]).structured_content
    assert [row["dur_ns"] for row in rest["rows"]] == longest[20:40]


def test_concise_figures_are_those_of_the_command_line_to_six_digits(
    made: Server, traces: Path, tmp_path: Path
) -> None:
    rows = asked(made, "run", profile=TRACE, analysis="overlap").structured_content["rows"]
    for row, expected in zip(rows, printed(traces / TRACE, tmp_path, "overlap")["rows"], strict=True):
        assert row == {k: pytest.approx(v, rel=1e-5) if isinstance(v, float) else v for k, v in expected.items()}


def test_the_whole_answer_is_a_resource(made: Server, traces: Path, tmp_path: Path) -> None:
    async def session(client: Client) -> None:
        result = await call(client, "run", profile=TRACE, analysis="timeline")
        (link,) = [block for block in result.content if block.type == "resource_link"]
        assert link.uri == result.structured_content["resource"]
        (read,) = (await client.read_resource(link.uri)).contents
        whole, expected = json.loads(read.text), printed(traces / TRACE, tmp_path, "timeline")  # type: ignore[union-attr]
        assert whole.pop("profile")["ranks"] == expected.pop("profile")["ranks"]
        assert whole == expected
        for unknown in ("stepscope://answers/0123456789abcdef.json", "stepscope://answers/..%2Fx.json"):
            with pytest.raises(MCPError):
                await client.read_resource(unknown)

    talk(made, session)


def test_a_resource_outlives_the_memory_of_its_answer(traces: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "Kept", lambda: kept.Kept(most=1))
    made = server(Roots([traces]))

    async def session(client: Client) -> None:
        uri = (await call(client, "run", profile=TRACE, analysis="timeline")).structured_content["resource"]
        first = (await client.read_resource(uri)).contents
        await call(client, "run", profile=TRACE, analysis="nvtx")
        assert (await client.read_resource(uri)).contents == first

    talk(made, session)


WIDE = {
    "many rows": "SELECT a.* FROM calls a",
    "many columns": f"SELECT {', '.join(f'1234567.25 AS column_{n:04}' for n in range(200))}",
    "long texts": "SELECT repeat('kernel<long, names> ', 20000) AS a, repeat('ä', 20000) AS b FROM range(50)",
    "lists": "SELECT list(start_ns) AS a, list(name) AS b FROM ops",
    "structs": "SELECT rank, list({'a': start_ns, 'b': name}) AS a FROM ops GROUP BY rank",
    "quotes": "SELECT repeat(chr(34) || chr(92), 400) AS a FROM range(1000)",
    "not ASCII": "SELECT repeat('核函数', 300) AS a FROM range(1000)",
    "one wide row": f"SELECT {', '.join(f'repeat(chr(65), 900) AS c{n}' for n in range(150))}",
}


@pytest.mark.parametrize("detail", ["concise", "full"])
@pytest.mark.parametrize("name", WIDE)
def test_the_widest_answers_stay_within_the_limit(made: Server, name: str, detail: str) -> None:
    result = asked(made, "sql", profile=TRACE, query=WIDE[name], detail=detail)  # `asked` measures it
    assert not result.is_error, result.structured_content
    assert result.structured_content["rows"]
    page = result.structured_content["page"]
    if page["next"] is not None:
        rest = asked(made, "sql", **page["next"]["arguments"]).structured_content["page"]
        assert rest["first"] == page["rows"]
    whole = page["rows"] == page["of"] and "left_out" not in result.structured_content
    assert whole != ("resource" in result.structured_content)
    assert whole == (name == "many columns")  # the test must be of what does not fit


@pytest.fixture(scope="module")
def wide_job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Many ranks and many steps: long windows, summaries and notes."""
    folder = tmp_path_factory.mktemp("wide")
    job = {"schedule": "dualpipev", "pp": 2, "ep": 8, "layers": 4, "micro-batches": 4, "steps": 3}
    words = [word for name, value in job.items() for word in (f"--{name}", str(value))]
    assert run(["simulate", *words, "-o", str(folder / "job")]) == 0
    return folder


@pytest.mark.slow
def test_every_analysis_answers_within_the_limit(wide_job: Path) -> None:
    """With all steps of all ranks, or with the error that says what the profile lacks."""
    made = server(Roots([wide_job]))
    lacking = set()

    async def session(client: Client) -> None:
        assert (await call(client, "open", profile="job")).structured_content["ranks"] == 16
        for name in questions.names():
            for detail in ("concise", "full"):
                options = {"index": "all"} if questions.get(name).windowed and name != "diagnose" else {}
                result = await call(client, "run", profile="job", analysis=name, options=options, detail=detail)
                if result.is_error:
                    assert result.structured_content["error"]["code"] in ("cannot_answer", "bad_input")
                    lacking.add(name)
            assert not (await call(client, "describe", name=name)).is_error

    talk(made, session)
    assert len(lacking) < len(questions.names()) / 2, lacking


def test_the_estimate_of_tokens_is_on_the_safe_side() -> None:
    """Byte-pair encodings give a token to each run of up to three digits, to a word, and to each mark between them."""
    import re

    text = json.dumps([{"rank": n, "exposed_ns": 123456789 * n, "name": "ncclDevKernel_SendRecv"} for n in range(50)])
    pieces = re.findall(r"\d{1,3}|[A-Z]?[a-z]+|[A-Z]+|[^\w\s]+ ?|_| ", text)
    assert "".join(pieces) == text
    assert tokens(text) > len(pieces)
    assert tokens("x" * 2 * MOST_TOKENS) == MOST_TOKENS


@pytest.mark.slow
def test_findings_have_calls_that_give_their_figures(made: Server, traces: Path) -> None:
    """As tests/findings/test_evidence.py does with the command line that stands beside the call."""
    for trace in (TRACE, "payloads.sqlite", "train.sqlite"):
        answer = asked(made, "run", profile=trace, analysis="diagnose", options={"least": 0}, detail="full")
        rows = {(row["id"], row["evidence"]): row for row in answer.structured_content["rows"]}
        with_profile = api.open(traces / trace)
        found = [one.finding for one in cited.every(with_profile)]
        assert found and len(found) == answer.structured_content["page"]["of"]
        for finding in found:
            row = rows[finding.id, finding.evidence]
            assert row["command"].startswith(f"stepscope {row['see']['arguments']['analysis']} ")
            body = asked(made, row["see"]["tool"], **row["see"]["arguments"]).structured_content
            table = pl.DataFrame(body["rows"], infer_schema_length=None)
            shown = Result(table, summary=body["summary"])
            missing = [x for x in finding.figures if not cited.printed(x, shown)]
            assert not missing, (trace, finding.id, missing, row["see"])


def test_answers_are_tables_of_a_query(made: Server) -> None:
    """Two of the skill's questions, whose figures its own tests find in the raw tables, in one call each."""
    chunks = {"a": {"analysis": "overlap", "options": {"chunk": True, "index": "all"}}}
    medians = "median(exposed_ns) / 1e6 AS ms, median(overlap_pct) AS pct"
    worst = f"SELECT stage, {medians} FROM a WHERE comm_ns > 0 GROUP BY stage"
    body = asked(made, "sql", profile=TRACE, query=worst, answers=chunks).structured_content
    said = {
        f"{row['stage']}: {row['ms']:.3f} ms exposed per rank and chunk, {row['pct']:.1f} % hidden"
        for row in body["rows"]
    }
    assert len(said) == 4 and said <= set(ANSWERS.splitlines())
    assert body["window"] and "shared-gpu" in {note["code"] for note in body["notes"]}

    both = {"b": {"analysis": "breakdown"}, "s": {"analysis": "setup"}}
    balance = "SELECT pp_rank, avg(compute_ns) / 1e6 AS ms FROM b JOIN s USING (rank) GROUP BY pp_rank"
    rows = asked(made, "sql", profile=TRACE, query=balance, answers=both).structured_content["rows"]
    said = {f"stage {row['pp_rank']} computes {row['ms']:.1f} ms per rank" for row in rows}
    assert len(said) == 2 and said <= set(ANSWERS.splitlines())


def test_answers_of_every_kind_can_be_tables(made: Server) -> None:
    """Columns that are null throughout, lists and empty answers too."""
    for name in ("diagnose", "overlap", "info", "kernels", "collectives", "stragglers"):
        query = "SELECT count(*) AS n FROM t"
        answer = asked(made, "sql", profile=TRACE, query=query, answers={"t": {"analysis": name}}).structured_content
        whole = asked(made, "run", profile=TRACE, analysis=name).structured_content["page"]["of"]
        assert answer["rows"] == [{"n": whole}], name


def test_two_runs(shared: Path, tmp_path: Path) -> None:
    folder = shared / "traces" / "h200" / "moe4mps"
    made = server(Roots([folder]))
    answer = asked(made, "diff", base="overlapped.sqlite", new="serialized.sqlite", detail="full").structured_content
    words = ["compare", str(folder / "overlapped.sqlite"), "--to", str(folder / "serialized.sqlite")]
    assert run([*words, "-o", str(tmp_path / "answer.json")]) == 0
    expected = json.loads((tmp_path / "answer.json").read_text())
    assert answer["rows"] == expected["rows"]
    assert answer["summary"]["verdict"] == expected["summary"]["verdict"]
    assert answer["statement"] == expected["summary"]["statement"]


def test_others_are_answered_meanwhile(made: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A query that does not end holds up nobody who asks something else, and is stopped."""
    monkeypatch.setattr(tools, "MOST_SECONDS", 1.5)
    done: list[str] = []

    async def session(client: Client) -> None:
        async def long() -> None:
            query = "SELECT sum(sqrt(a.range) * sqrt(b.range)) FROM range(1000000) a, range(1000000) b"
            result = await call(client, "sql", profile="payloads.sqlite", query=query)
            assert "stopped after 1.5 s" in result.structured_content["error"]["message"]
            done.append("long")

        async with anyio.create_task_group() as group:
            group.start_soon(long)
            await anyio.sleep(0.2)
            await client.list_tools()
            assert not (await call(client, "run", profile=TRACE, analysis="info")).is_error
            done.append("short")

    talk(made, session)
    assert done == ["short", "long"]


def test_questions_of_one_profile_come_one_after_another(made: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """They share what they derive, which is not made for several threads at once."""
    at_work, most = 0, 0
    lock = threading.Lock()
    real = api.analyse

    def slow(*args: Any, **options: Any) -> Result:
        nonlocal at_work, most
        with lock:
            at_work += 1
            most = max(most, at_work)
        time.sleep(0.05)
        try:
            return real(*args, **options)
        finally:
            with lock:
                at_work -= 1

    monkeypatch.setattr(api, "analyse", slow)

    async def session(client: Client) -> None:
        async with anyio.create_task_group() as group:
            for rank in range(4):
                group.start_soon(
                    lambda r=rank: call(client, "run", profile=TRACE, analysis="nvtx", options={"rank": r})
                )

    talk(made, session)
    assert most == 1


def test_the_description_names_every_analysis() -> None:
    text = run_description()
    for name in questions.names():
        assert f"\n{name}: " in text or f"\n{name}*: " in text
        assert questions.question(name) in text


def test_every_common_keyword_has_a_schema() -> None:
    from stepscope.agent.options import PAGED, common

    assert set(RESERVED) <= {*common(), *PAGED}, "give a new keyword of all questions a type in agent/options.py"


@pytest.mark.parametrize("tool", ["diff", "sql", "answers"])
def test_command_lines_name_the_rules_that_files_are_read_by(
    tool: str, traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With other rules the answer is another: what the line prints is what the tool said."""
    rules = tmp_path / "labels.toml"
    rules.write_text("stage = 'layer[0-9]+'\n")
    query = "SELECT DISTINCT stage FROM exposures ORDER BY stage"
    given: dict[str, Any] = {"profile": TRACE, "query": query}
    if tool == "diff":
        given = {"base": TRACE, "new": TRACE, "by": "stage", "chunk": True}
    elif tool == "answers":
        table = {"analysis": "overlap", "options": {"top": 3}}
        given = {"profile": TRACE, "query": "SELECT stage FROM mine", "answers": {"mine": table}}
    made = server(Roots([traces]), labels=str(rules))
    answer = asked(made, "diff" if tool == "diff" else "sql", **given, detail="full").structured_content
    line = answer["command"].split(" (as table")[0].split(";")[0]
    words = shlex.split(line)
    assert words[words.index("--labels") + 1] == str(rules)
    monkeypatch.chdir(traces)
    assert run([*words[1:], "-o", str(tmp_path / "answer.json")]) == 0
    rows = json.loads((tmp_path / "answer.json").read_text())["rows"]
    told = [row["stage"] for row in answer["rows"]]
    assert [row["stage"] for row in rows] == told
    assert any(stage.startswith("layer") for stage in told)
