"""Thousands of calls to `stepscope mcp`, some of them cancelled, wrong or huge: what is left behind, and who is wrong.

JSON-RPC line by line, as it travels: no client library would send what must be refused.
"""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from serve_load import descriptors, memory
from soaked import Soaked
from stepscope.agent.profiles import MOST_OPEN

_AT_ONCE = 4
#: More copies of a profile than stay open.
_COPIES = 8
_LONGEST_WAIT_S = 60
_ANALYSES = ("breakdown", "overlap", "kernels", "idle", "info", "exposed", "nvtx", "streams", "launches")
_FINE: tuple[str | None, ...] = (None,)


def soak_mcp(trace: Path, folder: Path, calls: int, *, warm: int) -> Soaked:
    """That many calls, after `warm` of them. `folder` gets copies of the trace, and is the root."""
    for k in range(_COPIES):
        shutil.copy(trace, folder / f"job{k}.sqlite")
    soaked = Soaked("mcp")
    asyncio.run(_soak(folder, calls, warm, soaked))
    return soaked


async def _soak(folder: Path, calls: int, warm: int, soaked: Soaked) -> None:
    command = [sys.executable, "-m", "stepscope", "mcp", "--root", str(folder)]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe, limit=1 << 26)
    said = asyncio.create_task(_read(process.stderr))
    agent = _Agent(process, soaked)
    try:
        await agent.begin()
        await agent.hammer(warm, seed=1)
        await agent.settle()
        soaked.rss_start_mb, soaked.fds_start = memory(process.pid), descriptors(process.pid)
        soaked.requests, began = 0, time.monotonic()
        await agent.hammer(calls, seed=2)
        soaked.minutes = (time.monotonic() - began) / 60
        await agent.settle()
        soaked.rss_end_mb, soaked.fds_end = memory(process.pid), descriptors(process.pid)
    finally:
        await agent.end()
    if b"Traceback" in (text := await said):
        soaked.errors.append(f"standard error has a traceback: {text[-300:]!r}")


async def _read(stream: asyncio.StreamReader | None) -> bytes:
    return b"" if stream is None else await stream.read(-1)


