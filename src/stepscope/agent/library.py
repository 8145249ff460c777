"""What agents may read before they ask: the skills as prompts, and concepts as resources."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.prompts.base import Prompt
from mcp.server.mcpserver.resources import TextResource

from stepscope.agent import words
from stepscope.files.skill_files import SKILLS, description, names

CONCEPTS = "stepscope://concepts/"


def add_library(server: MCPServer[Any]) -> None:
    """A prompt for each skill, and a resource for each concept."""
    for skill in names():
        server.add_prompt(Prompt.from_function(_reader(skill), name=skill, description=description(skill)))
    for name, (title, text) in words.CONCEPTS.items():
        resource = TextResource(uri=CONCEPTS + name, name=name, title=title, mime_type="text/plain", text=text)
        server.add_resource(resource)


def _reader(name: str) -> Callable[[], str]:
    def read() -> str:
        return (SKILLS / name / "SKILL.md").read_text("utf-8")

    return read


def slim(schema: Any) -> Any:
    """An input schema in few words: no titles, and no null for what may be left out anyway."""
    if isinstance(schema, list):
        return [slim(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    left = {
        key: {name: slim(of) for name, of in value.items()} if key == "properties" else slim(value)
        for key, value in schema.items()
        if not (key == "title" and isinstance(value, str)) and not (key == "default" and value in (None, {}))
    }
    some = [part for part in left.get("anyOf", ()) if part != {"type": "null"}]
    if len(some) == 1:
        del left["anyOf"]
        left = {**some[0], **left}
    elif some:
        left["anyOf"] = some
    return left


def shallow(schema: dict[str, Any]) -> dict[str, Any]:
    """An output schema by the keys that there must be; the concept `answers` says what they hold."""
    return {"type": "object", "required": schema.get("required", [])}
