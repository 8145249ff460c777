"""Thousands of requests to `stepscope serve`, many of them rude: what is left behind, and what was answered wrongly."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from serve_load import Clients, descriptors, memory, server, view
from soaked import Soaked
from stepscope.web.guard import MOST_PATH
from stepscope.web.run import PATIENCE_S

#: Requests under way at once.
_AT_ONCE = 16
#: Requests of one caller who keeps the line.
_KEPT = 5


def soak_serve(trace: Path, requests: int, *, warm: int, callers: int = 0) -> Soaked:
    """That many requests of all sorts, after `warm` of them; then `callers` who stay and never end theirs."""
    soaked = Soaked("serve")
    with server(trace, "--idle", "600", stderr=subprocess.PIPE) as (pid, address, _):
        clients = Clients(address)
        asyncio.run(_ready(clients))
        asyncio.run(_hammer(clients, soaked, warm, seed=1))
        soaked.rss_start_mb, soaked.fds_start = memory(pid), _settled(pid)
        soaked.requests, began = 0, time.monotonic()
        asyncio.run(_hammer(clients, soaked, requests, seed=2))
        asyncio.run(_patience(clients, soaked, callers))
        soaked.minutes = (time.monotonic() - began) / 60
        soaked.rss_end_mb, soaked.fds_end = memory(pid), _settled(pid, soaked.fds_start)
        if asyncio.run(clients.get("/api/alive"))[0] != 200:
            soaked.errors.append("it does not answer any more")
    return soaked


async def _ready(clients: Clients) -> None:
    while not json.loads((await clients.get("/api/findings"))[1])["ready"]:
        await asyncio.sleep(0.2)


def _settled(pid: int, wanted: int = 0) -> int:
    """Descriptors, once the server has closed what its callers closed: at most until lines that were kept time out."""
    for _ in range(40):
        before, _ = descriptors(pid), time.sleep(0.25)
        if descriptors(pid) == before and before <= (wanted or before):
            break
    return descriptors(pid)


async def _hammer(clients: Clients, soaked: Soaked, requests: int, seed: int) -> None:
    scene = json.loads((await clients.get("/api/scene"))[1])["profiles"][0]
    callers = [_Caller(clients, scene, soaked, random.Random(seed * 1000 + i)) for i in range(_AT_ONCE)]
    target = soaked.requests + requests

    async def busy(caller: _Caller) -> None:
        while soaked.requests < target:
            await caller.one()

    await asyncio.gather(*map(busy, callers))


class _Caller:
    """One of many who ask at the same time, politely and not."""

    def __init__(self, clients: Clients, scene: dict[str, Any], soaked: Soaked, chance: random.Random) -> None:
        self._clients, self._scene, self._soaked, self._chance = clients, scene, soaked, chance
        self._kinds: dict[Callable[[], Awaitable[None]], int] = {
            self._polite: 60,
            self._stranger: 8,
            self._oversized: 6,
            self._garbage: 4,
            self._half_sent: 8,
            self._dropped: 8,
            self._slow: 2,
            self._kept: 4,
        }

    async def one(self) -> None:
        (kind,) = self._chance.choices(list(self._kinds), list(self._kinds.values()))
        try:
            await kind()
        except Exception as error:  # whatever it is, it is told, and the others go on
            self._soaked.errors.append(f"{kind.__name__}: {type(error).__name__}: {error}")

    def _question(self) -> tuple[str, tuple[int, ...]]:
        """An address that the page could ask for, and what may come back."""
        chance, end = self._chance, self._scene["end"]
        word = "".join(chance.choices("abcdefgnml_", k=chance.randrange(1, 5)))
        start = chance.randrange(0, end)
        span = f"from={start}&to={start + chance.randrange(1000, end)}"
        lane = chance.randrange(len(self._scene["lanes"]))
        return chance.choice(
            [
                *((view(self._scene, chance), (200,)) for _ in range(5)),
                (f"{view(self._scene, chance)}&q={word}", (200,)),
                (f"/api/search?q={word}", (200,)),
                (f"/api/match?q={word}&at={start}", (200, 400)),
                (f"/api/span?{span}", (200,)),
                (f"/api/span?{span}&ranks=0", (200,)),
                (f"/api/details?lane={lane}&row={chance.randrange(40)}", (200, 400)),
                ("/api/findings", (200,)),
                ("/api/scene", (200,)),
                (chance.choice(["/", "/serve.js", "/serve.css"]), (200,)),
                ("/api/block?lanes=0&from=9&to=3&px=0", (400,)),
                ("/none", (404,)),
            ]
        )

    async def _asked(self, path: str, expected: tuple[int, ...], *args: Any, **how: Any) -> None:
        self._soaked.requests += 1
        status, _ = await self._clients.get(path, *args, **how)
        if status not in expected:
            self._soaked.errors.append(f"{path[:80]}: {status}")

    async def _polite(self) -> None:
        packed = ("Accept-Encoding: gzip",) if self._chance.random() < 0.5 else ()
        await self._asked(*self._question(), 0, *packed)

    async def _stranger(self) -> None:
        path, _ = self._question()
        header, expected = self._chance.choice(
            [("Authorization: Bearer x", 401), ("Origin: http://evil.example", 403), ("Cookie: stepscope-1=x", 401)]
        )
        await self._asked(path, (expected,), 0, header, token="wrong")

    async def _oversized(self) -> None:
        which = self._chance.randrange(3)
        if which == 0:
            await self._asked("/api/search?q=" + "x" * (MOST_PATH + 1), (414,))
        elif which == 1:
            await self._asked("/api/scene", (413,), 0, "Content-Length: 1000000")
        else:
            await self._shut_out(self._clients.request("/api/scene", "X-Long: " + "x" * 200_000))

    async def _garbage(self) -> None:
        await self._shut_out(self._chance.randbytes(self._chance.randrange(1, 5000)) + b"\r\n\r\n")

    async def _shut_out(self, request: bytes) -> None:
        """What is no request: a 400, or nothing; and the line is closed."""
        self._soaked.requests += 1
        reader, writer = await self._clients.connect()
        try:
            with suppress(OSError):  # the server may have hung up already
                writer.write(request)
                writer.write_eof()
                answer = await asyncio.wait_for(reader.read(-1), PATIENCE_S + 20)
                if answer and not answer.startswith(b"HTTP/1.1 4"):
                    self._soaked.errors.append(f"what is no request was answered: {answer[:60]!r}")
        finally:
            writer.close()

    async def _half_sent(self) -> None:
        self._soaked.requests += 1
        whole = self._clients.request(self._question()[0])
        _, writer = await self._clients.connect()
        writer.write(whole[: self._chance.randrange(len(whole))])
        with suppress(ConnectionError):
            await writer.drain()
        writer.close()

    async def _dropped(self) -> None:
        """Asked, and gone before the answer is there or read."""
        self._soaked.requests += 1
        reader, writer = await self._clients.connect()
        writer.write(self._clients.request(self._question()[0]))
        with suppress(ConnectionError):
            await writer.drain()
            if self._chance.random() < 0.5:
                await reader.read(10)
        writer.transport.abort()

    async def _slow(self) -> None:
        await self._asked(*self._question(), 0.002)

    async def _kept(self) -> None:
        """Several requests on one line, the last of them half sent."""
        reader, writer = await self._clients.connect()
        try:
            for _ in range(_KEPT):
                self._soaked.requests += 1
                path, expected = self._question()
                writer.write(self._clients.request(path))
                head = await reader.readuntil(b"\r\n\r\n")
                (length,) = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")]
                await reader.readexactly(int(length.split(b":")[1]))
                if int(head.split(b" ", 2)[1]) not in expected:
                    self._soaked.errors.append(f"{path[:80]}: {head[:40]!r}")
            writer.write(b"GET /api/alive HT")
        finally:
            writer.close()


async def _patience(clients: Clients, soaked: Soaked, callers: int) -> None:
    """Callers who stay, and never end a request: the first, or one after it. All are cut off."""

    async def stays(before: bytes) -> None:
        reader, writer = await clients.connect()
        writer.write(before + b"GET /api/alive HTTP/1.1\r\nHost: 127.0.0.1\r\n")
        soaked.requests += 1
        try:
            await asyncio.wait_for(reader.read(-1), PATIENCE_S + 20)
        except TimeoutError:
            soaked.errors.append("a caller who never ends a request keeps the line")
        except ConnectionError:
            pass  # cut off
        finally:
            writer.close()

    await asyncio.gather(*(stays(clients.request("/api/alive") if i % 2 else b"") for i in range(callers)))
