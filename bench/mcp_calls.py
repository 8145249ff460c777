"""How soon an MCP call stops, with the SDK's own client: cancelled, two clients at once, killed. Needs /proc.

python bench/mcp_calls.py FOLDER PROFILE
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import anyio
from mcp import Client
from mcp.client.stdio import StdioServerParameters

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from agent_query import DEAF

ANALYSES = ("overlap", "diagnose", "critical-path")
QUIET_S = 0.5


def stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def below(pid: int) -> list[int]:
    """All processes that this one started, and those that they did."""
    everyone = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    children = [p for p in everyone if (fields := stat(p)) and fields[1] == str(pid)]
    return [p for child in children for p in (child, *below(child))]


def ticks(pid: int) -> int:
    return sum(int(fields[11]) + int(fields[12]) for p in (pid, *below(pid)) if (fields := stat(p)))


def server_pid() -> int:
    return next(p for p in below(os.getpid()) if b"stepscope\0mcp" in Path(f"/proc/{p}/cmdline").read_bytes())


async def idle_after(pid: int) -> float:
    """Seconds until the server, and whatever it started, computes no more."""
    began = quiet = time.monotonic()
    last = ticks(pid)
    while time.monotonic() - quiet < QUIET_S:
        await anyio.sleep(0.02)
        if (now := ticks(pid)) != last:
            last, quiet = now, time.monotonic()
    return quiet - began


async def cancelled(client: Client, tool: str, after: float, **arguments: Any) -> None:
    with anyio.move_on_after(after) as scope:
        await client.call_tool(f"stepscope_{tool}", arguments)
    name = f"{tool} {arguments.get('analysis', '')}".strip()
    if scope.cancelled_caught:
        print(f"{name}, cancelled after {after:g} s: idle after {await idle_after(server_pid()):.2f} s")
    else:
        print(f"{name}: answered within {after:g} s")


async def with_progress(client: Client, profile: str) -> None:
    began, told = time.monotonic(), []

    async def hear(done: float, _: float | None, message: str | None) -> None:
        told.append(f"{done:g} s: {message}")

    await client.call_tool("stepscope_run", {"profile": profile, "analysis": "diagnose"}, progress_callback=hear)
    print(f"diagnose: {time.monotonic() - began:.1f} s, {len(told)} progress notifications; the first: {told[:1]}")


async def measured(parameters: StdioServerParameters, profile: str) -> None:
    async with Client(parameters, read_timeout_seconds=600) as client:
        for after in (1.0, 3.0):
            await cancelled(client, "sql", after, profile=profile, query=DEAF)
        for analysis in ANALYSES:
            for after in (1.0, 2.5, 5.0):
                await cancelled(client, "run", after, profile=profile, analysis=analysis)
        await with_progress(client, profile)
        async with Client(parameters, read_timeout_seconds=600) as other:
            began = time.monotonic()
            async with anyio.create_task_group() as group:
                group.start_soon(lambda: client.call_tool("stepscope_sql", {"profile": profile, "query": DEAF}))
                await anyio.sleep(1)
                await other.call_tool("stepscope_run", {"profile": profile, "analysis": "info"})
                print(f"two clients: one answered after {time.monotonic() - began - 1:.1f} s, while the other computes")
                group.cancel_scope.cancel()


async def ended(parameters: StdioServerParameters, profile: str) -> None:
    """SIGTERM while a query computes."""
    try:
        async with Client(parameters, read_timeout_seconds=60) as client, anyio.create_task_group() as group:
            group.start_soon(lambda: client.call_tool("stepscope_sql", {"profile": profile, "query": DEAF}))
            await anyio.sleep(3)
            pid = server_pid()
            began = time.monotonic()
            os.kill(pid, signal.SIGTERM)
            while stat(pid) and stat(pid)[0] != "Z":
                await anyio.sleep(0.01)
            print(f"SIGTERM while it computes: gone after {time.monotonic() - began:.2f} s")
            group.cancel_scope.cancel()
    except BaseExceptionGroup:  # the client says that its server is gone
        pass


def main() -> None:
    folder, profile = sys.argv[1:3]
    kept = {k: v for k, v in os.environ.items() if k.startswith("STEPSCOPE_") or k in ("PYTHONPATH", "PATH")}
    words = ["-m", "stepscope", "mcp", "--root", folder]
    parameters = StdioServerParameters(command=sys.executable, args=words, env=kept)
    anyio.run(measured, parameters, profile)
    anyio.run(ended, parameters, profile)


if __name__ == "__main__":
    main()
