"""The process that queries run in: it answers one after the other, each in a database of its own.

Messages are lines of JSON, tables are Arrow files in a folder of the query. It ends with whoever started it, also
while it computes: a thread waits for the end of its standard input.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import polars as pl

from stepscope.errors import BadInput
from stepscope.sql.database import TooLarge, answer, database
from stepscope.sql.statement import parse

Message = dict[str, Any]


def main() -> None:
    """Answer until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started it decides
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a library prints is not a reply
    messages: queue.SimpleQueue[Message] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(messages,), daemon=True).start()

    def reply(message: Message) -> None:
        replies.write(json.dumps(message) + "\n")
        replies.flush()

    reply({"ready": True})
    while True:
        _answer(messages, reply)


def _listen(messages: queue.SimpleQueue[Message]) -> None:
    for line in sys.stdin:
        messages.put(json.loads(line))
    os._exit(0)


def _answer(messages: queue.SimpleQueue[Message], reply: Any) -> None:
    """One query: what it mentions, then its rows."""
    asked = messages.get()
    folder = Path(asked["folder"])
    try:
        with database(str(folder / "spilled")) as connection:
            query = parse(connection, asked["text"])
            reply({part: sorted(getattr(query, part)) for part in ("tables", "functions", "named")})
            given = messages.get()
            if "tables" not in given:  # they could not be made
                return
            frames = {name: pl.read_ipc(folder / file) for name, file in given["tables"].items()}
            rows = answer(connection, query, frames, given["memory"], given["limit"])
            rows.write_ipc(folder / "rows.arrow", compression="uncompressed")
        reply({"rows": "rows.arrow"})
    except TooLarge:
        reply({"too_large": True})
    except BadInput as error:
        reply({"error": error.message, "hint": error.hint})
    except Exception as error:
        reply({"unexpected": f"{type(error).__name__}: {error}"})


if __name__ == "__main__":
    main()
