"""Every query of docs/cookbook.md, run: its answer is the simulator's truth, or counted by hand in the files."""

from __future__ import annotations

import re
import sqlite3
from collections import defaultdict
from pathlib import Path
from statistics import median

import polars as pl
import pytest

COOKBOOK = Path(__file__).parents[2] / "docs" / "cookbook.md"
QUERIES = dict(re.findall(r"^### (.+?)\n.*?```sql\n(.*?)```", COOKBOOK.read_text("utf-8"), re.MULTILINE | re.DOTALL))


class Files:
    """What the files of the job hold, read with nothing of ours: rows of (rank, …)."""

    def __init__(self, folder: Path) -> None:
        self.connections = [sqlite3.connect(folder / f"node{n}.sqlite") for n in (0, 1)]

    def rows(self, sql: str):
        """`sql` has the process first: two ranks on each node, in the order of their pids."""
        for node, connection in enumerate(self.connections):
            yield from ((2 * node + (row[0] >> 24 & 0xFFFFFF) - 2100, *row[1:]) for row in connection.execute(sql))

    def close(self) -> None:
        for connection in self.connections:
            connection.close()

    def ops(self):
        """(rank, start, end, name, call's start, thread) of kernels and copies."""
        times = "SELECT k.globalPid, k.start, k.end"
        named = (
            "s.value, r.start, r.globalTid FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = k.demangledName"
        )
        copied = "'[copy]', r.start, r.globalTid FROM CUPTI_ACTIVITY_KIND_MEMCPY k"
        # Correlations are a process's own.
        call = "r.correlationId = k.correlationId AND r.globalTid >> 24 = k.globalPid >> 24"
        for table in (named, copied):
            yield from self.rows(f"{times}, {table} JOIN CUPTI_ACTIVITY_KIND_RUNTIME r ON {call}")

    def ranges(self):
        """(rank, start, end, text, thread) of the program's own ranges."""
        text = "coalesce(n.text, s.value)"
        ours = f"{text} NOT LIKE 'rank=%' AND {text} NOT LIKE 'nccl%' AND n.eventType IN (59, 60) AND n.end IS NOT NULL"
        yield from self.rows(
            f"SELECT n.globalTid, n.start, n.end, {text}, n.globalTid FROM NVTX_EVENTS n"
            f" LEFT JOIN StringIds s ON s.id = n.textId WHERE {ours}"
        )

    def innermost(self):
        """From rank, thread and moment to the innermost range: the thread's, else of any (semantics §3)."""
        known = defaultdict(list)
        for rank, start, end, text, thread in self.ranges():
            for place in (thread, None):
                known[rank, place].append((start, -end, text))

        def at(rank: int, thread: int, moment: int) -> str | None:
            for place in (thread, None):
                if around := [r for r in known[rank, place] if r[0] <= moment < -r[1]]:
                    return max(around)[2]
            return None

        return at


@pytest.fixture(scope="module")
def files(job):
    found = Files(job.folder)
    yield found
    found.close()


def steps(job, files):
    rows = job.truth["iterations"]["rows"]
    return [(r["rank"], r["index"], r["label"], r["gpu_ns"]) for r in rows]


def where(job, files):
    rows = job.truth["breakdown"]["rows"]
    return [(r["rank"], r["window_ns"], r["window_ns"] - r["idle_ns"], r["idle_ns"], r["compute_ns"]) for r in rows]


def in_step(job, files):
    """Ops of the step that the truth looks at, by rank: launched in its time on the host."""
    spans = {r["rank"]: (r["cpu_start_ns"], r["cpu_end_ns"]) for r in job.truth["window"]["rows"]}
    return [op for op in files.ops() if spans[op[0]][0] <= op[4] < spans[op[0]][1]]


def kernels(job, files):
    found = defaultdict(list)
    for rank, start, end, name, *_ in in_step(job, files):
        if not name.startswith(("nccl", "[")):
            found[rank, name].append(end - start)
    return {(rank, name, len(times), sum(times)) for (rank, name), times in found.items()}


def by_range(job, files):
    at, found = files.innermost(), defaultdict(list)
    for rank, start, end, _, launched, thread in files.ops():
        found[rank, at(rank, thread, launched)].append(end - start)
    return {(rank, text, len(times), sum(times)) for (rank, text), times in found.items()}


def longest(job, files):
    at, best = files.innermost(), {}
    for rank, start, end, name, launched, thread in files.ops():
        if not name.startswith(("nccl", "[")) and end - start > best.get(rank, (0, 0))[1]:
            best[rank] = (name, end - start, at(rank, thread, launched))
    return [(rank, *best[rank]) for rank in sorted(best)]


def exposed(job, files):
    keys = ("rank", "n", "comm_ns", "exposed_ns", "overlap_pct")
    return [tuple(r[k] for k in keys) for r in job.truth["overlap"]["rows"]]


