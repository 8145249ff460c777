"""Who is refused: without the token, from elsewhere, for other files, with more than a question."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from serving import TOKEN, client

from stepscope.errors import BadInput
from stepscope.web import run as server_run
from stepscope.web.answers import Answers
from stepscope.web.guard import POLICY, Guard
from stepscope.web.run import Where, listening, serve

ADDRESSES = ("/", "/serve.js", "/serve.css", "/api/scene", "/api/block", "/api/span", "/api/details", "/api/findings")


@pytest.mark.parametrize("path", ADDRESSES)
def test_nothing_without_the_token(answers, path):
    stranger = client(answers, known=False)
    for answer in (
        stranger.get(path),
        stranger.get(path, headers={"authorization": "Bearer wrong"}),
        stranger.get(path, headers={"cookie": "stepscope-8000=wrong; stepscope-8001=" + TOKEN}),
        stranger.get(path, params={"token": "wrong"}),
    ):
        assert answer.status_code in (401, 403)
        assert "sqlite" not in answer.text


def test_the_link_gives_a_cookie_and_hides_the_token(answers):
    browser = client(answers, known=False)
    first = browser.get("/", params={"token": TOKEN})
    assert (first.status_code, first.headers["location"]) == (303, "/")
    cookie = first.headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=strict" in cookie and cookie.startswith("stepscope-8000=")
    assert browser.get("/").status_code == 200
    assert browser.get("/api/scene").json()["profiles"]


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", "10.0.0.7:8000", "localhost.evil.org", ""],
)
def test_a_foreign_host_is_refused(answers, host):
    assert client(answers).get("/api/scene", headers={"host": host}).status_code == 421


@pytest.mark.parametrize("host", ["localhost:9000", "127.0.0.1:8000", "[::1]:8000", "LOCALHOST"])
def test_loopback_may_be_called_by_its_names(answers, host):
    """Also through a tunnel, which has a port of its own."""
    assert client(answers).get("/api/scene", headers={"host": host}).status_code == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "https://127.0.0.1:8000", "http://127.0.0.1:9", "null"])
def test_a_foreign_origin_is_refused(answers, origin):
    assert client(answers).get("/api/scene", headers={"origin": origin}).status_code == 403
    assert client(answers).get("/api/scene", headers={"origin": "http://127.0.0.1:8000"}).status_code == 200


def test_a_foreign_page_is_refused(answers):
    foreign = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "script"}
    assert client(answers).get("/serve.js", headers=foreign).status_code == 403
    assert client(answers).get("/serve.js", headers={**foreign, "sec-fetch-site": "same-site"}).status_code == 403
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    assert client(answers, known=False).get("/", params={"token": TOKEN}, headers=link).status_code == 303


def test_answers_say_what_the_page_may_do(answers):
    for path in ("/", "/api/scene", "/none"):
        headers = client(answers).get(path).headers
        assert headers["content-security-policy"] == POLICY
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
    assert "unsafe" not in POLICY and "default-src 'none'" in POLICY
    assert "<script>" not in client(answers).get("/").text


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_only_get(answers, method):
    assert client(answers).request(method, "/api/scene").status_code == 405


def test_requests_are_small(answers):
    known = client(answers)
    assert known.request("GET", "/api/scene", content=b"x" * 10).status_code == 413
    assert known.get("/api/search", params={"q": "x" * 9000}).status_code == 414
    assert known.get("/api/search", params={"q": "x" * 500}).status_code == 400
    assert known.get("/api/block", params={"lanes": "0-40", "from": 0, "to": 10, "px": 100}).status_code == 400
    assert known.get("/api/block", params={"lanes": "0-999999999", "from": 0, "to": 10, "px": 100}).status_code == 400


@pytest.mark.parametrize(
    "given",
    [
        {"from": "0", "to": "9"},
        {"lanes": "0", "from": "9", "to": "9", "px": "10"},
        {"lanes": "0", "from": "0", "to": "9" * 19, "px": "10"},
        {"lanes": "0", "from": "0", "to": "9", "px": "0"},
        {"lanes": "0", "from": "0", "to": "9", "px": "99999"},
        {"lanes": "-1", "from": "0", "to": "9", "px": "10"},
        {"lanes": "0", "from": "0", "to": "1e3", "px": "10"},
        {"lanes": "0", "from": "0", "to": "9", "px": "10", "p": "7"},
    ],
)
def test_what_the_page_never_asks_is_refused(answers, given):
    assert client(answers).get("/api/block", params=given).status_code == 400


@contextlib.contextmanager
def running(answers: Answers, idle_s: float = 0) -> Iterator[tuple[int, threading.Thread]]:
    """The server itself, as `stepscope serve` starts it."""
    said: list[str] = []
    ready = threading.Event()

    def announce(address: str) -> None:
        said.append(address)
        ready.set()

    thread = threading.Thread(target=serve, args=(answers, Where(), idle_s, announce, TOKEN), daemon=True)
    thread.start()
    assert ready.wait(10)
    yield int(said[0].split(":")[2].split("/")[0]), thread


def raw(port: int, path: str, **headers: str) -> tuple[int, bytes]:
    """A request as it is written, which clients would tidy up."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as connection:
        connection.putrequest("GET", path, skip_accept_encoding=True)
        for name, value in {"authorization": f"Bearer {TOKEN}", **headers}.items():
            connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, answer.read()


