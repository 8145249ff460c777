"""Running the server: on an address of its own, until it is stopped or nobody has asked for a while."""

from __future__ import annotations

import asyncio
import ipaddress
import secrets
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from stepscope.errors import BadInput
from stepscope.web.answers import Answers
from stepscope.web.app import application
from stepscope.web.guard import CALLS, MOST_PATH, PAGE, PARAMETER, Accepts, Guard

#: Connections at once: those of many browsers, but no endless number.
_MOST_CONNECTIONS = 1_024
_KEEP_ALIVE_S = 15
#: Who has not said what is wanted by then has to call again.
PATIENCE_S = 10.0
#: How often the server looks whether anybody still asks.
_LOOK_S = 1.0


@dataclass(frozen=True)
class Where:
    """An address to listen at. Without a port, any that is free."""

    host: str = "127.0.0.1"
    port: int = 0

    @property
    def loopback(self) -> bool:
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def listening(where: Where) -> socket.socket:
    """A socket at the address, or one line on why not."""
    family = socket.AF_INET6 if ":" in where.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((where.host, where.port))
        listener.listen(_MOST_CONNECTIONS)  # who was told the address may call at once
    except (OSError, OverflowError) as error:
        listener.close()
        reason = getattr(error, "strerror", None) or str(error)
        raise BadInput(
            f"cannot listen at {where.host}:{where.port}: {reason}", "give another --port or --host"
        ) from None
    return listener


def guarded(app: ASGIApp, token: str, where: Where, accepts: Accepts = PAGE) -> Guard:
    """An application behind its guard."""
    if where.loopback:
        return Guard(app, token, accepts=accepts)
    names = frozenset({socket.gethostname().lower(), socket.getfqdn().lower(), where.host.lower()})
    return Guard(app, token, names, addresses=True, accepts=accepts)


def serve(
    answers: Answers, where: Where, idle_s: float, announce: Callable[[str], None], token: str | None = None
) -> bool:
    """Answer until stopped; whether it stopped because nobody asked for `idle_s` (0: never)."""
    token = token or secrets.token_urlsafe(24)
    listener = listening(where)
    guard = guarded(application(answers), token, where)
    announce(f"{address(listener)}/?{PARAMETER}={token}")
    return _run(_Server(_config(guard)), guard, listener, idle_s)


def serve_calls(
    app: ASGIApp,
    where: Where,
    announce: Callable[[str, str], None],
    signalled: Callable[[int], None],
    token: str | None = None,
) -> None:
    """Let agents call `app` until a signal comes, of which `signalled` is told. `announce` gets address and token."""
    token = token or secrets.token_urlsafe(24)
    listener = listening(where)
    guard = guarded(app, token, where, CALLS)
    announce(address(listener), token)
    _run(_Server(_config(guard, lifespan="on", timeout_graceful_shutdown=0.5), signalled), guard, listener, 0)


def address(listener: socket.socket) -> str:
    """Where it listens, as others call it."""
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else socket.gethostname() if host == "0.0.0.0" else host
    return f"http://{shown}:{port}"


def _config(guard: Guard, **other: Any) -> uvicorn.Config:
    given: dict[str, Any] = {
        "http": _Patient,
        "ws": "none",
        "lifespan": "off",
        "log_level": "error",
        "access_log": False,
        "server_header": False,
        "proxy_headers": False,
        "limit_concurrency": _MOST_CONNECTIONS,
        "timeout_keep_alive": _KEEP_ALIVE_S,
        "timeout_graceful_shutdown": 2,
        "h11_max_incomplete_event_size": 2 * MOST_PATH,
    }
    return uvicorn.Config(guard, **(given | other))


class _Server(uvicorn.Server):
    """uvicorn's, which tells of a signal."""

    def __init__(self, config: uvicorn.Config, signalled: Callable[[int], None] | None = None) -> None:
        super().__init__(config)
        self._signalled = signalled

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        if self._signalled is not None:
            self._signalled(sig)


def _run(server: uvicorn.Server, guard: Guard, listener: socket.socket, idle_s: float) -> bool:
    async def both() -> bool:
        watched = asyncio.create_task(_watch(server, guard, idle_s)) if idle_s else None
        await server.serve(sockets=[listener])
        return watched.result() if watched is not None and watched.done() else False

    try:
        return asyncio.run(both())
    except KeyboardInterrupt:  # how a server is stopped
        return False


class _Patient(H11Protocol):
    """HTTP as uvicorn speaks it, but a caller who begins a request and never ends it does not keep the line."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._look()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop()

    def _look(self) -> None:
        """Time runs from the first byte of a request until it is whole; on a line that is kept, from its next one."""
        if not self._awaited:
            self._stop()
        elif self._timer is None:
            self._timer = self.loop.call_later(PATIENCE_S, self._hang_up)

    @property
    def _awaited(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _hang_up(self) -> None:
        self._timer = None
        if self._awaited and not self.transport.is_closing():
            self.transport.close()


async def _watch(server: uvicorn.Server, guard: Guard, idle_s: float) -> bool:
    while time.monotonic() - guard.last < idle_s:
        await asyncio.sleep(_LOOK_S)
    server.should_exit = True
    return True
