"""How fast a server for agents lets go.

python tests/reliability/agents.py [quick|full] [--save] [--read FILE]…

A client of the official package (`mcp`) calls the server over standard input and over HTTP, by the protocol of 2026 and
by those before it. Measured is the time from an event (a call is cancelled, its client is killed, SIGTERM) until server
and workers take no more processor time, or have ended. A FILE is read for the first time by a call that is cancelled.
`--server` is the Python that runs stepscope, where the client has an environment of its own. Whatever was cancelled or
whose client is gone rests within a second, and the server ends within two. `quick` asks over standard input alone.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import httpx2
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from agent_query import DEAF  # noqa: E402

RESULTS = HERE / "results" / "agents.json"
TRACE, OTHER = "payloads.sqlite", "another.sqlite"
#: Seconds until rest, at most; what else is measured has no limit.
LIMITS = {"cancelled": 1.0, "killed": 1.0, "ended": 2.0}
#: So many looks without processor time are rest; they are not part of the time.
_LOOK_S, _LOOKS = 0.05, 8
_MOST_S = 60.0
#: A call is under way by then, on a machine that has other things to do.
_UNDER_WAY_S = 4.0
#: So many hundredths of a second of processor time are more than a call takes to begin.
_COMPUTES = 150


class Server:
    """A server that runs, and how to reach it."""

    def __init__(self, python: str, root: Path, cache: Path, transport: str) -> None:
        self.transport, self._python, self._root = transport, python, root
        self._env = {**os.environ, "STEPSCOPE_CACHE_DIR": str(cache)}
        self._command = ["-m", "stepscope", "mcp", "--root", str(root)]
        self.process: subprocess.Popen[str] | None = None
        self._url, self._headers = "", {}
        if transport.startswith("HTTP"):
            self.process = subprocess.Popen(
                [python, *self._command, "--http"],
                env=self._env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            )  # fmt: skip
            assert self.process.stdout is not None
            self._url = self.process.stdout.readline().strip()
            self._headers = dict([self.process.stdout.readline().strip().split(": ", 1)])

    @property
    def pid(self) -> int:
        """Over standard input, the client has started it."""
        return self.process.pid if self.process else _mcp_below(os.getpid())

    async def talk(self, work: Callable[[Client], Awaitable[Any]]) -> Any:
        if self.process is None:
            given = StdioServerParameters(command=self._python, args=self._command, env=self._env)
            async with Client(stdio_client(given)) as client:
                return await work(client)
        mode: Any = "legacy" if "before" in self.transport else "auto"
        async with (
            httpx2.AsyncClient(headers=self._headers, timeout=120) as http,
            Client(streamable_http_client(self._url, http_client=http), mode=mode) as client,
        ):
            return await work(client)

    def end(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()


def _children(pid: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and (entry / "stat").read_text().rpartition(")")[2].split()[1] == str(pid):
                found.append(int(entry.name))
    return found


def _mcp_below(pid: int) -> int:
    """The server among the processes that one has started."""
    for child in _children(pid):
        if b"mcp" in Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0"):
            return child
    raise LookupError("no server")


def _ticks(pid: int) -> int:
    """Processor time of a process and of those that it has started."""
    total = 0
    for one in (pid, *_children(pid)):
        with suppress(OSError):
            fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
    return total


def _until_rest(pid: int) -> float:
    """Seconds until the process and its workers compute no more."""
    began, last, still, at_rest = time.monotonic(), -1, 0, 0.0
    while time.monotonic() - began < _MOST_S:
        now = _ticks(pid)
        if now != last:
            last, still, at_rest = now, 0, time.monotonic() - began
        elif (still := still + 1) == _LOOKS:
            return at_rest
        time.sleep(_LOOK_S)
    return _MOST_S


async def _call(client: Client, arguments: dict[str, Any], hear: Any = None) -> Any:
    tool = "stepscope_sql" if "query" in arguments else "stepscope_run"
    return await client.call_tool(tool, arguments, progress_callback=hear)


async def cancelled(server: Server, arguments: dict[str, Any]) -> dict[str, float]:
    """A call is cancelled: until rest; before that, when it first said how far it was."""
    told: list[float] = []

    async def work(client: Client) -> dict[str, float]:
        began = time.monotonic()

        async def hear(*_: Any) -> None:
            told.append(time.monotonic() - began)

        async with anyio.create_task_group() as group:
            group.start_soon(partial(_call, client, arguments, hear))
            await anyio.sleep(_UNDER_WAY_S)
            group.cancel_scope.cancel()
        rest = await anyio.to_thread.run_sync(_until_rest, server.pid)
        answer = await client.call_tool("stepscope_list", {"what": "files"})
        assert not answer.is_error
        return {"cancelled": rest} | ({"progress": told[0]} if told else {})

    return await server.talk(work)


@contextmanager
def _another(server: Server, arguments: dict[str, Any]) -> Iterator[subprocess.Popen[bytes]]:
    """A client in a process of its own, whose call is under way."""
    words = [sys.executable, __file__, "--client", server._url, json.dumps(server._headers), server.transport]
    before = _ticks(server.pid)
    with subprocess.Popen([*words, json.dumps(arguments)], stderr=subprocess.DEVNULL) as client:
        while (now := _ticks(server.pid)) - before < _COMPUTES:
            assert client.poll() is None, "its call has ended before anybody could cancel it"
            before = min(before, now)  # a worker that ends takes its time along
            time.sleep(_LOOK_S)
        yield client
        client.kill()


def client_killed(server: Server, arguments: dict[str, Any]) -> float:
    with _another(server, arguments) as client:
        client.kill()
        client.wait()
        return _until_rest(server.pid)


def two_clients(server: Server, arguments: dict[str, Any]) -> float:
    """The longest of ten answers to a client, while another's query of another profile computes."""
    longest: list[float] = []

    async def work(client: Client) -> None:
        for _ in range(10):
            began = time.monotonic()
            answer = await client.call_tool("stepscope_run", {"profile": OTHER, "analysis": "breakdown"})
            assert not answer.is_error
            longest.append(time.monotonic() - began)

    with _another(server, arguments):
        anyio.run(server.talk, work)
    return max(longest)


