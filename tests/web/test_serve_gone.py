"""A closed tab: what it asked for is not worked out any more."""

from __future__ import annotations

import threading
from typing import Any

import anyio
import pytest

from stepscope import progress
from stepscope.web import app as module
from stepscope.web.app import application


class Endless:
    """Answers that come only when somebody stops waiting for them."""

    def __init__(self) -> None:
        self.begun, self.stopped = threading.Event(), threading.Event()

    def span(self, asked: Any) -> Any:
        self.begun.set()
        try:
            while True:
                progress.check()
                threading.Event().wait(0.01)
        except progress.Stopped:
            self.stopped.set()
            raise


def test_who_has_gone_is_not_worked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LOOK_S", 0.01)
    answers, sent = Endless(), []
    scope = {"type": "http", "method": "GET", "path": "/api/span", "query_string": b"", "headers": []}
    first = [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive() -> dict[str, Any]:
        if first:
            return first.pop()
        if not answers.begun.is_set():
            await anyio.sleep_forever()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    async def asked() -> None:
        await application(answers)({**scope, "http_version": "1.1", "root_path": ""}, receive, send)

    anyio.run(asked)
    assert answers.stopped.is_set() and sent[0]["status"] == 499
