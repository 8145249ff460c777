"""A call that nobody wants any more stops, gives its profile back, and says how far it is until then."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import anyio
import pytest
from mcp import Client

from agent_client import call, stdio, talk
from agent_endless import Endless
from agent_query import DEAF
from stepscope.agent import calls
from stepscope.agent import stdio as own_stdio
from stepscope.agent.server import Server

TRACE = "payloads.sqlite"


def test_a_cancelled_call_stops_and_gives_the_profile_back(made: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    endless = Endless(monkeypatch)
    talk(made, lambda client: endless.cancelled(client, TRACE))


def test_one_that_waits_for_the_profile_can_be_cancelled(made: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """It leaves the one that computes alone, which then answers."""
    endless = Endless(monkeypatch)
    answered: list[bool] = []

    async def session(client: Client) -> None:
        async def first() -> None:
            answered.append(not (await call(client, "run", profile=TRACE, analysis="nvtx")).is_error)

        async with anyio.create_task_group() as group:
            group.start_soon(first)
            await endless.has(endless.begun)
            with anyio.move_on_after(0.3) as waiting:
                await call(client, "run", profile=TRACE, analysis="window")
            assert waiting.cancelled_caught and not endless.stopped.is_set()
            endless.released.set()

    talk(made, session)
    assert answered == [True]


def test_a_long_call_says_how_far_it_is(made: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    endless = Endless(monkeypatch)
    monkeypatch.setattr(calls, "FIRST_S", 0.05)
    monkeypatch.setattr(calls, "AGAIN_S", 0.05)
    told: list[tuple[float, str | None]] = []

    async def hear(done: float, total: float | None, message: str | None) -> None:
        told.append((done, message))
        if len(told) == 3:
            endless.released.set()

    async def session(client: Client) -> None:
        arguments = {"profile": TRACE, "analysis": "nvtx", "options": {"top": 5}}  # no answer that is kept
        assert not (await client.call_tool("stepscope_run", arguments, progress_callback=hear)).is_error

    talk(made, session)
    assert told[2][1] == "counting 3 of 8"
    assert [done for done, _ in told] == sorted(done for done, _ in told)


def _child_of(pid: int) -> int | None:
    """The worker that a query of the server runs in."""
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "stat").read_text().rpartition(")")[2].split()[1] == str(pid):
                return int(entry.name)
        except OSError:
            continue
    return None


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
@pytest.mark.parametrize("end", ["client", "SIGTERM"])
def test_the_server_ends_while_it_computes(traces: Path, end: str) -> None:
    """Its client is gone, or it is asked to: neither it nor its worker goes on."""
    given = stdio(traces)
    env = {**os.environ, **(given.env or {})}
    with subprocess.Popen([given.command, *given.args], stdin=-1, stdout=-1, text=True, env=env) as server:
        assert server.stdin is not None and server.stdout is not None
        for line in (_INITIALIZE, _READY, _query(DEAF)):
            server.stdin.write(line + "\n")
            server.stdin.flush()
        while (worker := _child_of(server.pid)) is None:
            assert server.poll() is None, "the server ended by itself"
            time.sleep(0.05)
        if end == "client":
            server.stdin.close()
        else:
            server.send_signal(signal.SIGTERM)
        assert server.wait(60) == (0 if end == "client" else 128 + signal.SIGTERM)
    for _ in range(600):  # a worker whose server was killed sees its end by itself
        if not Path(f"/proc/{worker}").exists():
            return
        threading.Event().wait(0.1)
    pytest.fail("the worker computes on")


_INITIALIZE = (
    '{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18",'
    ' "capabilities": {}, "clientInfo": {"name": "a test", "version": "1"}}}'
)
_READY = '{"jsonrpc": "2.0", "method": "notifications/initialized"}'


def _query(text: str) -> str:
    return (
        '{"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "stepscope_sql",'
        f' "arguments": {{"profile": "{TRACE}", "query": "{text}"}}}}}}'
    )


def test_a_computation_that_does_not_look_ends_with_the_process(tmp_path: Path) -> None:
    """After a signal the server waits for a while, not for ever."""
    script = f"""
import os, signal, threading, time
from stepscope.agent import stdio
stdio.PATIENCE_S = {own_stdio.PATIENCE_S} / 10
with stdio.ending_on_signals():
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait()
"""
    done = subprocess.run([sys.executable, "-c", script], stdin=subprocess.PIPE, check=False, timeout=60)
    assert done.returncode == 128 + signal.SIGTERM
