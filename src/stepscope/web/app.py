"""The server's addresses: the page, what it needs at first, and one answer per question that it asks.

All are functions of the profiles that were given. No address has a path of the machine in it, so none can be asked for.
"""

from __future__ import annotations

import asyncio
import gzip
import os
import threading
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import anyio
import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

import stepscope
from stepscope import progress
from stepscope.errors import Changed, StepscopeError
from stepscope.render.html.served import script, served_page, style
from stepscope.render.inert import shown_json
from stepscope.render.json import plain
from stepscope.web.answers import Answers
from stepscope.web.asked import Asked, BadRequest

#: Less is not worth compressing.
_LEAST_PACKED = 1_000
#: Work at once; what comes meanwhile waits for its turn, up to so many.
_AT_ONCE = max(2, min(8, os.cpu_count() or 2))
_MOST_WAITING = 1_000
#: How often to look whether a caller is still there.
_LOOK_S = 0.2
#: The status of a request whose caller has gone; nobody reads it.
_CLOSED = 499

Answer = Callable[[Answers, Asked], Any]


def application(answers: Answers) -> Starlette:
    """The addresses, without the guard."""
    work = _Work()
    routes = [
        Route("/", _fixed(served_page(), "text/html; charset=utf-8")),
        Route("/serve.js", _fixed(script(), "text/javascript; charset=utf-8")),
        Route("/serve.css", _fixed(style(), "text/css; charset=utf-8")),
        *(Route(f"/api/{name}", partial(_answer, work, answers, ask)) for name, ask in _QUESTIONS.items()),
    ]
    return Starlette(routes=routes)


_QUESTIONS: dict[str, Answer] = {
    "alive": lambda answers, asked: {"version": stepscope.__version__},
    "scene": lambda answers, asked: answers.scene(),
    "block": lambda answers, asked: answers.block(asked),
    "search": lambda answers, asked: answers.search(asked),
    "match": lambda answers, asked: answers.match(asked),
    "span": lambda answers, asked: answers.span(asked),
    "details": lambda answers, asked: answers.details(asked),
    "findings": lambda answers, asked: answers.findings(asked),
    "sql": lambda answers, asked: answers.sql(asked),
}


#: Answers that are columns, not JSON.
_BINARY = (_QUESTIONS["block"],)


class Gone(Exception):
    """Whoever asked does not wait for the answer."""


class _Work:
    """So much at once, and no endless queue."""

    def __init__(self) -> None:
        self._limiter: anyio.CapacityLimiter | None = None

    async def done(self, function: Callable[[], bytes], request: Request) -> bytes | None:
        """What `function` gives, in a thread of its own; None where too many wait already.

        Where whoever asked is gone (a closed tab), it stops: `Gone`.
        """
        if self._limiter is None:  # it belongs to the loop that runs
            self._limiter = anyio.CapacityLimiter(_AT_ONCE)
        if self._limiter.statistics().tasks_waiting >= _MOST_WAITING:
            return None
        gone = threading.Event()
        looking = asyncio.create_task(_when_gone(request, gone))
        try:
            with progress.wanted(gone.is_set):
                return await anyio.to_thread.run_sync(function, limiter=self._limiter)
        except progress.Stopped:
            raise Gone from None
        finally:
            looking.cancel()


async def _when_gone(request: Request, gone: threading.Event) -> None:
    while not await request.is_disconnected():
        await asyncio.sleep(_LOOK_S)
    gone.set()


async def _answer(work: _Work, answers: Answers, ask: Answer, request: Request) -> Response:
    try:
        asked = Asked(dict(request.query_params))
        body = await work.done(lambda: _encoded(ask(answers, asked)), request)
    except BadRequest as wrong:
        return PlainTextResponse(str(wrong), 400)
    except Changed as reason:  # of files that are opened once, asking again would give no other
        return PlainTextResponse(f"{reason.message}; stop serve, and start it again", 422)
    except StepscopeError as reason:
        return PlainTextResponse(str(reason), 422)
    except Gone:
        return Response(status_code=_CLOSED)
    if body is None:
        return PlainTextResponse("busy", 503, {"retry-after": "1"})
    return await _packed(request, body, "application/octet-stream" if ask in _BINARY else "application/json")


def _encoded(answer: Any) -> bytes:
    if isinstance(answer, bytes):
        return answer
    return shown_json(msgspec.json.Encoder(enc_hook=plain).encode(answer).decode()).encode()


def _fixed(text: str, media: str) -> Callable[[Request], Any]:
    async def endpoint(request: Request) -> Response:
        return await _packed(request, text.encode(), media)

    return endpoint


async def _packed(request: Request, body: bytes, media: str) -> Response:
    headers = {"vary": "accept-encoding"}
    if len(body) > _LEAST_PACKED and "gzip" in request.headers.get("accept-encoding", ""):
        pack = _kept if media.startswith("text/") else _gzipped
        body, headers["content-encoding"] = await run_in_threadpool(pack, body), "gzip"
    return Response(body, media_type=media, headers=headers)


def _gzipped(body: bytes) -> bytes:
    return gzip.compress(body, 5, mtime=0)


@lru_cache(maxsize=8)
def _kept(body: bytes) -> bytes:
    return gzip.compress(body, 9, mtime=0)
