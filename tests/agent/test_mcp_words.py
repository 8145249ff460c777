"""What an agent reads in every conversation is short; the rest it can ask for: prompts, concepts, reports of nsys."""

from __future__ import annotations

import json
from pathlib import Path

from mcp import Client

from agent_client import call, talk
from stepscope import api
from stepscope.agent.nsys import named
from stepscope.agent.server import Server
from stepscope.files.skill_files import SKILLS, names

#: Characters of `tools/list`: some 3,000 tokens.
MOST_LISTED = 12_000
TRACE = "payloads.sqlite"


def test_tools_are_listed_in_few_words(made: Server) -> None:
    async def listed(client: Client) -> str:
        return (await client.list_tools()).model_dump_json(by_alias=True, exclude_none=True)

    assert len(talk(made, listed)) <= MOST_LISTED


def test_skills_are_prompts(made: Server) -> None:
    async def session(client: Client) -> None:
        prompts = (await client.list_prompts()).prompts
        assert {p.name for p in prompts} == set(names()) and all(p.description for p in prompts)
        for prompt in prompts:
            (message,) = (await client.get_prompt(prompt.name)).messages
            assert message.content.text == (SKILLS / prompt.name / "SKILL.md").read_text("utf-8")

    talk(made, session)


def test_concepts_are_resources(made: Server) -> None:
    async def session(client: Client) -> None:
        listed = {str(r.uri) for r in (await client.list_resources()).resources}
        assert {f"stepscope://concepts/{n}" for n in ("answers", "which-analysis", "windows")} <= listed
        (content,) = (await client.read_resource("stepscope://concepts/which-analysis")).contents
        assert "Slow rank: stragglers" in content.text

    talk(made, session)


def test_nsys_reports_rules_and_recipes(made: Server, traces: Path) -> None:
    """Rows are those of Python's own."""
    profile = api.open(traces / TRACE)
    asked = {"stats": "cuda_gpu_kern_sum", "rules": "gpu_gaps", "recipe": "cuda_gpu_kern_sum"}
    own = {
        "stats": profile.stats(asked["stats"]), "rules": profile.rules(asked["rules"]),
        "recipe": profile.recipe(asked["recipe"]),
    }  # fmt: skip

    async def session(client: Client) -> None:
        for kind, name in asked.items():
            result = await call(client, "run", profile=TRACE, analysis=kind, options={"name": name}, detail="full")
            body = result.structured_content
            assert not result.is_error, body
            assert body["page"]["of"] == own[kind].rows.height
            first = json.loads(own[kind].rows.head(1).write_json())
            assert [list(row) for row in body["rows"][:1]] == [list(row) for row in first]
            assert body["command"].startswith(f"stepscope {kind} ")
        wrong = await call(client, "run", profile=TRACE, analysis="stats", options={"name": "nothing"})
        assert wrong.structured_content["error"]["next"]["arguments"] == {"what": "reports"}
        listed = (await call(client, "list", what="reports")).structured_content
        assert listed["page"]["of"] == sum(map(len, named().values()))

    talk(made, session)
