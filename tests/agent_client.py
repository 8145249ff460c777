"""A client of the MCP server for tests: the official SDK's, in this process or over standard input and output."""

from __future__ import annotations

import lzma
import os
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import anyio
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp_types import CallToolResult

from stepscope.agent.answers import MOST_TOKENS, tokens
from stepscope.agent.server import Server

DATA = Path(__file__).parent / "data"
T = TypeVar("T")


def stdio(*roots: Path) -> StdioServerParameters:
    """`stepscope mcp` as an agent starts it. The SDK hands on few variables: tests keep their own cache."""
    kept = {k: v for k, v in os.environ.items() if k.startswith("STEPSCOPE_") or k in ("PYTHONPATH", "TMPDIR")}
    words = [word for root in roots for word in ("--root", str(root))]
    return StdioServerParameters(command=sys.executable, args=["-m", "stepscope", "mcp", *words], env=kept)


def talk(server: Server | StdioServerParameters, work: Callable[[Client], Awaitable[T]]) -> T:
    """What `work` returns, with a client that is connected to `server`."""

    async def connected() -> T:
        async with Client(server, read_timeout_seconds=120) as client:
            return await work(client)

    return anyio.run(connected)


def asked(server: Server | StdioServerParameters, tool: str, /, **arguments: Any) -> CallToolResult:
    """One call."""
    return talk(server, lambda client: call(client, tool, **arguments))


async def call(client: Client, tool: str, /, **arguments: Any) -> CallToolResult:
    """One call, whose answer is within the limit whatever it is."""
    result = await client.call_tool(f"stepscope_{tool.removeprefix('stepscope_')}", arguments)
    assert isinstance(result, CallToolResult)
    assert tokens(result.model_dump_json(by_alias=True)) <= MOST_TOKENS
    return result


async def every_row(client: Client, tool: str, /, **arguments: Any) -> list[dict[str, Any]]:
    """The rows of all pages, following `page.next`."""
    rows: list[dict[str, Any]] = []
    following: Any = {"tool": tool, "arguments": arguments}
    while following is not None:
        result = await call(client, following["tool"], **following["arguments"])
        assert not result.is_error, result.structured_content
        page = result.structured_content["page"]
        assert page["first"] == len(rows)
        rows += result.structured_content["rows"]
        assert page["rows"] or not page["of"]
        following = page["next"]
    assert len(rows) == page["of"]
    return rows


def unpacked(folder: Path, *names: str) -> Iterator[Path]:
    """Traces of `tests/data/h200` in a folder: `moe4mps/overlapped` is `moe4mps.sqlite` there."""
    for name in names:
        path = folder / f"{name.partition('/')[0]}.sqlite"
        path.write_bytes(lzma.decompress((DATA / "h200" / f"{name}.sqlite.xz").read_bytes()))
        yield path
