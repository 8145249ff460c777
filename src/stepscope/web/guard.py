"""Who may ask: every request passes here first, before anything of it is read.

A server on loopback is reached by every page that the user's browser has open, and by every user of the machine. So a
request must come with the token that only the person who started the server was shown; its Host must be this machine
(else a foreign name that resolves to 127.0.0.1 would do); and its Origin, where a browser says one, must be the page's
own. A page takes nothing but GET without a body, and may ask nobody else (Content-Security-Policy); what agents call
takes POST, and the token as a header alone.
"""

from __future__ import annotations

import hmac
import ipaddress
import time
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}
COOKIE, PARAMETER = "stepscope", "token"
#: What a request may say at most: its path with the question, in bytes.
MOST_PATH = 8_192


@dataclass(frozen=True)
class Accepts:
    """What an application takes: methods, bodies, links that carry the token; and what is said to who has none."""

    methods: tuple[str, ...]
    bodies: bool
    links: bool
    hint: str


PAGE = Accepts(("GET", "HEAD"), False, True, "open the address that `stepscope serve` printed: it carries the token")
CALLS = Accepts(
    ("POST", "GET", "DELETE"), True, False, "send the header that `stepscope mcp --http` printed: it carries the token"
)


class Guard:
    """ASGI middleware. `names` are host names by which the machine may be called, beside loopback's own."""

    def __init__(
        self,
        app: ASGIApp,
        token: str,
        names: frozenset[str] = frozenset(),
        *,
        addresses: bool = False,
        accepts: Accepts = PAGE,
    ) -> None:
        self._app, self._token, self._accepts = app, token, accepts
        self._names = names | {"localhost"}
        self._addresses = addresses
        #: when the last request was let in
        self.last = time.monotonic()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # no web sockets here
            await send({"type": "websocket.close", "code": 1008})
            return
        refused = self._judge(scope)
        if refused is None:
            self.last = time.monotonic()

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await (refused or self._app)(scope, receive, sent)

    def _judge(self, scope: Scope) -> Response | None:
        """An answer that refuses, or that turns the token of a link into a cookie; None where it may pass."""
        headers = Headers(scope=scope)
        if not self._known(headers):
            return PlainTextResponse("not a host of this server", 421)
        if headers.get("origin", (own := f"http://{headers['host']}")) != own:
            return PlainTextResponse("a foreign origin", 403)
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            # A link from another page is followed once, with the token in it; what other pages fetch is refused.
            navigates = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
            if not navigates:
                return PlainTextResponse("a foreign page", 403)
        if scope["method"] not in (methods := self._accepts.methods):
            return PlainTextResponse(f"only {methods[0]}", 405, {"allow": ", ".join(methods)})
        has_body = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
        if has_body and not self._accepts.bodies:
            return PlainTextResponse("no body is expected", 413)
        if len(scope["raw_path"]) + len(scope["query_string"]) > MOST_PATH:
            return PlainTextResponse("too long", 414)
        return self._admitted(scope, headers)

    def _admitted(self, scope: Scope, headers: Headers) -> Response | None:
        name = f"{COOKIE}-{_port(headers)}"  # cookies do not know ports: two servers must not share one
        given = parse_qs(scope["query_string"].decode("latin-1")).get(PARAMETER, [])
        if given and self._accepts.links:
            if not self._is_token(given[0]):
                return PlainTextResponse("the token is not that of this server", 403)
            answer = RedirectResponse("/", 303)  # so that the token does not stay in the address bar; a #view stays
            answer.set_cookie(name, self._token, httponly=True, samesite="strict", path="/")
            return answer
        bearer = headers.get("authorization", "").removeprefix("Bearer ")
        cookie = _cookies(headers).get(name, "") if self._accepts.links else ""
        if self._is_token(cookie) or self._is_token(bearer):
            return None
        return PlainTextResponse(self._accepts.hint, 401)

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode("utf-8", "replace"), self._token.encode())

    def _known(self, headers: Headers) -> bool:
        """Whether the Host is this machine: a name of it, or a loopback address (any, where all may call)."""
        if len(headers.getlist("host")) != 1:
            return False
        host = _host(headers)
        if host in self._names:
            return True
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return False
        return address.is_loopback or self._addresses


def _host(headers: Headers) -> str:
    host = headers["host"].lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def _port(headers: Headers) -> str:
    port = headers["host"].rpartition("]")[2].rpartition(":")[2]
    return port if port.isdigit() else "80"


def _cookies(headers: Headers) -> Mapping[str, str]:
    pairs = (pair.strip().partition("=") for pair in headers.get("cookie", "").split(";"))
    return {name: value for name, _, value in pairs}