def worst(job, files):
    keys = ("rank", "range", "name", "start_ns", "dur_ns", "exposed_ns")
    rows = sorted(job.truth["exposed"]["rows"], key=lambda r: (-r["exposed_ns"], r["rank"], r["start_ns"]))
    return [tuple(r[k] for k in keys) for r in rows[:10]]


def hidden(job, files):
    """By rank, whatever the number of the op: its length, and what of it compute hides."""
    return sorted((r["rank"], r["dur_ns"], r["dur_ns"] - r["exposed_ns"]) for r in job.truth["exposed"]["rows"])


def last(job, files):
    found = defaultdict(list)
    for row in job.truth["collectives"]["rows"]:
        if row["max_wait_ns"]:
            found[row["last_rank"]].append(row["max_wait_ns"])
    return sorted(((rank, len(w), sum(w)) for rank, w in found.items()), key=lambda row: -row[2])


def waits(job, files):
    """All collectives are of one group: the k-th of a rank and stream is the k-th of the others'."""
    starts = defaultdict(list)
    for rank, stream, start in files.rows(
        "SELECT k.globalPid, k.streamId, k.start FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s"
        " ON s.id = k.shortName WHERE s.value LIKE 'nccl%' ORDER BY k.start"
    ):
        starts[stream, rank].append(start)
    waited = defaultdict(list)
    for stream in {s for s, _ in starts}:
        for together in zip(*(starts[stream, rank] for rank in range(4)), strict=True):
            for rank, start in enumerate(together):
                waited[rank].append(max(together) - start)
    return [(rank, len(waited[rank]), sum(waited[rank])) for rank in range(4)]


def bandwidths(job, files):
    found = defaultdict(list)
    for row in job.truth["collectives"]["rows"]:
        found[row["op"], row["bytes"]].append(row["busbw_gbps"])
    return [(*key, len(found[key]), median(found[key])) for key in sorted(found)]


def calls(job, files):
    found = defaultdict(list)
    for rank, start, end, name in files.rows(
        "SELECT r.globalTid, r.start, r.end, s.value FROM CUPTI_ACTIVITY_KIND_RUNTIME r"
        " JOIN StringIds s ON s.id = r.nameId"
    ):
        found[rank, re.sub(r"_v\d+$", "", name)].append(end - start)
    return {(rank, name, len(times), sum(times), max(times)) for (rank, name), times in found.items()}


def ahead(job, files):
    found = defaultdict(list)
    for rank, start, _, _, launched, _ in files.ops():
        found[rank].append(start - launched)
    return [(rank, len(found[rank]), median(found[rank]), min(found[rank])) for rank in sorted(found)]


def slower(job, files):
    """The straggler was made 1.5 times as slow; durations scatter by 2 %."""
    return [(rank, pytest.approx(1.5 if rank == 3 else 1.0, abs=0.02)) for rank in range(4)]


def alike(job, files):
    counted = {r["ops"] for r in job.truth["window"]["rows"]}
    (ops,) = counted
    return [(index, ops, ops) for index in range(3)]


EXPECTED = {
    "How long is each step on every rank?": steps,
    "Where did the step go?": where,
    "Which kernels take the time?": kernels,
    "Which ranges launch the GPU's work?": by_range,
    "Which range was the host in when the rank's longest kernel was launched?": longest,
    "How much communication is exposed, per rank?": exposed,
    "Which communication ops expose most?": worst,
    "What hid a communication op?": hidden,
    "Who arrives last, and how long do the others wait for it?": last,
    "How long does each rank wait in collectives?": waits,
    "Which bus bandwidth does each size of message reach?": bandwidths,
    "Which CUDA calls take the host's time?": calls,
    "How far is the host ahead: from a launch to the start of its op?": ahead,
    "Which rank needs longer for the same kernels?": slower,
    "Do all ranks launch the same number of kernels per step?": alike,
}


def test_every_query_has_an_answer():
    assert list(QUERIES) == list(EXPECTED) and len(QUERIES) >= 10


@pytest.mark.parametrize("title", EXPECTED)
def test_the_answer_is_known(job, files, title):
    rows = job.profile.sql(QUERIES[title]).rows
    want = EXPECTED[title](job, files)
    got = rows.rows()
    if title == "What hid a communication op?":
        got = sorted(rows.select("rank", "dur_ns", "hidden_ns").rows())
    assert len(got) == len(want) > 0
    if isinstance(want, set):
        assert set(got) == want
        assert rows.equals(rows.sort("rank", rows.columns[3], descending=[False, True], maintain_order=True))
        return
    for row, expected in zip(got, want, strict=True):
        assert row == tuple(pytest.approx(v, rel=1e-9) if isinstance(v, float) else v for v in expected)


def test_durations_are_whole_numbers(job):
    rows = job.profile.sql(QUERIES["Which kernels take the time?"]).rows
    assert rows.schema["total_ns"] == pl.Int64 and rows.schema["name"] == pl.String