class _Agent:
    """The other end of the server's standard input and output."""

    def __init__(self, process: asyncio.subprocess.Process, soaked: Soaked) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._process, self._soaked = process, soaked
        self._in, self._out = process.stdin, process.stdout
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._last = 0
        self._reader = asyncio.create_task(self._listen())

    async def begin(self) -> None:
        client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "soak", "version": "1"}}
        await self._request("initialize", client)
        await self._send({"method": "notifications/initialized"})

    async def end(self) -> None:
        self._in.close()
        try:
            status = await asyncio.wait_for(self._process.wait(), 30)
            if status:
                self._soaked.errors.append(f"it ended with status {status}")
        except TimeoutError:
            self._process.kill()
            self._soaked.errors.append("it goes on after its input ended")
        self._reader.cancel()

    async def hammer(self, calls: int, seed: int) -> None:
        target = self._soaked.requests + calls

        async def busy(chance: random.Random) -> None:
            while self._soaked.requests < target and not self._reader.done():
                self._soaked.requests += 1
                await self._one(chance)

        await asyncio.gather(*(busy(random.Random(seed * 100 + i)) for i in range(_AT_ONCE)))

    async def settle(self) -> None:
        """As many profiles open as stay open, and the same read of each: then descriptors can be compared."""
        for k in range(MOST_OPEN):
            for analysis in _ANALYSES:
                await self.tool("run", {"profile": f"job{k}.sqlite", "analysis": analysis}, _FINE)

    async def _one(self, chance: random.Random) -> None:
        profile = f"job{chance.randrange(_COPIES) if chance.random() < 0.1 else 0}.sqlite"
        kind = chance.random()
        if kind < 0.55:
            start = chance.randrange(0, 100_000_000)
            options = {"start": start, "end": start + chance.randrange(1_000_000, 100_000_000)}
            arguments = {"profile": profile, "analysis": chance.choice(_ANALYSES)}
            if arguments["analysis"] not in ("info", "streams") and chance.random() < 0.6:
                arguments |= {"options": options}
            await self.tool("run", arguments, (None, "cannot_answer", "bad_input", "bad_option"))
        elif kind < 0.65:
            query = f"SELECT count(*), {chance.randrange(10**6)} FROM ops"
            await self.tool("sql", {"profile": profile, "query": query}, _FINE)
        elif kind < 0.75:
            await self.tool(chance.choice(["list", "open"]), {}, (None, "bad_argument"))
            await self.tool("open", {"profile": profile}, _FINE)
        elif kind < 0.9:
            await self._wrong(chance, profile)
        else:
            await self._cancelled(chance, profile)

    async def _wrong(self, chance: random.Random, profile: str) -> None:
        run = {"profile": profile, "analysis": "breakdown"}
        tool, arguments, code = chance.choice(
            [
                ("run", run | {"analysis": "x" * 1_000_000}, "unknown_analysis"),
                ("run", run | {"cursor": "x"}, "bad_cursor"),
                ("run", run | {"limit": -5}, "bad_argument"),
                ("run", run | {"options": {"nonsense": 1}}, "unknown_option"),
                ("run", run | {"profile": "../../../etc/passwd"}, "outside_roots"),
                ("run", run | {"profile": "nobody.sqlite"}, "bad_input"),
                ("sql", {"profile": profile, "query": "DROP TABLE ops"}, "bad_input"),
                ("nothing", {}, "unknown_tool"),
            ]
        )
        await self.tool(tool, arguments, (code,))
        garbage = chance.choice([b"not JSON\n", b"[]\n", b'{"jsonrpc":"2.0","id":' + b"9" * 5000 + b"}\n", b"\n"])
        self._in.write(garbage)
        await self._in.drain()

    async def _cancelled(self, chance: random.Random, profile: str) -> None:
        """Asked, and no longer wanted before the answer is there."""
        self._last += 1
        number = self._last
        arguments = {"profile": profile, "analysis": chance.choice(_ANALYSES), "options": {"rank": "0"}}
        await self._send({"id": number, "method": "tools/call", "params": _call("run", arguments)})
        await asyncio.sleep(chance.random() * 0.02)
        await self._send({"method": "notifications/cancelled", "params": {"requestId": number, "reason": "soak"}})

    async def tool(self, tool: str, arguments: dict[str, Any], expected: tuple[str | None, ...]) -> None:
        """A call, and whether it ends as expected: answered (None), or with an error of such a code."""
        try:
            answer = await self._request("tools/call", _call(tool, arguments))
        except TimeoutError:
            self._soaked.errors.append(f"{tool}: no answer in {_LONGEST_WAIT_S} s")
            return
        except ConnectionError as gone:
            self._soaked.errors.append(str(gone))
            return
        body = answer.get("result", {}).get("structuredContent") or {}
        code = body.get("error", {}).get("code") if "result" in answer else "protocol"
        if code not in expected:
            self._soaked.errors.append(f"{tool} {str(arguments)[:100]}: {code} {str(answer)[:200]}")

    async def _request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self._last += 1
        number = self._last
        answered = self._waiting[number] = asyncio.get_running_loop().create_future()
        await self._send({"id": number, "method": method, "params": params})
        try:
            return await asyncio.wait_for(answered, _LONGEST_WAIT_S)
        finally:
            self._waiting.pop(number, None)

    async def _send(self, message: dict[str, Any]) -> None:
        self._in.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        await self._in.drain()

    async def _listen(self) -> None:
        while line := await self._out.readline():
            message = json.loads(line)
            answered = self._waiting.get(message.get("id"))
            if answered is not None and not answered.done():
                answered.set_result(message)
        for answered in self._waiting.values():
            if not answered.done():
                answered.set_exception(ConnectionError("the server is gone"))


def _call(tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"name": f"stepscope_{tool}", "arguments": arguments}