def test_no_other_file_can_be_read(answers, served_job: Path):
    trace = next(served_job.glob("*.sqlite"))
    head = trace.read_bytes()[:15]
    with running(answers, idle_s=30) as (port, _):
        for path in (
            "/../../../../../../etc/passwd",
            "/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
            "/..%2f..%2f..%2fetc/passwd",
            "//etc/passwd",
            "/serve.js/../../shell.py",
            "/serve.js%00.css",
            f"/{trace.name}",
            str(trace),
            "/api/../" + trace.name,
            "/api/scene/../../secret",
            "/bundle/report.js",
            "http://169.254.169.254/latest",
        ):
            status, body = raw(port, path)
            assert status in (400, 404, 421), path
            assert b"root:" not in body and head not in body
        assert raw(port, "/api/scene")[0] == 200
        assert raw(port, "/api/scene", authorization="")[0] == 401


def test_a_caller_who_never_ends_its_request_is_cut_off(answers, monkeypatch):
    monkeypatch.setattr(server_run, "PATIENCE_S", 0.5)
    with running(answers, idle_s=20) as (port, _), socket.create_connection(("127.0.0.1", port), timeout=10) as caller:
        caller.sendall(b"GET /api/scene HTTP/1.1\r\nHost: 127.0.0.1\r\n")
        assert caller.recv(100) == b""
        assert raw(port, "/api/alive")[0] == 200


def test_a_second_request_on_a_line_must_end_too(answers, monkeypatch):
    """Also the body of one that was refused, a byte now and then."""
    monkeypatch.setattr(server_run, "PATIENCE_S", 0.5)
    whole = f"GET /api/alive HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\n".encode()
    with running(answers, idle_s=20) as (port, _):
        for first, more in ((whole + b"\r\n", b"GET /api/alive HTTP/1.1\r\nHost: 127.0.0.1\r\n"), (whole, b"x")):
            with socket.create_connection(("127.0.0.1", port), timeout=10) as caller:
                caller.sendall(first if more != b"x" else first + b"Content-Length: 9999\r\n\r\n")
                assert caller.recv(10_000).startswith(b"HTTP/1.1 " + (b"413" if more == b"x" else b"200"))
                caller.sendall(more)
                while caller.recv(10_000):
                    pass  # it ends: the server hung up
        assert raw(port, "/api/alive")[0] == 200


def test_an_idle_server_stops(answers):
    with running(answers, idle_s=1.5) as (port, thread):
        assert raw(port, "/api/alive")[0] == 200
        thread.join(20)
        assert not thread.is_alive()


def test_a_port_in_use_is_one_line():
    first = listening(Where())
    with pytest.raises(BadInput, match="cannot listen at"):
        listening(Where(port=first.getsockname()[1]))
    first.close()


def test_a_guard_for_the_network_knows_its_names():
    async def never(*_: object) -> None: ...

    guard = Guard(never, TOKEN, frozenset({"node7"}), addresses=True)
    from starlette.datastructures import Headers

    for host, known in (("node7:80", True), ("10.1.2.3:80", True), ("evil.example", False)):
        assert guard._known(Headers({"host": host})) is known
