"""`stepscope serve` as a process, and clients of it as plain bytes: a client library would be most of what is measured.

For `bench/serve.py`, which measures, and `tests/reliability/soak.py`, which looks for what is left behind.
"""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit


@contextmanager
def server(trace: Path, *options: str, stderr: Any = subprocess.DEVNULL) -> Iterator[tuple[int, str, float]]:
    """Its process id, the address with the token, and after how many seconds that was said."""
    command = [sys.executable, "-m", "stepscope", "serve", str(trace), *options]
    began = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True) as process:
        assert process.stdout is not None
        try:
            address = process.stdout.readline().strip()
            yield process.pid, address, time.monotonic() - began
        finally:
            process.terminate()


def memory(pid: int) -> float:
    """Resident memory in MB (Linux)."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text("utf-8").splitlines())
    return int(fields["VmRSS"].split()[0]) / 1024


def descriptors(pid: int) -> int:
    """Open files and sockets (Linux)."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


class Clients:
    """Callers of one server, who know its token."""

    def __init__(self, address: str) -> None:
        self.port = int(urlsplit(address).port or 0)
        self.token = parse_qs(urlsplit(address).query)["token"][0]

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 16)

    def request(self, path: str, *headers: str, method: str = "GET", token: str | None = None) -> bytes:
        """The bytes of a request."""
        lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", f"Authorization: Bearer {token or self.token}"]
        return "\r\n".join([*lines, *headers, "", ""]).encode()

    async def get(self, path: str, pause: float = 0, *headers: str, **how: Any) -> tuple[int, bytes]:
        """One request; with `pause`, the answer is read slowly."""
        reader, writer = await self.connect()
        try:
            writer.write(self.request(path, "Connection: close", *headers, **how))
            head = await reader.readuntil(b"\r\n\r\n")
            status = int(head.split(b" ", 2)[1])
            if not pause:
                return status, await reader.read(-1)
            body = b""
            while piece := await reader.read(4096):
                body += piece
                await asyncio.sleep(pause)
            return status, body
        finally:
            writer.close()

    async def never_ending(self, seconds: float) -> None:
        """A request whose head does not end."""
        _, writer = await self.connect()
        try:
            writer.write(b"GET /api/scene HTTP/1.1\r\nHost: 127.0.0.1\r\n")
            for _ in range(int(seconds)):
                if writer.is_closing():
                    return
                writer.write(b"X: y\r\n")
                await asyncio.sleep(1)
        except ConnectionError:
            pass  # shown the door, rightly
        finally:
            writer.close()


def view(scene: dict[str, Any], chance: random.Random) -> str:
    """The address of some view of a trace: some of its rows, at some zoom."""
    span = int(scene["end"] * 10 ** -chance.uniform(0, 5))
    start = chance.randrange(0, max(scene["end"] - span, 1))
    first = chance.randrange(0, max(len(scene["lanes"]) - 24, 1))
    last = min(first + 23, len(scene["lanes"]) - 1)
    return f"/api/block?lanes={first}-{last}&from={start}&to={start + max(span, 1000)}&px=1100"
