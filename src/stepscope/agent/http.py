"""The server over HTTP: MCP's streamable transport as an application, and what becomes of a call whose client is gone.

Clients of the protocol of 2026 cancel by closing the stream of an answer, which the SDK sees. Older ones send a message
for that; where their connection is gone instead, nobody will read the answer: streams cannot be resumed here.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

if TYPE_CHECKING:
    from mcp.server.mcpserver import Context

    from stepscope.agent.server import Server

PATH = "/mcp"
_GONE = "stepscope.gone"


def application(made: Server, host: str) -> ASGIApp:
    """What a web server runs."""
    return _Watched(made.streamable_http_app(streamable_http_path=PATH, host=host))


class _Watched:
    """ASGI middleware that notes in a request's scope when its connection has ended."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        gone = scope[_GONE] = threading.Event()

        async def received() -> Message:
            message = await receive()
            if message["type"] == "http.disconnect":
                gone.set()
            return message

        await self._app(scope, received, send)


def gone(context: Context[Any, Any] | None) -> threading.Event:
    """Set once the client of a call is gone; never, where it did not come over HTTP."""
    try:
        request = None if context is None else context.request_context.request
    except (ValueError, LookupError):  # the tool was called from Python
        request = None
    found = getattr(request, "scope", {}).get(_GONE)
    return found if found is not None else threading.Event()
