"""The server over HTTP: who may call it, two clients at once, calls that are cancelled or whose client is gone."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from agent_client import call, stdio
from agent_endless import Endless
from stepscope.agent.http import PATH, Application
from stepscope.agent.server import Server
from stepscope.web.run import Where, serve_calls

TRACE, TOKEN = "payloads.sqlite", "a token of this test"
HEADERS = {"authorization": f"Bearer {TOKEN}"}
_SPOKEN = {"accept": "application/json, text/event-stream", **HEADERS}
#: The protocol of 2026, which has no sessions, and those before it.
MODES: tuple[Literal["auto", "legacy"], ...] = ("auto", "legacy")


@pytest.fixture(scope="module")
def url(made: Server) -> Iterator[str]:
    """The server of the module, in a thread: it ends with the tests."""
    heard: list[str] = []
    ready = threading.Event()

    def announce(address: str, _: str) -> None:
        heard.append(address)
        ready.set()

    given = (Application(made, "127.0.0.1"), Where(), announce, lambda _: None, TOKEN)
    threading.Thread(target=serve_calls, args=given, daemon=True).start()
    assert ready.wait(60)
    yield heard[0] + PATH


def spoken(url: str, mode: Any, work: Callable[[Client], Awaitable[Any]]) -> Any:
    async def connected() -> Any:
        async with (
            httpx2.AsyncClient(headers=HEADERS, timeout=60) as http,
            Client(streamable_http_client(url, http_client=http), mode=mode) as client,
        ):
            return await work(client)

    return anyio.run(connected)


_INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"authorization": "Bearer another"}, 401),
        ({"cookie": f"stepscope={TOKEN}"}, 401),
        ({**HEADERS, "origin": "http://elsewhere.example"}, 403),
        ({**HEADERS, "host": "elsewhere.example"}, 421),
        (_SPOKEN, 200),
    ],
)
def test_only_who_has_the_token_is_let_in(url: str, headers: dict[str, str], status: int) -> None:
    answer = httpx2.post(url, json=_INITIALIZE, headers=headers)
    assert answer.status_code == status
    if status == 401:
        assert "stepscope mcp --http" in answer.text


def test_a_token_in_the_address_lets_nobody_in(url: str) -> None:
    """Addresses are kept in logs and histories."""
    assert httpx2.post(f"{url}?token={TOKEN}", json=_INITIALIZE).status_code == 401


@pytest.mark.parametrize("mode", MODES)
def test_two_clients_are_answered_beside_a_long_call(url: str, mode: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    endless = Endless(monkeypatch)
    answered: list[bool] = []
    options = {"top": 7 + MODES.index(mode)}  # no answer that is kept

    async def long(client: Client) -> None:
        answered.append(not (await call(client, "run", profile=TRACE, analysis="nvtx", options=options)).is_error)

    async def short(client: Client) -> None:
        await endless.has(endless.begun)
        answered.append(not (await call(client, "run", profile="train.sqlite", analysis="info")).is_error)
        endless.released.set()

    async def both() -> None:
        async with anyio.create_task_group() as group:
            for work in (long, short):
                group.start_soon(anyio.to_thread.run_sync, spoken, url, mode, work)

    anyio.run(both)
    assert answered == [True, True]


@pytest.mark.parametrize("mode", MODES)
def test_a_cancelled_call_stops(url: str, mode: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    endless = Endless(monkeypatch)
    spoken(url, mode, lambda client: endless.cancelled(client, TRACE))


def test_a_call_stops_whose_client_is_gone(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client of before 2026 whose connection ends sends no message that cancels."""
    endless = Endless(monkeypatch)
    params = {"name": "stepscope_run", "arguments": {"profile": TRACE, "analysis": "nvtx", "options": {"top": 9}}}
    with httpx2.Client(headers=_SPOKEN, timeout=60) as http:
        session = {"mcp-session-id": http.post(url, json=_INITIALIZE).headers["mcp-session-id"]}
        http.post(url, json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=session)
        asked = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}
        with http.stream("POST", url, json=asked, headers=session):
            assert endless.begun.wait(60)
    assert endless.stopped.wait(60)


@pytest.mark.slow
def test_a_signal_ends_it(traces: Path) -> None:
    given = stdio(traces)
    command = [given.command, *given.args, "--http"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        address, header = server.stdout.readline().strip(), server.stdout.readline().strip()
        assert address.startswith("http://127.0.0.1:") and address.endswith(PATH)
        assert httpx2.post(address, json=_INITIALIZE, headers=dict([header.split(": ", 1)])).status_code != 401
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 128 + signal.SIGTERM
