"""The server over HTTP: MCP's streamable transport as an application, and what becomes of a call whose client is gone.

Clients of the protocol of 2026 cancel by closing the stream of an answer, which the SDK sees. Older ones send a message
for that; where their connection is gone instead, nobody will read the answer: streams cannot be resumed here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

if TYPE_CHECKING:
    from mcp.server.mcpserver import Context

    from stepscope.agent.server import Server

PATH = "/mcp"
_GONE = "stepscope.gone"


class Application:
    """What a web server runs. It notes in a request's scope when its connection has ended, or the server is to end."""

    def __init__(self, made: Server, host: str) -> None:
        self._app: ASGIApp = made.streamable_http_app(streamable_http_path=PATH, host=host)
        self._ending = threading.Event()

    def end(self) -> None:
        """Calls that are under way stop: nobody waits for them any more."""
        self._ending.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        left = threading.Event()
        scope[_GONE] = lambda: left.is_set() or self._ending.is_set()

        async def received() -> Message:
            message = await receive()
            if message["type"] == "http.disconnect":
                left.set()
            return message

        await self._app(scope, received, send)


def gone(context: Context[Any, Any] | None) -> Callable[[], bool]:
    """Whether the client of a call is gone; it never is where it did not come over HTTP."""
    try:
        request = None if context is None else context.request_context.request
    except (ValueError, LookupError):  # the tool was called from Python
        request = None
    left: Callable[[], bool] | None = getattr(request, "scope", {}).get(_GONE)
    return left or (lambda: False)
