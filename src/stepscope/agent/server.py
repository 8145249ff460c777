"""The server: the tools with their descriptions, whole answers as resources, and errors with codes."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ResourceNotFoundError, ToolError
from mcp_types import CallToolResult, InputRequiredResult, TextContent, Tool, ToolAnnotations

import stepscope
from stepscope.agent import words
from stepscope.agent.asking import ANSWERS, Desk, full_name
from stepscope.agent.calls import while_wanted
from stepscope.agent.failures import Refused, call, described
from stepscope.agent.library import add_library, shallow, slim
from stepscope.agent.profiles import Profiles
from stepscope.agent.roots import Roots
from stepscope.agent.tools import Tools

#: Every tool only reads: files below the roots, and stepscope's own cache, which it also fills.


class Server(MCPServer[Any]):
    """The SDK's server, whose errors are structured content, too."""

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        try:
            await self._refuse_unknown(name, arguments)
            return await while_wanted(partial(super().call_tool, name, arguments, context), context)
        except Refused as error:
            body = described(error, name, arguments)
        except ToolError as error:
            body = described(error.__cause__ or error, name, arguments)
        text = msgspec.json.encode(body).decode()
        return CallToolResult(content=[TextContent(text=text)], structured_content=body, is_error=True)

    async def list_tools(self) -> list[Tool]:
        """The tools in few words: they are listed in every conversation."""
        return [
            tool.model_copy(
                update={
                    "input_schema": slim(tool.input_schema),
                    "output_schema": None if tool.output_schema is None else shallow(tool.output_schema),
                }
            )
            for tool in await super().list_tools()
        ]

    async def _refuse_unknown(self, name: str, arguments: dict[str, Any]) -> None:
        """A tool or an argument that there is not: the SDK would leave it out, and answer something else."""
        schemas = {tool.name: tool.input_schema["properties"] for tool in await self.list_tools()}
        if name not in schemas:
            raise Refused(
                "unknown_tool", f"no tool {name}", f"there are {', '.join(schemas)}", call("list", what="analyses")
            )
        for key in arguments:
            if key not in schemas[name]:
                raise self._no_argument(name, key, list(schemas[name]), arguments)

    def _no_argument(self, name: str, key: str, known: list[str], arguments: dict[str, Any]) -> Refused:
        again, hint = call("list", what="analyses"), f"it has {', '.join(known)}"
        if "options" in known:  # most likely meant for the analysis
            moved = {k: v for k, v in arguments.items() if k not in known}
            options = arguments.get("options")
            rest = {k: v for k, v in arguments.items() if k in known}
            rest["options"] = {**(options if isinstance(options, dict) else {}), **moved}
            again, hint = {"tool": name, "arguments": rest}, f"options of the analysis go into `options`; {hint}"
        return Refused("bad_argument", f"{name}: no argument {key!r}", hint, again)


def server(roots: Roots, **opening: Any) -> Server:
    """A server for files below `roots`; `opening` says how they are opened."""
    desk = Desk(Profiles(roots, **opening))
    tools = Tools(desk)
    made = Server(
        "stepscope",
        title="stepscope",
        description="Where did the training step go? Questions to GPU profiles of distributed training",
        instructions=words.INSTRUCTIONS,
        version=stepscope.__version__,
        log_level="WARNING",
        subscriptions=False,
    )
    for tool, title, text in (
        (tools.open, "Open a profile", words.OPEN),
        (tools.list, "List files, analyses, tables", words.LIST),
        (tools.describe, "Describe an analysis or a table", words.DESCRIBE),
        (tools.run, "Run an analysis", words.run()),
        (tools.diff, "Compare two runs", words.DIFF),
        (tools.hang, "Say why a job hangs", words.HANG),
        (tools.sql, "Query in SQL", words.SQL),
    ):
        annotations = ToolAnnotations(read_only_hint=True, open_world_hint=False)
        made.add_tool(tool, full_name(tool.__name__), title=title, description=text, annotations=annotations)

    add_library(made)

    @made.resource(
        f"{ANSWERS}{{key}}.json",
        name="answer",
        title="A whole answer",
        mime_type="application/json",
        description="All rows of an answer, as `stepscope COMMAND --format json` writes them",
    )
    def whole(key: str) -> str:
        text = desk.whole(key)
        if text is None:
            raise ResourceNotFoundError(f"no answer {key}: not given by this server, or its files have changed since")
        return text

    return made
