"""docs/agents.md says what the server has: its tools, its codes, and how it is started."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click

from agent_client import talk
from stepscope.agent.failures import CODES
from stepscope.agent.server import Server
from stepscope.agent.shapes import Answer
from stepscope.cli.main import cli
from stepscope.errors import extra

PAGE = (Path(__file__).parents[2] / "docs" / "agents.md").read_text("utf-8")


def table(heading: str) -> set[str]:
    """What stands in code in the first column of the table below a heading."""
    part = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", PAGE, re.S | re.M)
    assert part is not None
    return {code for line in re.findall(r"^\|([^|]*)\|", part[1], re.M) for code in re.findall(r"`([^`]+)`", line)}


def test_tools_keys_and_codes(made: Server) -> None:
    tools = talk(made, lambda client: client.list_tools()).tools
    assert table("The tools") == {tool.name for tool in tools}
    assert table("Answers") == set(Answer.__annotations__)
    assert table("Errors") == set(CODES)


def test_it_is_started_as_the_page_says() -> None:
    (settings,) = re.findall(r"^```json\n(.*?)^```", PAGE, re.S | re.M)
    started = json.loads(settings)["mcpServers"]["stepscope"]
    lines = [" ".join([started["command"], *started["args"]]), *re.findall(r"-- (stepscope mcp [^`]*)`", PAGE)]
    assert len(lines) == 3
    command = cli.get_command(click.Context(cli), "mcp")
    assert command is not None
    for line in lines:
        program, name, *words = shlex.split(line)
        assert (program, name) == ("stepscope", "mcp")
        assert command.make_context("mcp", words).params["root"]


def test_without_the_sdk_a_line_names_the_extra(tmp_path: Path) -> None:
    for package in ("mcp", "mcp_types"):
        (tmp_path / f"{package}.py").write_text("raise ModuleNotFoundError(name=__name__)\n")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from stepscope.cli.main import main; main(['mcp'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, input="")
    assert done.returncode == 2
    assert done.stderr == f"stepscope: mcp needs the MCP SDK; {extra('agent')}\n"
    assert done.stdout == ""


def test_listing_the_command_does_not_import_the_sdk() -> None:
    code = "from stepscope.cli.main import run; run(['mcp', '--help']); import sys; assert 'mcp' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
