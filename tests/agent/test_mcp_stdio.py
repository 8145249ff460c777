"""As an agent has it: `stepscope mcp` as a process, the official SDK's client over standard input and output."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest
from mcp import Client

from agent_client import call, every_row, stdio, talk
from stepscope.agent.options import call_of
from stepscope.cli.main import run
from stepscope.files.skill_files import SKILLS

ANSWERS = (SKILLS / "analyze-profile" / "references" / "answers.md").read_text("utf-8")
QUESTIONS = (
    "How well is each EP phase overlapped?",
    "Which stage is worst?",
    "Are the pipeline stages balanced?",
    "Which rank and stage expose most?",
    "Why is the GPU idle?",
)


def blocks(question: str, language: str) -> str:
    found = re.search(rf"^## {re.escape(question)}\n(.*?)(?=^## |\Z)", ANSWERS, re.S | re.M)
    assert found is not None
    return "".join(re.findall(rf"^```{language}\n(.*?)^```$", found[1], re.S | re.M))


async def worked_out(client: Client, profile: str, question: str, folder: Path) -> str:
    """The worked answer of the skill: its commands as calls, then its script over their rows. What that prints."""
    for line in blocks(question, "bash").splitlines():
        words = shlex.split(line)
        file = words[words.index("-o") + 1]
        del words[words.index("-o") : words.index("-o") + 2]
        asked = call_of(shlex.join(words), profile)
        rows = await every_row(client, asked["tool"], **asked["arguments"])
        (folder / file).write_text(json.dumps({"rows": rows}))
    script = [sys.executable, "-c", blocks(question, "python")]
    return subprocess.run(script, cwd=folder, capture_output=True, text=True, check=True).stdout


def commanded(profile: Path, question: str, folder: Path) -> str:
    """The same by the command line."""
    for line in blocks(question, "bash").splitlines():
        words = [str(profile) if word == "PROFILE" else word for word in shlex.split(line)[1:]]
        words[-1] = str(folder / words[-1])
        assert run(words) == 0
    script = [sys.executable, "-c", blocks(question, "python")]
    return subprocess.run(script, cwd=folder, capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
def test_tools_and_the_five_questions(traces: Path, tmp_path: Path) -> None:
    """The figures that the skill shows, which its own tests find in the raw tables."""

    async def session(client: Client) -> None:
        tools = (await client.list_tools()).tools
        assert {t.name for t in tools} == {
            f"stepscope_{n}" for n in ("open", "list", "describe", "run", "diff", "hang", "sql")
        }
        for tool in tools:
            assert tool.annotations is not None and tool.annotations.read_only_hint
            assert tool.output_schema is not None and tool.output_schema["type"] == "object"
            assert tool.description
        opened = (await call(client, "open", profile="moe4mps.sqlite")).structured_content
        assert (opened["ranks"], opened["mesh"]["pp"], opened["mesh"]["ep"]) == (4, 2, 2)
        assert "shared-gpu" in {note["code"] for note in opened["notes"]}
        for question in QUESTIONS:
            said = await worked_out(client, "moe4mps.sqlite", question, tmp_path)
            assert said == blocks(question, "text"), question
        for suggested in opened["ask"]:
            assert not (await call(client, suggested["tool"], **suggested["arguments"])).is_error

    talk(stdio(traces), session)


@pytest.mark.slow
def test_a_trace_as_it_was_recorded(shared: Path, tmp_path: Path) -> None:
    name = "payloads/overlapped.sqlite"
    path = shared / "traces" / "h200" / name

    async def session(client: Client) -> list[str]:
        assert not (await call(client, "open", profile=name)).is_error
        return [await worked_out(client, name, question, tmp_path) for question in QUESTIONS]

    said = talk(stdio(shared / "traces" / "h200"), session)
    assert said == [commanded(path, question, tmp_path) for question in QUESTIONS]


@pytest.mark.slow
def test_fifty_calls_in_a_row(traces: Path) -> None:
    """Every answer is within the limit (`call` looks), the server stays, and nothing is written beside the traces."""
    before = sorted(traces.rglob("*"))
    analyses = ("overlap", "exposed", "idle", "kernels", "timeline", "collectives", "critical-path", "nvtx", "diagnose")
    calls: list[tuple[str, dict[str, Any]]] = [
        ("run", {"profile": profile, "analysis": name, "detail": detail})
        for profile in ("moe4mps.sqlite", "payloads.sqlite")
        for name in analyses
        for detail in ("concise", "full")
    ]
    calls += [
        ("sql", {"profile": "payloads.sqlite", "query": f"SELECT * FROM {t}"}) for t in ("ops", "calls", "ranges")
    ]
    calls += [("list", {"what": what}) for what in ("files", "analyses", "tables")]
    calls += [("describe", {"name": name}) for name in (*analyses, "tables")]
    calls.append(("open", {"profile": "."}))
    assert len(calls) >= 50

    async def session(client: Client) -> list[bool]:
        return [(await call(client, name, **arguments)).is_error for name, arguments in calls]

    wrong = [arguments for (_, arguments), error in zip(calls, talk(stdio(traces), session), strict=True) if error]
    assert wrong == [{"profile": "."}]  # the files of three jobs are no profile
    assert sorted(traces.rglob("*")) == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.slow
def test_a_signal_ends_it_though_nobody_writes(traces: Path, number: signal.Signals) -> None:
    started = stdio(traces)
    with subprocess.Popen(
        [started.command, *started.args],
        env={**os.environ, **(started.env or {})},
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
    ) as server:
        assert server.stdin is not None and server.stdout is not None and server.stderr is not None
        hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18"}}
        hello["params"] |= {"capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}  # type: ignore[operator]
        server.stdin.write(json.dumps(hello).encode() + b"\n")
        server.stdin.flush()
        answer = json.loads(server.stdout.readline())  # it serves; an agent of an older protocol is answered, too
        assert answer["result"]["serverInfo"]["name"] == "stepscope"
        server.send_signal(number)
        assert server.wait(20) == 128 + number  # standard input is still open
        assert server.stdout.read() == b""
        assert server.stderr.read().count(b"\n") == 1
