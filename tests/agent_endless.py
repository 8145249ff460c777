"""An analysis that does not end by itself, for tests of calls that are cancelled."""

from __future__ import annotations

import threading
from typing import Any

import anyio
import pytest
from mcp import Client

from agent_client import call
from stepscope import api, progress


class Endless:
    """An analysis that computes until it is stopped; `released` lets it answer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.stopped, self.released = threading.Event(), threading.Event(), threading.Event()
        self._real = api.analyse
        monkeypatch.setattr(api, "analyse", self)

    def __call__(self, profile: Any, name: str, **options: Any) -> Any:
        if name != "nvtx":
            return self._real(profile, name, **options)
        self.begun.set()
        try:
            while not self.released.wait(0.01):
                progress.report("counting", 3, 8)
        except progress.Stopped:
            self.stopped.set()
            raise
        return self._real(profile, name, **options)

    async def has(self, event: threading.Event) -> None:
        assert await anyio.to_thread.run_sync(event.wait, 60)

    async def cancelled(self, client: Client, profile: str) -> None:
        """A call of the client that is cancelled while it computes: it stops, and its profile can be asked again."""
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: call(client, "run", profile=profile, analysis="nvtx"))
            await self.has(self.begun)
            group.cancel_scope.cancel()
        await self.has(self.stopped)
        assert not (await call(client, "run", profile=profile, analysis="info")).is_error  # its lock is free