def ended(server: Server, arguments: dict[str, Any]) -> float:
    """SIGTERM while it computes: until the server and its workers have ended."""
    assert server.process is not None
    with _another(server, arguments):
        workers = _children(server.pid)
        began = time.monotonic()
        server.process.terminate()
        assert server.process.wait() == 128 + signal.SIGTERM
        while any(Path(f"/proc/{worker}").exists() for worker in workers):
            time.sleep(_LOOK_S)
        return time.monotonic() - began


def ended_stdio(python: str, root: Path, cache: Path) -> float:
    """The same over standard input, by hand: the SDK's client would start another."""
    env = {**os.environ, "STEPSCOPE_CACHE_DIR": str(cache)}
    command = [python, "-m", "stepscope", "mcp", "--root", str(root)]
    about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "a client", "version": "1"}}
    call = {"name": "stepscope_sql", "arguments": {"profile": TRACE, "query": DEAF}}
    with subprocess.Popen(command, stdin=-1, stdout=-1, text=True, env=env) as server:
        assert server.stdin is not None
        for message in (
            {"id": 1, "method": "initialize", "params": about},
            {"method": "notifications/initialized"},
            {"id": 2, "method": "tools/call", "params": call},
        ):
            server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
            server.stdin.flush()
        while not _children(server.pid):  # the query's worker
            time.sleep(_LOOK_S)
        time.sleep(1)
        began = time.monotonic()
        server.terminate()
        server.wait()
        return time.monotonic() - began


def measured(python: str, transport: str, root: Path, read: tuple[str, ...]) -> dict[str, float]:
    """All that is measured over one transport."""
    query = {"profile": TRACE, "query": DEAF}
    with tempfile.TemporaryDirectory(prefix="stepscope-agents-") as cache:
        server = Server(python, root, Path(cache), transport)
        try:
            times = anyio.run(cancelled, server, query)
            for name in read:
                fresh = {"profile": name, "analysis": "info"}
                times[f"first read of {name} cancelled"] = anyio.run(cancelled, server, fresh)["cancelled"]
            if server.process is not None:
                times |= {"killed": client_killed(server, query), "beside": two_clients(server, query)}
                times["ended"] = ended(server, query)
            else:
                times["ended"] = ended_stdio(python, root, Path(cache))
        finally:
            server.end()
    return {name: round(seconds, 2) for name, seconds in times.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scale", nargs="?", choices=("quick", "full"), default="full")
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--server", default=sys.executable, metavar="PYTHON")
    parser.add_argument("--read", action="append", default=[], type=Path, metavar="FILE")
    parser.add_argument("--client", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.client:
        url, headers, transport, arguments = given.client
        server = Server.__new__(Server)
        server.transport, server.process = transport, subprocess.Popen(["true"], text=True)
        server._url, server._headers = url, json.loads(headers)
        anyio.run(server.talk, partial(_call, arguments=json.loads(arguments)))
        return 0
    found = {}
    with tempfile.TemporaryDirectory(prefix="stepscope-agents-root-") as folder:
        root = Path(folder)
        packed = HERE.parent / "data" / "h200" / "payloads" / "overlapped.sqlite.xz"
        for name in (TRACE, OTHER):
            (root / name).write_bytes(lzma.decompress(packed.read_bytes()))
        for file in given.read:
            shutil.copy(file, root / file.name)
        for transport in ("standard input", "HTTP", "HTTP, before 2026")[: 1 if given.scale == "quick" else 3]:
            found[transport] = measured(given.server, transport, root, tuple(file.name for file in given.read))
            print(transport, found[transport], flush=True)
    if given.save:
        RESULTS.write_text(json.dumps({"suite": "agents", "transports": found}, indent=1) + "\n", "utf-8")
    slow = [
        f"{how}, {what}: {times[what]} s"
        for how, times in found.items()
        for what in LIMITS & times.keys()
        if times[what] > LIMITS[what]
    ]
    print(f"over the limit: {'; '.join(slow)}" if slow else "none over its limit")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
