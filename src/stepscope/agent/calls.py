"""A call while it is answered: it stops where its client cancels it or is gone, and says how far it is.

Tools compute in threads, which nobody can end from outside: what they compute looks whether it is still wanted
(`stepscope.progress`).
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from time import monotonic
from typing import Any, TypeVar

import anyio
from mcp.server.mcpserver import Context

from stepscope import progress
from stepscope.agent.failures import Refused
from stepscope.agent.http import gone

T = TypeVar("T")

#: A call that takes longer says how far it is; then again and again.
FIRST_S, AGAIN_S = 2.0, 1.0


async def while_wanted(work: Callable[[], Awaitable[T]], context: Context[Any, Any] | None) -> T:
    """What `work` returns. Where this task is cancelled or its client is gone, what it computes in threads stops."""
    unwanted, left = threading.Event(), gone(context)
    latest: list[str] = []

    def heard(what: str, done: int | None, total: int | None) -> None:
        latest[:] = [f"{what} {done} of {total}" if total and total > 1 else what]

    failed: Exception | None = None
    async with anyio.create_task_group() as group:
        group.start_soon(_set_when_cancelled, unwanted)
        if context is not None:
            group.start_soon(_tell, context, latest)
        try:
            with progress.wanted(lambda: unwanted.is_set() or left(), heard):
                return await work()
        except Exception as error:  # a group would wrap it
            failed = error
        except progress.Stopped:
            if not left():  # only after a cancellation, which is raised here
                await anyio.sleep_forever()
            failed = Refused("bad_input", "the client is gone")
        finally:
            group.cancel_scope.cancel()
    assert failed is not None
    raise failed


async def _set_when_cancelled(unwanted: threading.Event) -> None:
    """A task waits for its thread even when it is cancelled: another one must tell the thread."""
    try:
        await anyio.sleep_forever()
    finally:
        unwanted.set()


async def _tell(context: Context[Any, Any], latest: list[str]) -> None:
    """Seconds so far, and what is being done: how many there will be, nobody knows."""
    began = monotonic()
    await anyio.sleep(FIRST_S)
    while True:
        with suppress(ValueError, LookupError):  # no request: the tool was called from Python
            await context.report_progress(round(monotonic() - began, 1), None, latest[0] if latest else "computing")
        await anyio.sleep(AGAIN_S)
