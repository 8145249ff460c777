"""`make bench-serve`: a served trace of two million ops, in Chromium and under many clients.

    make bench-serve                          simulates the trace once, and keeps it under .bench/
    make bench-serve ARGS="trace.sqlite"      any trace instead

First one reader: how long the page takes to open once the server is warm, how many bytes travel, and how long frames
take on the way to a single op and back. Then 200 clients at once that ask for views all over the trace, and 200 slow
ones: some read a little at a time, some never end their request. All must be answered, and memory must stay flat.
What is beyond its limit (`LIMITS`) is named, and the run fails: on a machine that does nothing else, that is a fault.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import traces

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from serve_load import Clients, memory, server, view

PAGE = Path(__file__).resolve().parents[1] / "page"
CLIENTS, REQUESTS, SLOW = 200, 20, 200
#: What each figure may be at most: bytes of a page and of one zoom, ms until all rows are drawn, ms of a frame, the ns
#: that fill the view on a single op, requests without an answer, and how much memory two rounds of clients may add.
LIMITS = {
    "first_bytes": 500_000,
    "zoom_bytes": 500_000,
    "first_ms": 2_000,
    "frame_ms": 34,
    "in_ns": 20_000,
    "unanswered": 0,
    "memory_growth_pct": 10,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", nargs="?", type=Path, help="a trace instead of the simulated one")
    args = parser.parse_args()
    trace = args.trace or traces.two_million()
    with server(trace, "--idle", "30") as (process, address, started):
        print(f"{trace.name}: ready after {started:.1f} s, {memory(process):.0f} MB")
        clients = _Clients(address)
        scene = json.loads(asyncio.run(clients.get("/api/scene"))[1])["profiles"][0]
        print(f"{scene['ops']:,} ops, {len(scene['lanes'])} rows, {scene['end'] / 1e9:.1f} s")
        _findings(clients)
        figures = _reader(address)
        before = memory(process)
        unanswered = asyncio.run(clients.all_at_once(scene))
        between = memory(process)
        unanswered += asyncio.run(clients.all_at_once(scene))
        after = memory(process)
        print(f"memory before {before:.0f} MB, after the first round {between:.0f} MB, after the second {after:.0f} MB")
        figures |= {"unanswered": unanswered, "memory_growth_pct": 100 * (after / between - 1)}
    return _judged(figures)


def _judged(figures: dict[str, float]) -> int:
    """1 where a figure is beyond its limit."""
    beyond = [
        f"{name} {figures[name]:,.0f} (at most {most:,})"
        for name, most in LIMITS.items()
        if name in figures and figures[name] > most
    ]
    load = f"load {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores"
    print(
        f"beyond the limits: {', '.join(beyond)}; {load}"
        if beyond
        else f"within the limits: {', '.join(name for name in LIMITS if name in figures)}; {load}"
    )
    return int(bool(beyond))


def _findings(clients: _Clients) -> None:
    """They are worked out beside: measure when that is done."""
    began = time.monotonic()
    while not json.loads(asyncio.run(clients.get("/api/findings"))[1])["ready"]:
        time.sleep(1)
    print(f"findings after {time.monotonic() - began:.0f} s more")


def _reader(address: str) -> dict[str, float]:
    """What a reader in Chromium sees; nothing without one."""
    chromium = os.environ.get("STEPSCOPE_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None or shutil.which("node") is None or not (PAGE / "node_modules").is_dir():
        print("no Chromium, Node or page/node_modules (`make page`): the page is not measured")
        return {}
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "REPORTS": folder, "CHROMIUM": chromium, "ADDRESS": address}
        subprocess.run(["node", "tests/measure.mjs"], cwd=PAGE, env=env, check=True)
        figures: dict[str, float] = json.loads((Path(folder) / "figures.json").read_text("utf-8"))
        return figures


class _Clients(Clients):
    """Many callers at once, some of them slow."""

    async def all_at_once(self, scene: dict[str, Any]) -> int:
        """Views all over the trace; how many were not answered."""
        times: list[float] = []
        statuses: list[int] = []

        async def client(seed: int, pause: float = 0, requests: int = REQUESTS) -> None:
            chance = random.Random(seed)
            for _ in range(requests):
                began = time.monotonic()
                status, _ = await self.get(view(scene, chance), pause)
                times.append(time.monotonic() - began)
                statuses.append(status)

        waiting = [asyncio.create_task(self.never_ending(60)) for _ in range(SLOW // 2)]
        began = time.monotonic()
        slow = [asyncio.create_task(client(10_000 + i, 0.05, 1)) for i in range(SLOW // 2)]
        await asyncio.gather(*(client(i) for i in range(CLIENTS)))
        took = time.monotonic() - began
        await asyncio.gather(*slow)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        times.sort()
        answered = sum(status == 200 for status in statuses)
        print(
            f"{CLIENTS} clients and {SLOW} slow ones: {answered:,} of {len(statuses):,} answered in {took:.1f} s, "
            f"median {times[len(times) // 2]:.2f} s, slowest {times[-1]:.2f} s"
        )
        return len(statuses) - answered


if __name__ == "__main__":
    sys.exit(main())
